"""Files of ``torch.save``: zip archives whose directory is written last and whose members carry a CRC-32.

Uncompressed since torch 1.6; a file cut short has no directory. Older ones ("legacy") are bare pickles, of which
nothing can be known: ``not_zip`` tells them apart.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable

from ..digest import OVERDUE
from ..errors import GaveUp
from .finding import Question
from .folder import Folder

BLOCK_BYTES = 1 << 20
MOST_MEMBERS = 1_000_000
LARGEST_PICKLE = 256 << 20


def wrong_with(folder: Folder, path: str, question: Question) -> str:
    """Say what is wrong with a file of torch.save, or nothing when it is whole: "" ."""
    with folder.opened(path) as (fd, size):
        if not size:
            return f"{path!a} is empty"
        try:
            with os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                if len(members) > MOST_MEMBERS:
                    return f"{path!a} has {len(members)} members, more than any file of torch.save"
                if not any(m.filename.endswith("/data.pkl") for m in members):
                    return f"{path!a} is a zip archive, but not of torch.save: it has no data.pkl"
                return _bad_member(archive, path, question.give_up) if question.deep else ""
        except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, RuntimeError, zlib.error) as error:
            return f"{path!a} is no whole file of torch.save: {_words(error)}"


def _bad_member(archive: zipfile.ZipFile, path: str, give_up: Callable[[], bool]) -> str:
    for member in archive.infolist():
        with archive.open(member) as stream:  # raises BadZipFile at its end if the CRC-32 differs
            while stream.read(BLOCK_BYTES):
                if give_up():
                    raise GaveUp(OVERDUE)
    return ""


def data_pickle(folder: Folder, path: str) -> bytes:
    """Return the pickle in a file of torch.save. ValueError: there is none, or it is too large to be looked at."""
    with folder.opened(path) as (fd, _):
        try:
            with os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
                member = next((m for m in archive.infolist() if m.filename.endswith("/data.pkl")), None)
                if member is None or member.file_size > LARGEST_PICKLE:
                    raise ValueError(f"{path!a} has no data.pkl that can be looked at")
                return archive.read(member)
        except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, zlib.error) as error:
            raise ValueError(f"{path!a} is no whole file of torch.save: {_words(error)}") from error


def _words(error: Exception) -> str:
    text = str(error)
    return "its end is missing" if "not a zip file" in text else text
