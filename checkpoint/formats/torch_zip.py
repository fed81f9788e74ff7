"""Files of ``torch.save``: zip archives whose directory is written last and whose members carry a CRC-32.

Uncompressed since torch 1.6; a file cut short has no directory. Older ones ("legacy") are bare pickles, of which
nothing can be known: ``is_legacy`` tells them apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from ..digest import never
from .finding import Question, Torn, Unknown
from .folder import Folder
from .inert_pickle import loads
from .stored_zip import NotWhole, StoredZip
from .together import first_wrong

STREAM = "archive"  # the name in a file that was written as a stream, and by older versions
STEP_KEYS = ("step", "global_step", "iteration")
LARGEST_PICKLE = 256 << 20

LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")  # its first pickle: torch/serialization.py, MAGIC_NUMBER
LEGACY_WORDS = "was written in torch.save's old format, in which nothing shows whether it is whole"


def is_legacy(folder: Folder, path: str) -> bool:
    """Say whether a file was written by a torch before 1.6, or as they did."""
    with folder.opened(path) as (fd, _):
        return os.pread(fd, len(LEGACY), 0) == LEGACY


def wrong_with(folder: Folder, path: str, question: Question) -> str:
    """Say what is wrong with a file of torch.save, or nothing when it is whole: "" ."""
    return _looked_at(folder, path, question)[0]


def judge_files(folder: Folder, paths: Sequence[str], question: Question) -> str | Torn | Unknown:
    """Judge several files, in parallel; return how it is known that they are whole, or what is wrong with one."""
    if old := next((path for path in paths if is_legacy(folder, path)), None):
        return Unknown(f"{old!a} {LEGACY_WORDS}")
    bare: list[str] = []

    def judged(path: str, stopped: Question) -> str:
        wrong, has_checksums = _looked_at(folder, path, stopped)
        if not has_checksums:
            bare.append(path)
        return wrong

    if wrong := first_wrong([partial(judged, path) for path in paths], question):
        return Torn(wrong)
    what = f"{len(paths)} file(s) of torch.save"
    if not question.deep:
        return f"the directories of {what}"
    return f"CRC-32 of {what}" + (f", but sizes only of {len(bare)} that have no checksums" if bare else "")


def data_pickle(folder: Folder, path: str) -> bytes:
    """Return the pickle in a file of torch.save. ValueError: there is none, or it is too large to be looked at."""
    with folder.opened(path) as (fd, size):
        try:
            archive = StoredZip(fd, 0, size)
            member = next((m for m in archive.members if m.name.endswith(b"/data.pkl")), None)
            if member is None or member.size > LARGEST_PICKLE:
                raise ValueError(f"{path!a} has no data.pkl that can be looked at")
            return archive.content(member)
        except NotWhole as error:
            raise ValueError(f"{path!a} is no whole file of torch.save: {error}") from error


def root_of(folder: Folder, path: str) -> str:
    """Return the name that torch.save was given, without its ending; older versions write "archive", as for streams."""
    with folder.opened(path) as (fd, size):
        try:
            return StoredZip(fd, 0, size).members[0].name.partition(b"/")[0].decode("utf-8", "replace")
        except NotWhole as error:
            raise ValueError(f"{path!a} is no whole file of torch.save: {error}") from error


def saved_as_another(folder: Folder, paths: Iterable[str]) -> str:
    """Say that a file was saved under another name, so by another rank or as something else, or ""."""
    for path in sorted(paths):
        name, wrote = path.rpartition("/")[2].rpartition(".")[0], root_of(folder, path)
        if wrote not in (name, STREAM):
            return f"{path!a} holds what was saved as {wrote!a}"
    return ""


def contents(folder: Folder, path: str, give_up: Callable[[], bool] = never) -> dict[str, object]:
    """Return what a file of torch.save holds at its top, inert; ValueError when that cannot be looked at."""
    held = loads(data_pickle(folder, path), give_up)
    return cast("dict[str, object]", held) if isinstance(held, dict) else {}


def step_of(held: Mapping[str, object], keys: Iterable[str] = STEP_KEYS) -> int | None:
    """Return the training step among what a file holds, if a plain number says it."""
    found = (held.get(key) for key in keys)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool) and n >= 0), None)


def _looked_at(folder: Folder, path: str, question: Question) -> tuple[str, bool]:
    """Return what is wrong, or "", and whether the file has checksums."""
    with folder.opened(path) as (fd, size):
        if not size:
            return f"{path!a} is empty", True
        if os.pread(fd, len(LEGACY), 0) == LEGACY:
            return f"{path!a} {LEGACY_WORDS}", True
        try:
            archive = StoredZip(fd, 0, size)
            if not any(member.name.endswith(b"/data.pkl") for member in archive.members):
                return f"{path!a} is a zip archive, but not of torch.save: it has no data.pkl", True
            if question.deep:
                archive.check(question.give_up)
        except NotWhole as error:
            return f"{path!a} is no whole file of torch.save: {error}", True
    return "", archive.has_checksums
