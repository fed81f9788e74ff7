"""What one search is about: the nodes, what may go wrong and how often, and what may be late. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# What is on its way for a while by default; all else is answered at once, in the same step (see ``play.py``).
LATE = frozenset({"lost", "next", "close", "done", "fail", "finished"})
# Everything that can be late: with this no two things of an agent happen in one step.
ALL_LATE = LATE | {
    *("grant", "reread", "join", "lead", "roster", "port", "master", "started", "stop", "ready", "evidence", "collect"),
    *("revoke", "elect", "judge", "resume", "answer", "guardian", "leader key", "run"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One search. ``faults`` says how often each kind may happen, ``total`` how many of all kinds together."""

    name: str
    nodes: str = "AB"  # one letter a node; a small one is started at any time, or never
    low: int = 1
    high: int = 2
    budget: int = 2
    faults: Mapping[str, int] = field(default_factory=dict)
    total: int = -1  # -1: the sum
    warm: bool = True  # begin with round 1 running on all that are not started later; else with nothing
    later: str = ""  # nodes of a later launch, given --fresh: they may begin an ended job again
    finish: bool = False  # ranks may exit 0
    victims: bool = True  # ranks may fail because one of their peers has ended
    skip: bool = False  # a watch may jump to the newest record
    grace: bool = False  # ranks have a grace after SIGTERM, and may end in it or not
    lag: frozenset[str] = LATE
    most_states: int = 1_000_000  # above that the search is cut off, and liveness left open
    live: bool = True  # decide liveness as well

    @property
    def names(self) -> str:
        return self.nodes.upper()

    @property
    def harm(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        """The faults that are left at the beginning."""
        kinds = tuple(sorted((k, n) for k, n in self.faults.items() if n))
        return (sum(n for _, n in kinds) if self.total < 0 else self.total), kinds
