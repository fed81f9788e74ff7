"""Events and actions of the job machine: plain values, each with when or why. See ``leader.py``.

``agent/leading.py`` carries the actions out and answers with events; ``agent/judge.py`` and ``agent/reentry.py`` think.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple

from .admission import Admit
from .asked import Asked, Held
from .gate import NOBODY, Blame
from .membership import Order
from .records import Job, NodeId, Outcome, ResumePoint, Roster, Round
from .reentered import Reentered
from .snapshot import Report
from .store import Range, TxnResult, WatchBatch
from .writes import Charge, Kind, Write


class Limits(NamedTuple):
    """How long the leader waits, in seconds on its own clock, and what the launch wants of it."""

    last_call_s: float  # after min nodes are ready, for more to come (torchrun: 30)
    join_timeout_s: float  # for min nodes to be ready at all (torchrun: 600)
    gather_s: float  # after a failure, for every living member's evidence: a dead one's lease is gone by then
    admit: Admit = Admit.RESTART
    admit_after_s: float = 60.0  # a round must have run for so long before it is ended for a newcomer
    order: Order = Order.STICKY
    grace_s: float = (
        0.0  # … and so much longer: ranks that do not end are given it, and their words come after their end
    )
    stop_s: float = 600.0  # for a member whose lease lives to prove its ranks dead: longer than any grace
    check_s: float = 130.0  # for a blamed node to say how its check ended: longer than any check
    look_s: float = 605.0  # for the others to say whether they can load a checkpoint: longer than their own time for it


# --- events ---------------------------------------------------------------------------------------------------------
class Elected(NamedTuple):
    """The leader key is ours; ``found`` is a linearizable range of the run's prefix, read after that."""

    at: float
    token: int
    found: Range


class Changed(NamedTuple):
    at: float
    batch: WatchBatch


class Concluded(NamedTuple):
    """The judgement on a round that was asked for by ``Conclude``."""

    at: float
    round: Round
    retry: bool
    charge: Charge
    outcome: Outcome  # of the launch, if it is not retried (or is done)
    record: bytes  # the attempt record
    done: bool = False  # it was asked because every rank had exited 0
    barred: str = ""  # the host that was put in quarantine over it
    blame: Blame = NOBODY
    pause_s: int = 0  # before the next round begins to form
    suspect: ResumePoint = ResumePoint()  # where the round had re-entered, if that is to be passed over from now on


class Resumed(NamedTuple):
    """The resume point of a round; ``outcome`` instead when the hook failed and the job must not go on."""

    at: float
    round: Round
    point: ResumePoint
    refused: tuple[tuple[str, str], ...] = ()
    outcome: Outcome | None = None
    wall: float = 0.0  # wall clock at the choice, for people
    question: Asked | None = None  # what the other members are asked, if there is anything to ask
    held: Held = Held()  # what of it lies on this node, where the question is about parts
    world: int = 0  # ranks of the round that it was looked for, where what is whole depends on that


class Wrote(NamedTuple):
    """The answer to a ``Submit``; None = unknown: it may have been applied, or still be."""

    at: float
    kind: Kind
    result: TxnResult | None


class CheckpointSeen(NamedTuple):
    """Answer to AwaitCheckpoint: the newest committed step, -1 when there is none; None = it could not be looked at."""

    at: float
    round: Round
    step: int | None


class ProofSeen(NamedTuple):
    """Answer to Prove: the step of a newer checkpoint that has been verified; None = there is none yet."""

    at: float
    round: Round
    step: int | None


class Barred(NamedTuple):
    """The hosts that are in quarantine: their nodes are not chosen for a round."""

    at: float
    hosts: frozenset[str]


class Tick(NamedTuple):
    at: float


Event = Elected | Changed | Concluded | Resumed | Wrote | CheckpointSeen | ProofSeen | Barred | Tick


# --- actions --------------------------------------------------------------------------------------------------------
class Submit(NamedTuple):
    write: Write


class Stamps(NamedTuple):
    """When this leader saw what, in seconds of its own clock; None when it was not leading then."""

    failed: float | None = None  # the round before began to be stopped
    forming: float | None = None
    formed: float | None = None
    started: float | None = None
    stopping: float | None = None
    gathered: float | None = None


class Conclude(NamedTuple):
    """Judge how round ``round`` ended, and what it costs."""

    round: Round
    job: Job
    roster: Roster
    evidence: tuple[tuple[NodeId, Report], ...]
    lost: tuple[NodeId, ...]
    all_started: bool
    done: bool
    history: tuple[tuple[Round, bytes], ...]
    stamps: Stamps
    reason: str
    reentered: Reentered | None = None  # all members say that their ranks went on from where the round resumed
    verified: int | None = None  # the step of the first newer checkpoint, which this leader has verified since


class SelectResume(NamedTuple):
    """Choose where round ``round`` re-enters: all ranks of earlier rounds are dead."""

    round: Round
    attempt: int
    roster: Roster
    history: tuple[tuple[Round, bytes], ...]
    reason: str
    against: tuple[tuple[str, str], ...] = ()  # checkpoints that are suspect, or other nodes cannot load, and why
    within: tuple[str, ...] | None = None  # if given, it must be one of these
    hints: tuple[tuple[str, int, NodeId], ...] = ()  # what others have, and was not seen: to be waited for a little
    below: tuple[int, str] | None = None  # if given, its step must be below that, for the reason given


class AwaitCheckpoint(NamedTuple):
    """Look for the newest committed step: at once, or ``again`` after a few seconds."""

    round: Round
    again: bool
    reason: str


class Prove(NamedTuple):
    """Look for a checkpoint above step ``above`` and verify it, after ``before`` looks in vain."""

    round: Round
    attempt: int
    world: int  # ranks of the round
    above: int
    said: Reentered
    history: tuple[tuple[Round, bytes], ...]
    before: int
    reason: str


class Wake(NamedTuple):
    """Send a Tick at ``at``, with the reason of the wait; the shell shows it when it changes."""

    at: float
    reason: str


class Depose(NamedTuple):
    """The leader key is somebody else's or gone: stop leading."""

    reason: str


class Abandon(NamedTuple):
    """Nobody can lead this run any further: this agent must end, for the reason given."""

    reason: str


Action = Submit | Conclude | SelectResume | AwaitCheckpoint | Prove | Wake | Depose | Abandon
