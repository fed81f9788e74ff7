"""Events and actions of the node machine: plain values, each with when or why. See ``node.py``."""

from __future__ import annotations

from dataclasses import dataclass

from ..health.evidence import Fact
from ..rendezvous.records import Incarnation, Job, Roster, Round
from ..rendezvous.store import KeyValue, TxnResult
from ..rendezvous.writes import Kind, Write


# --- events: ``at`` is CLOCK_BOOTTIME in seconds ----------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Granted:
    """Answer to Grant; 0 = the store did not answer."""

    at: float
    inc: Incarnation


@dataclass(frozen=True, slots=True)
class Rereading:
    """Answer to Reread: ``job``, ``leader`` and ``nodes/me`` at one revision; ``found`` False = no answer."""

    at: float
    found: bool
    revision: int = 0
    job: KeyValue | None = None
    node: KeyValue | None = None
    leader: KeyValue | None = None


@dataclass(frozen=True, slots=True)
class JobSeen:
    at: float
    kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    at: float
    kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class RosterRead:
    """Answer to ReadRoster; ``roster`` None with ``found`` = that round is over already."""

    at: float
    round: Round
    roster: Roster | None
    found: bool = True


@dataclass(frozen=True, slots=True)
class Wrote:
    """Answer to Submit by incarnation ``inc``; ``result`` None = unknown, it may have been applied or still be."""

    at: float
    kind: Kind
    round: Round
    inc: Incarnation
    result: TxnResult | None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The store says that the lease is gone."""

    at: float


@dataclass(frozen=True, slots=True)
class PortReserved:
    at: float
    round: Round
    address: str


@dataclass(frozen=True, slots=True)
class PortFailed:
    at: float
    round: Round
    what: str


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """A signal, the keeper's end, or the command asks this node to leave."""

    at: float
    signal: int


@dataclass(frozen=True, slots=True)
class Collected:
    """Answer to Collect: the round's facts with last lines and error files, as bytes for the store."""

    at: float
    round: Round
    words: bytes


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


@dataclass(frozen=True, slots=True)
class Started:
    """The guardian has forked every rank."""

    at: float
    round: Round


@dataclass(frozen=True, slots=True)
class Refused:
    """The guardian would not start the ranks: another incarnation, or past the fence."""

    at: float
    round: Round
    reason: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    at: float
    round: Round
    local_rank: int
    errno: int
    program: str


@dataclass(frozen=True, slots=True)
class Exited:
    at: float
    round: Round
    local_rank: int
    status: int
    pid: int


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """Proof of death after a Kill; ``survivors`` are processes that SIGKILL did not end in time."""

    at: float
    round: Round
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FencedHere:
    """The guardian killed all ranks at the deadline, with proof; ``round`` 0 when it had none."""

    at: float
    round: Round
    inc: Incarnation


@dataclass(frozen=True, slots=True)
class GuardianLost:
    """The guardian is dead; its ranks died with it and the agent has swept the rest, with proof."""

    at: float
    round: Round


RankEvent = Started | Refused | StartFailed | Exited | NothingLeft | FencedHere | GuardianLost
Event = (
    Granted
    | Rereading
    | JobSeen
    | LeaderSeen
    | RosterRead
    | Wrote
    | LeaseLost
    | PortReserved
    | PortFailed
    | LeaveAsked
    | Collected
    | Tick
    | RankEvent
)


# --- actions ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Grant:
    """Get a new lease: a new incarnation."""


@dataclass(frozen=True, slots=True)
class Reread:
    """Read ``job``, ``leader`` and ``nodes/me`` at one revision."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch ``job`` and ``leader`` from ``revision`` on; replaces an earlier watch."""

    revision: int


@dataclass(frozen=True, slots=True)
class Submit:
    write: Write


@dataclass(frozen=True, slots=True)
class RevokeOld:
    """Revoke the lease of an earlier agent of this same machine, which is dead and swept."""

    inc: Incarnation
    reason: str


@dataclass(frozen=True, slots=True)
class ReadRoster:
    round: Round


@dataclass(frozen=True, slots=True)
class ReservePort:
    round: Round


@dataclass(frozen=True, slots=True)
class Start:
    """Start this node's ranks of ``round``; ``index`` is the node's place in the roster."""

    round: Round
    roster: Roster
    index: int
    job: Job


@dataclass(frozen=True, slots=True)
class Terminate:
    """Signal the rank processes, and only them: what they started must live until they have saved."""

    round: Round
    signal: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL everything of this node's ranks, drop queued starts, and prove it: NothingLeft."""

    round: Round
    reason: str


@dataclass(frozen=True, slots=True)
class AcknowledgeFence:
    inc: Incarnation


@dataclass(frozen=True, slots=True)
class Collect:
    """Add last lines and error files to the facts of ``round``: its ranks are dead."""

    round: Round
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Lead:
    """This agent holds the leader key with ``token``: run the job machine."""

    token: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Send a Tick at ``at``."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
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
    | Kill
    | AcknowledgeFence
    | Collect
    | Lead
    | Wake
    | Exit
)
