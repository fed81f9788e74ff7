"""One node of a round as the judgement sees it: its ranks' ends as read, what its kernel said, what its sources saw.

Gathers, and decides only two things: when the node's first failure was, and which facts are near it. Lines of a kernel
log are taken from the log itself and from the ranks' last lines: people paste the one into the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .evidence import Fact, NodeEvidence, RankExit
from .kernel import Kind, Sign, signs
from .observed import Early, FabricPort, Gpu, KernelLine, OomKill, SchedulerWord, Sighting
from .reading import Reading

BEFORE_S, AFTER_S = 60.0, 10.0  # around a node's first failure: a device that failed within has to do with it
LATELY_S = 1860.0  # gloo's timeout, the longest usual one: what ended a rank's part then is why others waited till now
LINES = 400  # of a kernel log; its reader keeps fewer


@dataclass(frozen=True, slots=True)
class Seen:
    """A sign in a kernel's words: when, and where it was read. ``rank`` is whose last lines held it, -1 = the log."""

    sign: Sign
    at_s: float
    rank: int = -1


@dataclass(frozen=True, slots=True)
class Scene:
    """A node. ``readings`` are in the order of their ends; ``first_s`` is None when no rank of it has failed."""

    node: str
    order: int
    readings: tuple[Reading, ...]
    seen: tuple[Seen, ...]
    gpus: tuple[Gpu, ...]
    kills: tuple[OomKill, ...]
    ports: tuple[FabricPort, ...]
    sightings: tuple[Sighting, ...]
    scheduler: tuple[str, ...]
    first_s: float | None

    def near(self, at_s: float) -> bool:
        """Return whether something happened so close to the first failure that it has to do with it."""
        return self.first_s is None or -BEFORE_S <= at_s - self.first_s <= AFTER_S

    def lately(self, at_s: float) -> bool:
        """Return whether something happened before that, but not before the others could have begun to wait."""
        return self.first_s is not None and -LATELY_S <= at_s - self.first_s < -BEFORE_S

    def signs(self, *kinds: Kind) -> list[Seen]:
        """Return the near signs of these kinds."""
        return [seen for seen in self.seen if seen.sign.kind in kinds and self.near(seen.at_s)]

    def older(self, *kinds: Kind) -> list[Seen]:
        """Return the signs of these kinds that are older than the near ones, but may be what others waited for."""
        return [seen for seen in self.seen if seen.sign.kind in kinds and self.lately(seen.at_s)]

    def by_pid(self, pid: int) -> Reading | None:
        """Return the rank with that process id, None when it is none's (or the ids are of different namespaces)."""
        return next((r for r in self.readings if pid > 0 and r.exit.pid == pid), None)

    def by_rank(self, rank: int) -> Reading | None:
        """Return the rank's end, None when it is not of this node."""
        return next((r for r in self.readings if r.exit.rank == rank), None)


def scene_of(node: NodeEvidence, readings: Sequence[Reading]) -> Scene:
    """Gather what is known of a node; ``readings`` are those of its ranks."""
    kernel = [fact for fact in node.facts if isinstance(fact, KernelLine)][:LINES]
    seen = [Seen(sign, kernel[sign.index].at_s) for sign in signs(fact.text for fact in kernel)]
    seen += [Seen(sign, r.exit.at_s, r.exit.rank) for r in readings for sign in r.pasted]
    return Scene(
        node.node,
        node.order,
        tuple(readings),
        tuple(seen),
        tuple(fact for fact in node.facts if isinstance(fact, Gpu)),
        tuple(fact for fact in node.facts if isinstance(fact, OomKill)),
        tuple(fact for fact in node.facts if isinstance(fact, FabricPort)),
        tuple(fact for fact in node.facts if isinstance(fact, Sighting)),
        tuple(fact.text for fact in node.facts if isinstance(fact, SchedulerWord)),
        _first(node.facts),
    )


def with_sightings(end: RankExit, sightings: Sequence[Sighting]) -> RankExit:
    """Return the end with those lines before its last ones that its agent saw while it lived, and that had passed."""
    lines = [s.line for s in sightings if s.rank == end.rank and s.line not in end.tail]
    return end._replace(tail=(*lines, *end.tail)) if lines else end


def _first(facts: Sequence[Fact]) -> float | None:
    """Return when the node first knew of a failure: a rank's own end, or an alarm; else when its ranks were stopped."""
    ends = [fact for fact in facts if isinstance(fact, RankExit)]
    known = [end.at_s for end in ends if end.status and not end.stopping]
    known += [fact.at_s for fact in facts if isinstance(fact, Early)]
    return min(known or [end.at_s for end in ends if end.stopping], default=None)
