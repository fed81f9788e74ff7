"""Ranks that exited 0 while others of their round go on: no failure, and seldom meant. Pure; the node machine asks.

Those that go on may wait for them in a collective until its timeout. At a normal end ranks follow one another within
moments, or one saves a last checkpoint: so it is told once in a round, and only when it has lasted.
"""

from __future__ import annotations

from ..health.evidence import RankExit
from ..rendezvous.records import Phase
from .node_state import NodeState, Ranks
from .rank_ranges import named

EARLY_S = 30.0


def left_early(s: NodeState) -> tuple[float, str] | None:
    """Return when to tell of ranks that have left this node's round, and what; None when there is nothing to tell."""
    gone = [f for f in s.facts if isinstance(f, RankExit) and f.status == 0 and not f.stopping]
    job = s.job.job if s.job else None
    if not gone or s.roster is None or s.roster.round != s.round or s.told_early == s.round:
        return None
    if s.ranks is Ranks.LIVE and s.alive and not s.stopped:
        first = s.roster.first_rank(s.index)
        still = f"{named(first + local for local in s.alive)} of this node still run{'s' * (len(s.alive) == 1)}"
        begun = min(f.at_s for f in gone)
    elif s.finished and job is not None and job.phase is Phase.RUNNING and job.round == s.round:
        still = "ranks of other nodes still run"
        begun = max(f.at_s for f in gone)
    else:
        return None
    who = named(f.rank for f in gone)
    why = f"{who} exited 0 {EARLY_S:g} s ago, and {still}: if they wait for what has left, they wait in vain"
    return s.started_at + begun + EARLY_S, why
