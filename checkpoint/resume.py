"""Choose the checkpoint that all ranks re-enter from: the newest one that is not stale and is whole.

Called once a round by the leading agent, in a thread, when all old ranks are dead. Walks the candidates newest first
and reads only until one passes. A refused one is named in the answer and left where it is; nothing is ever deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .beside import Beside
from .digest import OVERDUE
from .errors import GaveUp
from .examine import LOOSE, Asked, Look, Seen, examine
from .names import Candidate, shown
from .patience import Patience
from .scan import scan


@dataclass(frozen=True, slots=True)
class Choice:
    """Where to re-enter; ``path`` is empty and ``step`` -1 when the ranks must start from nothing."""

    path: str = ""
    step: int = -1  # 0 where neither content nor name has one
    format: str = ""
    verified: str = ""
    refused: tuple[tuple[str, str], ...] = ()  # (name, reason) of newer ones that were passed over
    ranks: tuple[int, ...] = ()  # whose files are here, where it is a part: the other nodes must have the rest
    world: int | None = None  # of a part: ranks that wrote it all, where that is recorded
    astray: str = ""  # why another directory or format should have been given; then nothing may begin from nothing


def search(directory: Path, asked: Asked, patience: Patience | None = None, seen: Seen | None = None) -> Choice:
    """Find the resume point in ``directory``.

    Blocks while it reads. ``give_up`` is asked between blocks of 1 MiB and ends the search with ``GaveUp``;
    ``Unreadable`` means that the directory could not be listed, which is not the same as an empty one.
    """
    # Unfinished ones are no news: a rank was killed while it saved.
    found = (look for look in looks(directory, asked, patience, seen) if not look.unfinished)
    return first_whole(directory, found)


def first_whole(directory: Path, found: Iterable[Look]) -> Choice:
    """Return the first that may be taken, with those before it as refused.

    Where there is none, and not even a torn one that is as asked for, what was asked for is doubted.
    """
    refused: list[tuple[str, str]] = []
    fits, astray = False, ""
    for look in found:
        if not look.whole:
            refused.append((shown(look.name), look.words))
            fits, astray = fits or look.fits, astray or (look.astray and f"{shown(look.name)}: {look.astray}")
            continue
        words = look.words if look.step is not None else f"{look.words}; nothing says its step"
        world = look.world if look.ranks else None
        path = str(directory.absolute() / look.name)
        return Choice(path, look.step or 0, look.format, words, tuple(refused), look.ranks, world)
    return Choice(refused=tuple(refused), astray="" if fits else astray)


def newest(directory: Path, asked: Asked) -> Look | None:
    """Return the newest one with a step that may be taken, as ``asked.deep`` has it. Absence is not doubted."""
    found = (look for look in looks(directory, asked, Patience(())) if look.whole and look.step is not None)
    return next(found, None)


def looks(directory: Path, asked: Asked, patience: Patience | None = None, seen: Seen | None = None) -> Iterator[Look]:
    """Look at one candidate after the other, newest first by name."""
    directory, patience, seen = directory.absolute(), patience or Patience(), {} if seen is None else seen
    listing = scan(directory, patience)
    if listing.lacking:
        yield Look(listing.lacking, words=f"{listing.pointer} names it, but it is not there")
    if not listing.present:
        yield Look(str(directory), words="this checkpoint directory does not exist")
        return
    if format_ := _itself(directory, listing.candidates):
        words = "it is itself a checkpoint: give the directory that holds it"
        yield Look(str(directory), format_, words=words, astray=words)
        return
    beside = Beside(directory, listing.candidates, asked, seen)
    for at, candidate in enumerate(listing.candidates):
        if asked.give_up():
            raise GaveUp(OVERDUE)
        if reason := asked.objection(candidate.name):
            yield Look(candidate.name, words=reason, step=candidate.step, fits=True)
            continue
        look = examine(directory, candidate, asked, patience, seen)  # whose step says more than a number in a name
        if look.whole and look.step is not None and asked.below is not None and look.step >= asked.below[0]:
            look = look._replace(whole=None, words=asked.below[1])
        yield beside.compared(at, look)


def _itself(directory: Path, candidates: Iterable[Candidate]) -> str:
    """Return the format that the directory's own files are of; empty if it holds steps, nothing, or loose files."""
    if any(candidate.order >= 0 and os.path.isdir(directory / candidate.name) for candidate in candidates):
        return ""
    files = [name for name in os.listdir(directory) if name != ".remuster"]
    if not files:
        return ""
    from .formats import known

    format_ = known.claiming(directory.name, files)
    return format_.name if format_ is not None and format_.name != LOOSE else ""
