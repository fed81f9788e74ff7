"""What lies in a checkpoint directory, newest first by name. An adapter: lists, decides nothing, opens no checkpoint.

Pointer files (``latest.json``, DeepSpeed's ``latest``, Megatron's tracker) are only hints: they may be stale, half
written, or name what was never finished. The one thing they are good for is to doubt a listing that lacks what they
name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import cast

from .digest import opened_directory, opened_file
from .errors import Unreadable
from .layout import LATEST, step_of
from .names import Candidate, candidate, is_spare
from .patience import Patience

POINTERS = (LATEST, "latest", "latest_checkpointed_iteration.txt")
MARKERS = ("-unfinished", ".unfinished")  # ends of one length
_MAX_HINT_BYTES = 4096
Found = tuple[int, bool, str, Candidate, "os.DirEntry[str]"]  # as they are ordered


@dataclass(frozen=True, slots=True)
class Listing:
    """The candidates, newest first, and what a pointer names if it is newer and the directory lacks it."""

    candidates: tuple[Candidate, ...] = ()
    lacking: str = ""
    pointer: str = ""  # the file that names it
    present: bool = True  # False: there is no such directory


def scan(directory: Path, patience: Patience) -> Listing:
    """List a checkpoint directory; raise ``Unreadable`` if it cannot be read. One that is absent holds nothing."""
    while True:
        try:
            found, pointers = _list(directory)
        except FileNotFoundError:
            return Listing(present=False)
        newest = found[0].order if found else -1
        hints = ((_hint(directory, pointer), pointer) for pointer in pointers)
        named, pointer = max(((c, p) for c, p in hints if c), key=lambda h: h[0].order, default=(None, ""))
        if named is None or named.order <= newest:  # an older step that is gone was tidied away by somebody: no loss
            return Listing(found)
        if not patience.again():
            return Listing(found, named.name, pointer)


def _list(directory: Path) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Return candidates, and which pointer files there are."""
    found: list[Found] = []
    marked: set[str] = set()  # what a marker file beside it calls unfinished, as NeMo's do
    pointers: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name in POINTERS:
                    pointers.append(entry.name)
                elif entry.name.endswith(MARKERS) and _is_file(entry):
                    marked.add(entry.name[: -len(MARKERS[0])])
                elif (item := candidate(entry.name, _is_file(entry))) and not (item.order < 0 and _repeats(entry)):
                    found.append((item.order, not item.unfinished, item.name, item, entry))
    except FileNotFoundError:
        raise
    except OSError as e:
        raise Unreadable(
            f"the checkpoint directory {str(directory)!a} cannot be listed: {e.strerror}; "
            "mount or repair it: starting without it could throw the job's progress away"
        ) from e
    if marked:
        found = [_marked(one) if marked & {one[2], one[2].removesuffix(".ckpt")} else one for one in found]
    found.sort(reverse=True)
    if len({one[0] for one in found}) == len(found):
        ordered = tuple([one[3] for one in found])
    else:
        ordered = tuple(item for _, alike in groupby(found, lambda one: one[:2]) for item in _newest_first(alike))
    if not found or found[0][0] < 0 or found[-1][0] >= 0:
        return ordered, tuple(pointers)
    return _placed(directory, ordered), tuple(pointers)


def _marked(one: Found) -> Found:
    order, _, name, item, entry = one
    return order, False, name, item._replace(unfinished=True), entry


def _newest_first(alike: Iterable[Found]) -> tuple[Candidate, ...]:
    """Order those of one number, or without any, by their age: ``epoch=1-val_loss=0.20.ckpt`` says nothing of it."""
    same = [(item, entry) for *_, item, entry in alike]
    if same[1:]:
        same.sort(key=lambda one: (is_spare(one[0].name), -_age(one[1]), len(one[0].name), one[0].name))
    return tuple(item for item, _ in same)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads round in a circle
        return False


def _age(entry: os.DirEntry[str]) -> int:
    """Return when an entry was written; 0 if it has gone since. Of a link its own: it may lead nowhere."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def _repeats(entry: os.DirEntry[str]) -> bool:
    """Say whether it is a link to what lies beside it and is listed itself: Lightning's last.ckpt, save_last='link'."""
    if not entry.is_symlink():
        return False
    directory = os.path.dirname(entry.path)
    try:
        inside, name = os.path.split(os.readlink(entry.path))
    except FileNotFoundError:
        return True  # gone since
    beside = inside in ("", ".", directory) and name not in ("", ".", "..", entry.name)
    return beside and os.path.lexists(os.path.join(directory, name))


def _placed(directory: Path, found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Put those as ``last.ckpt`` before the others if they are newer than the newest of these, else after them."""
    numbered = tuple(item for item in found if item.order >= 0)
    newest = _written(directory / numbered[0].name, follow=True)
    newer = tuple(
        item
        for item in found
        if item.order < 0 and item.name.endswith(".ckpt") and _written(directory / item.name) > newest
    )
    return (*newer, *numbered, *(item for item in found if item.order < 0 and item not in newer))


def _written(path: Path, follow: bool = False) -> int:
    try:
        return path.stat(follow_symlinks=follow).st_mtime_ns
    except OSError:
        return 0


def _hint(directory: Path, pointer: str) -> Candidate | None:
    """Return what a pointer names; None for anything that is no name of a step."""
    try:
        with opened_directory(directory, through_link=True) as root, opened_file(root, pointer) as (fd, _):
            text = os.read(fd, _MAX_HINT_BYTES).decode()
        if pointer == LATEST:
            value: object = json.loads(text)
            name = cast("dict[str, object]", value).get("name") if isinstance(value, dict) else None
            if not isinstance(name, str) or step_of(name) is None:
                return None
        else:
            name = text.strip()
            if pointer != "latest":
                if not (name.isascii() and name.isdigit()):  # int() takes -20, 1_0 and other scripts' digits too
                    return None
                name = f"iter_{int(name):07d}"
    except (OSError, ValueError, RecursionError):
        return None
    named = candidate(name, is_file=False) if "/" not in name else None
    return named if named is not None and named.order >= 0 else None
