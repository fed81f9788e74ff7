"""Who was waited for, when ranks only report that their wait ran out. Pure; called by the verdict.

In order: the ranks that the others name; the one that had enqueued or completed least, as torch's flight recorder left
it; the one with the lowest sequence number in its last lines (or of those equal, that has enqueued least); the one
whose process does not run; the one whose stack is elsewhere; the one that is stuck in the kernel; the one that is
silent for longest; the only rank that neither waited nor failed. With more than one left, nobody is blamed. A rank that
exited 0 while the others went on (``left_early``) is a better answer than the last of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .causes import GUESS, LIKELY
from .compare import Suspect, silent, suspect
from .evidence import RoundEvidence
from .reading import Reading, Standing, Wait

LEFT = "exit status"  # the source of what is known of a rank that left early


class Laggard(NamedTuple):
    """The rank that the others waited for; ``source`` is what it is known by, ``reading`` its own end, if any."""

    node: str
    rank: int
    why: str
    source: str
    confidence: str
    reading: Reading | None


def laggard(evidence: RoundEvidence, readings: list[Reading], blocked: Sequence[Suspect] = ()) -> Laggard | None:
    """Return the rank that the others waited for, None when it cannot be known. ``blocked``: stuck in the kernel."""
    waiting = [r for r in readings if r.standing is Standing.WAITED]
    by_rank = {r.exit.rank: r for r in readings}
    home = dict(_ranks(evidence))

    def named(rank: int, why: str, source: str, confidence: str = LIKELY) -> Laggard:
        r = by_rank.get(rank)
        return Laggard(r.node if r else home.get(rank, "?"), rank, why, source, confidence, r)

    accused = {rank for r in waiting for rank in r.suspects}
    if len(accused) == 1:
        return named(accused.pop(), "the others named it in monitoredBarrier", "last lines")
    stood = [r for r in readings if r.standing is Standing.CRIED and r.wait is not None]  # told to dump by others
    behind = _behind([(r, r.wait) for r in (*waiting, *stood) if r.wait is not None])
    found = suspect(evidence, home, [r.exit.rank for r in waiting])
    if found is not None and (behind is None or found.source == "flight recorder"):
        return named(*found)
    if behind is not None:
        r, wait = behind
        why = f"it was at {wait.operation} number {wait.sequence} when its wait ran out, the others were further"
        return named(r.exit.rank, why, "last lines")
    if len(blocked) == 1:
        return named(*blocked[0])
    if (found := silent(evidence)) is not None:
        return named(*found)
    # One that aborted without a word may be it: its own watchdog had told of a wait.
    spoken = {r.exit.rank for r in waiting} | {
        r.exit.rank for r in readings if r.standing is Standing.CRIED and r.weight
    }
    # One that a stop let end with 0 has said nothing by it.
    spoken |= {r.exit.rank for r in readings if r.exit.status == 0 and not r.exit.stopping}
    left = [rank for rank in home if rank not in spoken]
    if waiting and len(left) == 1:
        why = "the others waited for it until their time ran out; it said nothing"
        return named(left[0], why, "silence", GUESS)
    return None


def left_early(readings: Sequence[Reading]) -> Laggard | None:
    """Return the rank that exited 0 while others went on and needed it, None when nobody did or several nodes' ranks.

    Where more have left than went on, it may as well be these that did a step too many: then nobody is named.
    """
    gone = [r for r in readings if r.exit.status == 0 and not r.exit.stopping]
    rest = [r for r in readings if r.exit.status != 0 or r.exit.stopping]
    if not gone or len(gone) > len(rest) or len({r.node for r in gone}) > 1:
        return None
    first = min(gone, key=lambda r: (r.exit.at_s, r.exit.rank))
    failed = [r.exit.at_s for r in rest if r.node == first.node and not r.exit.stopping]
    if failed and min(failed) < first.exit.at_s:  # of other nodes' clocks nothing is known
        return None
    more = f"; so did {len(gone) - 1} more of its node" if len(gone) > 1 else ""
    why = f"it exited 0 while the others went on{more}"
    return Laggard(first.node, first.exit.rank, why, LEFT, LIKELY, first)


def _ranks(evidence: RoundEvidence) -> Iterator[tuple[int, str]]:
    rank = 0
    for node, slots in evidence.members:
        for _ in range(max(0, min(slots, 4096))):
            yield rank, node
            rank += 1


def _behind(waits: list[tuple[Reading, Wait]]) -> tuple[Reading, Wait] | None:
    groups = {wait.group for _, wait in waits} - {""}
    if len(waits) < 2 or len(groups) > 1:  # sequence numbers of different groups cannot be compared
        return None
    lowest = min(wait.sequence for _, wait in waits)
    last = [(r, wait) for r, wait in waits if wait.sequence == lowest]
    if len(last) == len(waits):
        if any(wait.enqueued < 0 for _, wait in waits):
            return None
        least = min(wait.enqueued for _, wait in waits)
        last = [(r, wait) for r, wait in waits if wait.enqueued == least]
    return last[0] if len(last) == 1 else None
