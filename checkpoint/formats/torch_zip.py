"""Files of ``torch.save``: zip archives whose directory is written last and whose members carry a CRC-32.

Uncompressed since torch 1.6; a file cut short has no directory. Older ones ("legacy") are bare pickles, of which
nothing can be known: ``is_legacy`` tells them apart.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from ..digest import OVERDUE
from ..errors import GaveUp
from .finding import Question
from .folder import Folder
from .inert_pickle import loads

BLOCK_BYTES = 1 << 20
STEP_KEYS = ("step", "global_step", "iteration")
MOST_MEMBERS = 1_000_000
LARGEST_PICKLE = 256 << 20


LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")  # its first pickle: torch/serialization.py, MAGIC_NUMBER
LEGACY_WORDS = "was written in torch.save's old format, in which nothing shows whether it is whole"


def is_legacy(folder: Folder, path: str) -> bool:
    """Say whether a file was written by a torch before 1.6, or as they did."""
    with folder.opened(path) as (fd, _):
        return os.pread(fd, len(LEGACY), 0) == LEGACY


def wrong_with(folder: Folder, path: str, question: Question) -> str:
    """Say what is wrong with a file of torch.save, or nothing when it is whole: "" ."""
    with folder.opened(path) as (fd, size):
        if not size:
            return f"{path!a} is empty"
        if os.pread(fd, len(LEGACY), 0) == LEGACY:
            return f"{path!a} {LEGACY_WORDS}"
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


def root_of(folder: Folder, path: str) -> str:
    """Return the name that torch.save was given, without its ending; older versions write "archive"."""
    with folder.opened(path) as (fd, _), os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
        return archive.infolist()[0].filename.partition("/")[0]


def contents(folder: Folder, path: str) -> dict[str, object]:
    """Return what a file of torch.save holds at its top, inert; ValueError when that cannot be looked at."""
    held = loads(data_pickle(folder, path))
    return cast("dict[str, object]", held) if isinstance(held, dict) else {}


def step_of(held: Mapping[str, object], keys: Iterable[str] = STEP_KEYS) -> int | None:
    """Return the training step among what a file holds, if a plain number says it."""
    found = (held.get(key) for key in keys)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool) and n >= 0), None)


def _words(error: Exception) -> str:
    text = str(error)
    return "its end is missing" if "not a zip file" in text else text
