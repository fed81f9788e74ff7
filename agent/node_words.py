"""Events and actions of the node machine: plain values, each with when or why. See ``node.py``.

All of them stand here: whoever reads the machine, or plays it, looks its whole vocabulary up in one place.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple

from ..health.evidence import Fact
from ..health.observed import Early
from ..rendezvous.asked import Asked, Sight
from ..rendezvous.records import Incarnation, Job, Roster, Round
from ..rendezvous.store import KeyValue, TxnResult
from ..rendezvous.writes import Kind, Write


# --- events: ``at`` is CLOCK_BOOTTIME in seconds ----------------------------------------------------------------------
class Granted(NamedTuple):
    """Answer to Grant; 0 = the store did not answer."""

    at: float
    inc: Incarnation


class Rereading(NamedTuple):
    """Answer to Reread: four keys at one revision; ``found`` False = no answer."""

    at: float
    found: bool
    revision: int = 0
    job: KeyValue | None = None
    node: KeyValue | None = None
    leader: KeyValue | None = None
    terms: KeyValue | None = None


class JobSeen(NamedTuple):
    at: float
    kv: KeyValue | None


class LeaderSeen(NamedTuple):
    """The leader key as it stood at ``revision``."""

    at: float
    kv: KeyValue | None
    revision: int


class RosterRead(NamedTuple):
    """Answer to ReadRoster: the roster's key and the revision of ``job`` at that time; ``found`` False = no answer."""

    at: float
    round: Round
    found: bool
    roster: KeyValue | None = None
    job_mod: int = 0


class Wrote(NamedTuple):
    """Answer to Submit by incarnation ``inc``; ``result`` None = unknown, it may have been applied or still be."""

    at: float
    kind: Kind
    round: Round
    inc: Incarnation
    result: TxnResult | None


class LeaseLost(NamedTuple):
    """The store says that the lease is gone."""

    at: float


class StoreAway(NamedTuple):
    """Ranks are held, and by now they would have been killed if they were not: the store is silent."""

    at: float


class StoreBack(NamedTuple):
    """It answers again."""

    at: float


class PortReserved(NamedTuple):
    at: float
    round: Round
    address: str


class PortFailed(NamedTuple):
    at: float
    round: Round
    what: str


class LeaveAsked(NamedTuple):
    """A signal, the keeper's end, or the command asks this node to leave; or it left the scheduler's hands: ``why``."""

    at: float
    signal: int
    why: str = ""


class NoticeGiven(NamedTuple):
    """A signal says that the job is to end soon: its ranks, on all nodes, are told so that they can save together."""

    at: float
    signal: int = 0


class Limited(NamedTuple):
    """Answer to AskLimit: why the scheduler ends the job, '' when it does not or has not said; what time is left."""

    at: float
    leaving: bool
    why: str
    left_s: float | None  # None: not known
    sentence: str = ""  # for people


class Collected(NamedTuple):
    """Answer to Collect: the round's facts with last lines and error files, as bytes for the store."""

    at: float
    round: Round
    words: bytes


class Checked(NamedTuple):
    """Answer to Check: why this node is unfit, '' when it may take part."""

    at: float
    round: Round
    unfit: str


class Looked(NamedTuple):
    """Answer to Look."""

    at: float
    round: Round
    sight: Sight


class Tick(NamedTuple):
    at: float


class Started(NamedTuple):
    """The guardian has forked every rank."""

    at: float
    round: Round


class Refused(NamedTuple):
    """The guardian would not start the ranks: another incarnation, or past the fence."""

    at: float
    round: Round
    reason: str


class StartFailed(NamedTuple):
    at: float
    round: Round
    local_rank: int
    errno: int
    program: str


class Exited(NamedTuple):
    at: float
    round: Round
    local_rank: int
    status: int
    pid: int


class Alarmed(NamedTuple):
    """A living rank wrote, or did not do, what says that the round cannot go on: it ends after ``window_s``."""

    at: float
    round: Round
    why: Early
    window_s: float  # in which ranks may leave their dumps


class Withdrawn(NamedTuple):
    """An alarm was none: the rank that had given cause goes on."""

    at: float
    round: Round
    why: Early


class Inspected(NamedTuple):
    """Answer to Inspect, found or not."""

    at: float
    round: Round


class Reentered(NamedTuple):
    """The ranks go on from where they resumed as they should; ``words``: how that shows, as bytes for the store."""

    at: float
    round: Round
    words: bytes


class NothingLeft(NamedTuple):
    """Proof of death after a Kill; ``survivors`` are processes that SIGKILL did not end in time."""

    at: float
    round: Round
    survivors: tuple[int, ...] = ()


class FencedHere(NamedTuple):
    """The guardian killed all ranks at the deadline, with proof; ``round`` 0 when it had none."""

    at: float
    round: Round
    inc: Incarnation


class GuardianLost(NamedTuple):
    """The guardian is dead; its ranks died with it and the agent has swept the rest, with proof."""

    at: float
    round: Round


RankEvent = (
    Started
    | Refused
    | StartFailed
    | Exited
    | Alarmed
    | Withdrawn
    | Inspected
    | Reentered
    | NothingLeft
    | FencedHere
    | GuardianLost
)
Event = (
    Granted
    | Rereading
    | JobSeen
    | LeaderSeen
    | RosterRead
    | Wrote
    | LeaseLost
    | StoreAway
    | StoreBack
    | PortReserved
    | PortFailed
    | LeaveAsked
    | NoticeGiven
    | Limited
    | Collected
    | Checked
    | Looked
    | Tick
    | RankEvent
)


# --- actions ----------------------------------------------------------------------------------------------------------
class Grant(NamedTuple):
    """Get a new lease: a new incarnation."""


class Reread(NamedTuple):
    """Read ``job``, ``nodes/me``, ``leader`` and ``terms`` at one revision."""


class Watch(NamedTuple):
    """Watch ``job`` and ``leader`` from ``revision`` on; replaces an earlier watch."""

    revision: int


class Submit(NamedTuple):
    write: Write


class RevokeOld(NamedTuple):
    """Revoke the lease of an earlier agent of this same machine, which is dead and swept."""

    inc: Incarnation
    pid: int
    start: str
    reason: str


class ReadRoster(NamedTuple):
    """Read the roster of ``round``, and ``job`` at the same revision."""

    round: Round


class ReservePort(NamedTuple):
    round: Round


class Start(NamedTuple):
    """Start this node's ranks of ``round``; ``place`` is the node's in the roster."""

    round: Round
    roster: Roster
    place: int
    job: Job


class Terminate(NamedTuple):
    """Signal the rank processes, and only them: what they started must live until they have saved."""

    round: Round
    signal: int
    reason: str
    softly: bool = False  # ranks that look at ``stop_requested()`` are not ended by it: they have time to save


class Notify(NamedTuple):
    """Tell the ranks that the job is to end soon. None is ended by that."""

    round: Round
    reason: str
    signal: int = 0  # by which this node knows; 0 = another node has said so


class AskLimit(NamedTuple):
    """Ask the scheduler about a notice, or a SIGTERM when this node is ``leaving`` for it: Limited."""

    leaving: bool


class Inspect(NamedTuple):
    """Look where the living ranks are, before they are told to end: Inspected."""

    round: Round
    reason: str


class Kill(NamedTuple):
    """SIGKILL everything of this node's ranks, drop queued starts, and prove it: NothingLeft."""

    round: Round
    reason: str


class AcknowledgeFence(NamedTuple):
    inc: Incarnation


class Collect(NamedTuple):
    """Add last lines and error files to the facts of ``round``: its ranks are dead."""

    round: Round
    facts: tuple[Fact, ...]
    failed: bool = True  # nobody had wanted its end: what there is to be known is kept


class Check(NamedTuple):
    """Check this node, which is blamed for the end of ``round``: Checked. A Start ends a check that is under way."""

    round: Round


class Look(NamedTuple):
    """Look whether this node can load the checkpoint that is asked about before ``round`` begins: Looked."""

    round: Round
    asked: Asked


class Lead(NamedTuple):
    """This agent holds the leader key with ``token``: run the job machine."""

    token: int


class Wake(NamedTuple):
    """Send a Tick at ``at``."""

    at: float
    reason: str


class Tell(NamedTuple):
    """Tell people on this node what it waits for, or has noticed."""

    sentence: str


class Exit(NamedTuple):
    """End the command with ``code``; ``revoke`` the lease first."""

    code: int
    sentence: str
    revoke: bool


Action = (
    Grant
    | Reread
    | Watch
    | Submit
    | RevokeOld
    | ReadRoster
    | ReservePort
    | Start
    | Terminate
    | Notify
    | AskLimit
    | Inspect
    | Kill
    | AcknowledgeFence
    | Collect
    | Check
    | Look
    | Lead
    | Wake
    | Tell
    | Exit
)
