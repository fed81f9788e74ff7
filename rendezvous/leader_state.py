"""The state of the job machine: one frozen value. See ``leader.py`` for what is decided from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from .agreement import Agreement
from .gate import Owing
from .leader_words import Action, Concluded, Limits, Resumed, Stamps, Submit
from .records import Phase, Round
from .snapshot import Snapshot, Who
from .writes import Kind, Own, Seen, Write

if TYPE_CHECKING:
    from .leader_reentry import Proof


class Look(NamedTuple):
    """What is known of checkpoints since newcomers to ``round`` were seen: the newest step then, and if it grew."""

    round: Round
    pending: bool = True  # an answer is on its way
    first: int | None = None
    newer: bool = False


@dataclass(frozen=True, slots=True)
class Leader:
    """What the leader holds: its picture, and since when it has waited."""

    own: Own
    limits: Limits
    view: Snapshot
    token: int = 0
    busy: int = -1  # the job revision that a write under way acted on; -1 = none
    writing: Kind | None = None  # the row of that write
    phase: tuple[Phase, Round] | None = None
    since: float = 0.0  # when this phase was first seen
    enough_since: float | None = None  # when min nodes were first ready
    asked: tuple[str, Round] | None = None  # a judgement or resume point under way
    concluded: Concluded | None = None
    resumed: Resumed | None = None
    agreement: Agreement = Agreement()  # of the nodes on that
    barred: frozenset[str] = frozenset()  # hosts in quarantine
    arrived: tuple[tuple[Who, float], ...] = ()  # since when those have stood by who are no members
    look: Look | None = None  # at checkpoints
    proof: Proof | None = None  # of the running round's re-entry
    owing: Owing = ()  # blamed nodes that are ready and have not said how their check ended, since when
    stamps: Stamps = field(default_factory=Stamps)


Decision = tuple[Leader, tuple[Action, ...]]


def submit(s: Leader, seen: Seen, write: Write) -> Decision:
    """Make a write; no other is made while it is under way."""
    return replace(s, busy=seen.mod, writing=write.kind), (Submit(write),)
