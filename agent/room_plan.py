"""How much room is kept ahead of the ranks' logs, and which part of which log makes room when there is none. Pure.

A log that gives up its middle keeps its head, where a job says what it is, and its newest tail, where it says why it
ended. The hole begins and ends at whole blocks and only grows, and the last bytes before it are given to a mark. Called
by ``room.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

BLOCK = 1 << 16  # holes begin and end at multiples: no file system in use has larger blocks by default
PAGE = 4096
RESERVE = 1 << 20  # ahead of each log: what a rank writes until a late agent has looked
LOW = RESERVE // 4  # so little ahead is soon written
MOST = 32 << 20  # ahead of a log whose rank writes fast
LOOKS = 4  # a fast rank's next so many looks are reserved: one may well be late
LEAST_LIMIT = 1 << 20  # of one log

DISK_FULL, AT_LIMIT = "the disk was full", "the log had reached its limit"


class Kept(NamedTuple):
    """How a log is kept: so much of its beginning, so much of its end; less than ``gain`` is not worth a hole."""

    head: int
    tail: int
    gain: int


PLENTY = Kept(1 << 20, 8 << 20, 1 << 20)
DIRE = Kept(BLOCK, 4 * BLOCK, BLOCK)  # the last lines that a report needs are there still


class Log(NamedTuple):
    """What is known of one log: its size, its hole, whether it is an earlier attempt's."""

    path: str
    size: int
    start: int = 0
    end: int = 0
    earlier: bool = False

    @property
    def kept(self) -> int:
        return self.size - (self.end - self.start)


class Hole(NamedTuple):
    """Where a log is to have its hole, what there was before included."""

    path: str
    start: int
    end: int
    gain: int


def wanted(ahead: int, grown: int, granted: int) -> int:
    """Return how many bytes are to be reserved ahead of a log; 0: what is there will do.

    ``grown``: since the last look; ``granted``: what could be had the last time.
    """
    want = min(max(RESERVE, LOOKS * grown), MOST)
    return want if ahead <= min(want, granted) // 2 else 0


def short(need: int, free: int) -> bool:
    """Tell whether so much would leave others too little: the reserve is to be ready, not to fill the disk itself."""
    return need > free // 2


def affordable(need: int, free: int, gained: int) -> int:
    """Return how much of ``need`` may be taken: all that logs have just given up for it, else little of the rest."""
    return max(min(need, gained), free // 8) // PAGE * PAGE if short(need, free) else need


def tries(most: int) -> list[int]:
    """Return what is asked for, one after another, until the disk has it."""
    less = (most * 7 // 8 // PAGE * PAGE, most // 2 // PAGE * PAGE)
    return [size for size in (most, *less) if size]


def over_limit(log: Log, limit: int) -> Hole | None:
    """Return the hole with which a log keeps at most ``limit`` bytes, half of it free for what comes; 0: no limit."""
    if not limit or log.kept <= limit:
        return None
    head = max(BLOCK, min(PLENTY.head, limit // 8 // BLOCK * BLOCK))
    return _hole(log, Kept(head, limit // 2 - head, BLOCK))


def for_room(logs: Sequence[Log], *, dire: bool) -> Hole | None:
    """Return the hole that gives most room; ``dire``: nothing else does, so that logs keep less.

    Logs of earlier attempts come after those that grow: nobody can write them again, and they say why those failed.
    """
    for kept in (PLENTY, DIRE) if dire else (PLENTY,):
        for earlier in (False, True):
            best = _best(_hole(log, kept) for log in logs if log.earlier is earlier)
            if best is not None:
                return best
    return None


def mark(start: int, end: int, why: str, before: int | None) -> tuple[int, bytes]:
    """Return what stands before a hole, and where it begins; ``before``: where the mark began until now."""
    at = start if before is None else before
    while True:
        text = b"\n[remuster: %d bytes are missing here: %s]" % (end - at, why.encode())
        if at + len(text) < start:
            return at, text.ljust(start - at - 1) + b"\n"
        at = start - len(text) - 1


def _hole(log: Log, kept: Kept) -> Hole | None:
    start = kept.head if log.start == log.end else min(log.start, kept.head)
    end = max((log.size - kept.tail) // BLOCK * BLOCK, log.end)
    gain = (end - start) - (log.end - log.start)
    return Hole(log.path, start, end, gain) if gain >= kept.gain else None


def _best(holes: Iterable[Hole | None]) -> Hole | None:
    return max((hole for hole in holes if hole is not None), key=lambda hole: hole.gain, default=None)
