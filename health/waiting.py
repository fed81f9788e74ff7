"""Who was waited for, when ranks only report that their wait ran out. Pure; called by the verdict.

In order: the ranks that the others name; the one with the lowest sequence number (or of those equal, the one that has
enqueued least); the only rank that neither waited nor failed. With more than one left, nobody is blamed.
"""

from __future__ import annotations

from collections.abc import Iterator

from .evidence import RoundEvidence
from .reading import Reading, Standing, Wait


def laggard(evidence: RoundEvidence, readings: list[Reading]) -> tuple[str, int, str, Reading | None] | None:
    """Return (node, rank, why, its reading) of the rank that the others waited for, None when it cannot be known."""
    waiting = [r for r in readings if r.standing is Standing.WAITED]
    by_rank = {r.exit.rank: r for r in readings}
    home = dict(_ranks(evidence))
    accused = {rank for r in waiting for rank in r.suspects}
    if len(accused) == 1:
        rank = accused.pop()
        return home.get(rank, "?"), rank, "the others named it in monitoredBarrier", by_rank.get(rank)
    behind = _behind([(r, r.wait) for r in waiting if r.wait is not None])
    if behind is not None:
        r, wait = behind
        why = f"it was at {wait.operation} number {wait.sequence} when its wait ran out, the others were further"
        return r.node, r.exit.rank, why, r
    spoken = {r.exit.rank for r in waiting} | {r.exit.rank for r in readings if r.standing is Standing.CRIED}
    spoken |= {r.exit.rank for r in readings if r.exit.status == 0}
    silent = [rank for rank in home if rank not in spoken]
    if len(silent) == 1:
        rank = silent[0]
        why = "the others waited for it until their time ran out; it said nothing"
        return home[rank], rank, why, by_rank.get(rank)
    return None


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
