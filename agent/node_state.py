"""The state of the node machine: one frozen value. See ``node.py`` for what is decided from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ..health.evidence import Fact, Left
from ..health.observed import Early
from ..rendezvous.asked import Sight
from ..rendezvous.keys import Keys
from ..rendezvous.records import Cause, Incarnation, Job, Node, NodeId, Phase, Roster, Round
from ..rendezvous.store import KeyValue
from ..rendezvous.writes import Own, Seen

if TYPE_CHECKING:
    from ..rendezvous.mirrored import Mirrored


class Ranks(Enum):
    """What is known of this node's ranks, from the guardian."""

    NONE = "proven dead"
    LIVE = "started, or told to start"
    DYING = "being stopped"


class About(Enum):
    """About what a scheduler was asked."""

    NOTHING = "nothing yet"
    NOTICE = "a notice"
    TERM = "SIGTERM"


class Kept(NamedTuple):
    """What stands beside the checkpoints, for a run that the store does not know; or why that cannot be told."""

    run: Mirrored | None = None
    refused: str = ""
    code: int = 0  # what the command returns then


class Settings(NamedTuple):
    """What does not change in the life of an agent."""

    keys: Keys
    node: NodeId
    record: Node  # own record with inc and ready 0
    begin: Job  # the job record that this launch begins with, when there is none
    fresh: bool
    grace_s: float  # from SIGTERM to SIGKILL
    patience_s: float  # how long a store that cannot be reached is waited for
    held_s: float = 17.0  # how long a node name that another machine holds is waited for: a lease, and some
    stall_s: float = 86400.0  # how long the run may stand where a leader must take it on: above all that one waits for
    terms: tuple[tuple[str, str], ...] = ()  # what all nodes must be given alike: (what, value) in words
    master: tuple[str, int] | None = None  # where rank 0's store is in every round (static)
    kept: Kept = Kept()
    asks: bool = False  # there is a scheduler that knows why a signal came, and how much time is left
    reserve_s: float = 0.0  # that the end itself takes once the ranks were killed: their death, checkpoint, records


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node at one moment; see ``_advance`` for how the fields are read."""

    settings: Settings
    inc: Incarnation = Incarnation(0)  # our lease; 0 = none
    mod: int = 0  # revision of nodes/me; 0 = not joined
    ready: Round = Round(0)
    job: Seen | None = None
    seen: Round = Round(0)  # newest round ever seen in the job record; kept when the lease is lost
    launch: str = ""  # the launch that this agent has taken part in; kept when the lease is lost
    leader: KeyValue | None = None
    leader_at: int = 0  # the revision of that
    leading: int = 0  # token under which this agent was told to lead; 0 = not
    stands_since: float = 0.0  # since when the job has stood where it stands
    roster: Roster | None = None  # of the last round that was read
    ranks: Ranks = Ranks.NONE
    round: Round = Round(0)  # last round that this agent told its guardian to start; never started again
    index: int = 0  # group rank in ``round``
    started_at: float = 0.0
    alive: frozenset[int] = frozenset()  # local ranks of ``round`` not known to have ended
    facts: tuple[Fact, ...] = ()
    broken: Cause | None = None  # own ranks of ``round`` failed, were fenced, …: it must be stopped
    stopped: bool = False  # this node has begun to stop ``round``
    alarm: Early | None = None  # why ``round`` is to end although none of its ranks here has ended
    alarm_at: float = 0.0  # … and when
    more_alarms: tuple[tuple[Early, float], ...] = ()  # later ones with their times, should that one be withdrawn
    inspected: Round = Round(0)  # the round whose living ranks were looked at
    inspect_by: float = 0.0  # until then they are not told to end; 0 = that look is over
    kill_at: float = 0.0  # end of the grace; 0 = no grace running
    told: bool = True  # the collected evidence of ``round`` is in the store (or is not wanted)
    words: bytes = b""  # collected evidence, on its way
    finished: bool = False  # every rank of ``round`` exited 0
    recorded: bool = False  # … and the store has it
    reported: bool = True  # started(round) is in the store
    reentered: bytes = b""  # how its ranks go on from a checkpoint, until the store has it
    port: tuple[Round, str] | None = None
    checking: Round = Round(0)  # the round after which its check is under way; 0 = none is
    checked: Round = Round(0)  # the newest round that this node was blamed for and has been checked after
    unfit: str = ""  # … and why that failed
    told_check: tuple[Round, str] = (Round(0), "")  # what the store has of these two
    looking: tuple[int, int, int] = (0, 0, 0)  # round and mark of the last question about a checkpoint
    sight: Sight | None = None  # … and the answer, until the store has it
    saying: tuple[int, int, int] = (0, 0, 0)  # the question that the last write of an answer is about
    leaving: Left | None = None
    leave_by: float = 0.0
    insisted_at: float = 0.0  # when SIGINT or SIGTERM last asked for it; 0 = not yet
    noticed: bool = False  # this agent was given notice
    notice_signal: int = 0  # … by this signal
    asked: About = About.NOTHING  # what the scheduler was asked about last
    answer_by: float = 0.0  # until then this node does not end without the answer; 0 = none is waited for
    why_ended: str = ""  # why the scheduler ends the job, in its words
    term_by: float = 0.0  # when ranks that still run are told to end, so that all is over in time; 0 = no limit known
    kill_by: float = 0.0  # … and killed
    ends_at: float = 0.0  # when the scheduler kills
    told_of: Round = Round(0)  # the round whose ranks here have been told of a notice
    pending: frozenset[str] = frozenset()
    not_before: float = 0.0  # no write or read before this time: pause after an unknown outcome
    away_since: float | None = None  # under hold: since when the store has been silent and no rank has lived
    out_since: float = 0.0  # since when this agent has been without a lease
    holder: KeyValue | None = None  # another machine's agent that holds this node's name
    held_since: float = 0.0
    campaign_at: float = 0.0
    told_early: Round = Round(0)  # in which it was told that some ranks left and others did not
    waits: tuple[Phase, Round] | None = None  # where this node has last said what it waits for
    exiting: bool = False

    @property
    def own(self) -> Own:
        return Own(self.settings.node, self.inc)

    @property
    def joined(self) -> bool:
        return self.inc != 0 and self.mod != 0

    @property
    def member(self) -> bool:
        """Is this incarnation a member of the running round in view?"""
        roster = self._running()
        return roster is not None and roster.place(self.settings.node, self.inc) is not None

    @property
    def apart(self) -> bool:
        """Is the running round in view known to run without this incarnation?"""
        return self._running() is not None and not self.member

    def _running(self) -> Roster | None:
        if self.job is None or self.job.job.phase is not Phase.RUNNING or self.roster is None:
            return None
        return self.roster if self.roster.round == self.job.job.round else None
