"""How the node machine takes an event in: the first half of ``node.step``. Pure.

Nothing is decided here beyond what the event itself says; a write whose outcome is unknown is followed by a re-read.
"""

from __future__ import annotations

from ..health.evidence import Fact, Fault, Fenced, GuardianDied, Left, RankExit, StartError, Told
from ..health.observed import SILENCE, Early
from ..rendezvous.errors import BadRecord
from ..rendezvous.records import Cause, Incarnation, Job, Round, decode_job, decode_node, decode_roster
from ..rendezvous.replacing import replace
from ..rendezvous.snapshot import opened
from ..rendezvous.store import KeyValue, TxnResult
from ..rendezvous.writes import Kind, Seen
from .node_enter import AGAIN_S, UNKNOWN, Step, end, enter, later, refused
from .node_limit import limited
from .node_state import NodeState, Ranks
from .node_words import (
    AcknowledgeFence,
    Action,
    Alarmed,
    Checked,
    Collected,
    Event,
    Exit,
    Exited,
    FencedHere,
    Granted,
    GuardianLost,
    Inspected,
    JobSeen,
    Kill,
    LeaderSeen,
    LeaseLost,
    LeaveAsked,
    Limited,
    Looked,
    NothingLeft,
    NoticeGiven,
    PortFailed,
    PortReserved,
    RankEvent,
    Reentered,
    Refused,
    Reread,
    Rereading,
    RosterRead,
    Started,
    StartFailed,
    StoreAway,
    StoreBack,
    Tell,
    Tick,
    Watch,
    Withdrawn,
    Wrote,
)

LAST_WORDS_S = 10.0  # for a leaving node to tell the store, once its ranks are dead: schedulers kill after 30 s
INSISTS = (2, 15)  # SIGINT, SIGTERM
SAME_S = 1.0  # srun and systemd signal every process of a job: agent and keeper, which passes its own on
HURRY_S = 3.0  # what a second one leaves of the grace
MOST_ALARMS = 8  # that are kept beside the first one
STAGGER_S = 0.02  # between campaigns of successive ranks, so that few transactions meet


def take(s: NodeState, event: Event) -> Step:
    match event:
        case Granted(inc=inc):
            s = _done(s, "grant")
            return (later(s, event.at) if inc == 0 else replace(s, inc=inc, mod=0)), ()
        case Rereading():
            return _reread(s, event)
        case JobSeen(kv=None):
            why = "somebody has deleted the job record in the store: the outcome of the job is unknown"
            return end(s, why, UNKNOWN)
        case JobSeen(kv=kv):
            return _job(s, kv, event.at), ()
        case LeaderSeen(kv=kv, revision=revision):
            return _leader(s, kv, event.at, revision), ()
        case RosterRead():
            return _roster(_done(s, "roster"), event), ()
        case Wrote():
            return _wrote(s, event)
        case LeaseLost():
            return _lease_lost(s, event.at), ()
        case StoreAway():
            return replace(s, away_since=event.at), ()
        case StoreBack():
            return replace(s, away_since=None), ()
        case PortReserved(round=n, address=address):
            return replace(_done(s, "port"), port=(n, address)), ()
        case PortFailed(round=n, what=what):
            s = _done(s, "port")
            if s.job is None or s.job.job.round != n:
                return s, ()
            cls = "rdzv_closed" if s.settings.master else "port_in_use"  # a port that is given stays what it is
            return _break(replace(s, round=n, facts=(), told=False, broken=None), "failed", Fault(what, cls)), ()
        case LeaveAsked(signal=signal, why=why):
            if s.leaving is not None:
                return _again(s, event), ()
            by = event.at + s.settings.grace_s + LAST_WORDS_S
            left = Left(signal, why)
            facts = s.facts if s.ranks is Ranks.NONE else (*s.facts, left)
            insisted_at = event.at if signal in INSISTS else 0.0
            return replace(s, leaving=left, leave_by=by, insisted_at=insisted_at, facts=facts), ()
        case NoticeGiven(signal=signal):
            return replace(s, noticed=True, notice_signal=s.notice_signal or signal), ()
        case Limited():
            return limited(s, event)
        case Collected(round=n, words=words):
            wanted = n == s.round and "collect" in s.pending  # not what an earlier incarnation had asked for
            return (replace(_done(s, "collect"), words=words) if wanted else _done(s, "collect")), ()
        case Checked(round=n, unfit=unfit):
            wanted = n == s.checking  # not one that a start or a later blame has ended
            return (replace(s, checking=Round(0), checked=n, unfit=unfit) if wanted else s), ()
        case Looked(round=n, sight=sight):
            wanted = s.looking == (n, *sight.mark)  # not what an earlier leader, or incarnation, had asked
            return (replace(s, sight=sight) if wanted else s), ()
        case Tick():
            return s, ()
        case _:
            return _ranks(s, event)


def _again(s: NodeState, event: LeaveAsked) -> NodeState:
    """Shorten the grace when a person or a scheduler insists; the same signal by a second way is no second one."""
    if event.signal not in INSISTS or (s.insisted_at and event.at < s.insisted_at + SAME_S):
        return s
    if not s.insisted_at:
        return replace(s, insisted_at=event.at)
    soon = event.at + HURRY_S
    kill_at = min(s.kill_at, soon) if s.kill_at else 0.0
    return replace(s, insisted_at=event.at, kill_at=kill_at, leave_by=min(s.leave_by, soon + LAST_WORDS_S))


def _ranks(
    s: NodeState,
    event: RankEvent,
) -> Step:
    acknowledge = (AcknowledgeFence(event.inc),) if isinstance(event, FencedHere) else ()
    if s.ranks is Ranks.NONE or (event.round != s.round and not isinstance(event, GuardianLost)):
        return s, acknowledge
    since = event.at - s.started_at
    match event:
        case Started():
            return replace(s, reported=False), ()
        case Refused(reason=reason):
            # Some may have been forked before the deadline passed: only a kill proves that none lives.
            s = _break(replace(s, ranks=Ranks.DYING, stopped=True, alive=frozenset()), "failed", Fault(reason))
            return s, (Kill(s.round, reason),)
        case StartFailed(local_rank=local, errno=errno, program=program):
            s = replace(s, alive=s.alive - {local})
            return _break(s, "failed", StartError(_rank(s, local), local, errno, program)), ()
        case Exited(local_rank=local) if local not in s.alive:
            return s, ()
        case Exited(local_rank=local, status=status, pid=pid):
            s = replace(s, alive=s.alive - {local})
            fact = RankExit(_rank(s, local), local, pid, status, since, stopping=s.stopped)
            if status == 0 and not s.stopped:
                s = replace(s, facts=(*s.facts, fact), finished=not s.alive and s.broken is None)
                return _exited_well(s, fact.rank)
            return (replace(s, facts=(*s.facts, fact)) if s.stopped else _break(s, "failed", fact)), ()
        case Alarmed(why=why, window_s=window_s):
            if s.ranks is not Ranks.LIVE or s.broken is not None or s.finished:
                return s, ()  # the round ends anyway
            more = (*s.more_alarms, (why, event.at + window_s))
            if s.alarm is not None:  # the first one counts
                return replace(s, more_alarms=more[:MOST_ALARMS]), ()
            told = Tell(f"{why.why}; the round ends in {window_s:g} s, unless it goes on")
            return replace(s, alarm=why, alarm_at=event.at + window_s, facts=(*s.facts, why)), (told,)
        case Withdrawn(why=why):
            return _withdraw(s, why)
        case Inspected():
            return replace(s, inspect_by=0.0), ()
        case Reentered(words=words):
            return replace(s, reentered=words), ()
        case NothingLeft(survivors=survivors):
            if survivors:
                pids = ", ".join(str(p) for p in survivors)
                s = replace(s, exiting=True)
                return s, (Exit(UNKNOWN, f"processes {pids} do not die from SIGKILL; reboot this node", False),)
            away = None if s.away_since is None else event.at  # patience begins when no rank lives
            return replace(s, ranks=Ranks.NONE, alive=frozenset(), kill_at=0.0, away_since=away), ()
        case FencedHere():
            s = replace(s, ranks=Ranks.NONE, alive=frozenset(), kill_at=0.0)
            return (s if s.finished else _break(s, "fenced", Fenced(since))), acknowledge
        case GuardianLost():
            s = replace(s, ranks=Ranks.DYING, stopped=True, alive=frozenset(), kill_at=0.0)
            s = s if s.finished else _break(s, "guardian", GuardianDied(since))
            return s, (Kill(s.round, "its guardian died: no start of this round may still be on its way"),)


def _rank(s: NodeState, local: int) -> int:
    return local if s.roster is None or s.roster.round != s.round else s.roster.first_rank(s.index) + local


def _break(s: NodeState, kind: str, fact: Fact) -> NodeState:
    cause = s.broken or Cause(kind, s.settings.node, s.inc)
    return replace(s, facts=(*s.facts, fact), broken=cause, finished=False)


def _exited_well(s: NodeState, rank: int) -> Step:
    """Forget what a rank that exited 0 gave cause for: that outranks whatever it wrote. Silence is the others', too."""
    told: list[Action] = []
    for why in (s.alarm, *(why for why, _ in s.more_alarms)):
        if why is not None and why.rank == rank and why.sign != SILENCE:
            s, out = _withdraw(s, why, "exited 0")
            told += out
    return s, tuple(told)


def _withdraw(s: NodeState, why: Early, done: str = "goes on") -> Step:
    """Forget an alarm while its window lasts; the next one takes its place, with its own time."""
    if s.alarm != why or s.ranks is not Ranks.LIVE or s.broken is not None:
        return replace(s, more_alarms=tuple(one for one in s.more_alarms if one[0] != why)), ()
    facts = tuple(fact for fact in s.facts if fact != why)
    told = Tell(f"rank {why.rank} {done}: its alarm is withdrawn")
    if not s.more_alarms:
        return replace(s, alarm=None, alarm_at=0.0, facts=facts, inspected=Round(0)), (told,)
    (alarm, at), *more = s.more_alarms
    return replace(s, alarm=alarm, alarm_at=at, more_alarms=tuple(more), facts=(*facts, alarm)), (told, Tell(alarm.why))


def _done(s: NodeState, what: str) -> NodeState:
    return replace(s, pending=s.pending - {what})


def _job(s: NodeState, kv: KeyValue | None, at: float) -> NodeState:
    if kv is None or (s.job is not None and (kv.mod_revision <= s.job.mod or s.job.job.phase.over)):
        return s  # an end that was seen stays the end: what a next launch does with the run is not for this agent
    job = opened(kv, decode_job)
    if job.round < s.seen or job.formed < s.round:
        was, ran = f"round {s.seen} had been reached", f"round {s.round} had run here"
        raise BadRecord(f"{kv.key} says round {job.round}, the last formed {job.formed}; {ran if s.round else was}")
    before = s.job.job if s.job else None
    if before is None or _stand(before) != _stand(job):
        s = replace(s, stands_since=at)
    return replace(s, job=Seen(job, kv.mod_revision), launch=s.launch or job.launch, seen=job.round)


def _stand(job: Job) -> tuple[object, ...]:
    """Return where a job stands: a leader that asks about one checkpoint after another takes it on."""
    return (job.phase, job.round, job.master, job.asked)


def _roster(s: NodeState, event: RosterRead) -> NodeState:
    """Take the roster of a round in. When there is none, that round is over, and ``job`` has changed since."""
    if event.found and event.roster is not None:
        roster = opened(event.roster, decode_roster)
        if roster.round != event.round:
            raise BadRecord(f"{event.roster.key}: it is that of round {roster.round}")
        return replace(s, roster=roster)
    if event.found and s.job is not None and s.job.mod == event.job_mod and s.job.job.round == event.round:
        raise BadRecord(f"{s.settings.keys.roster(event.round)} is missing: who runs in that round")
    return later(s, event.at)


def _leader(s: NodeState, kv: KeyValue | None, at: float, revision: int) -> NodeState:
    if revision < s.leader_at:
        return s  # an answer that the watch has overtaken: nobody would say again that this leader has gone
    s = replace(s, leader_at=revision)
    if kv is None and s.leader is not None:
        place = s.index if s.round else 0
        s = replace(s, campaign_at=at + STAGGER_S * place)
    if kv is None or kv.lease != s.inc:
        s = replace(s, leading=0)
    return replace(s, leader=kv)


def _lease_lost(s: NodeState, at: float) -> NodeState:
    """A new lease is a new incarnation: the old view is thrown away (hole 3); what was started stays started."""
    if s.inc == 0:
        return s
    return replace(
        s,
        inc=Incarnation(0),
        mod=0,
        ready=Round(0),
        checking=Round(0),
        checked=Round(0),
        unfit="",
        told_check=(Round(0), ""),
        looking=(0, 0, 0),
        sight=None,
        job=None,
        leader=None,
        leader_at=0,
        leading=0,
        roster=None,
        port=None,
        told=True,
        words=b"",
        reported=True,
        recorded=True,
        reentered=b"",
        pending=frozenset(),
        away_since=None,
        out_since=at,
    )


def _ask_again(s: NodeState) -> Step:
    return replace(s, pending=s.pending | {"reread"}), () if "reread" in s.pending else (Reread(),)


def _reread(s: NodeState, event: Rereading) -> Step:
    if "reread" not in s.pending:
        return s, ()  # asked by an earlier incarnation, or answered already: it must not join twice, or without a lease
    s = _done(s, "reread")
    if not s.inc:
        return s, ()
    if not event.found:  # the store may be away, and what leases live then begin anew
        return later(replace(s, holder=None), event.at), ()
    if event.node is not None and event.node.lease == s.inc != 0:
        first = not s.joined
        if first and not s.launch and (no := refused(s, event.terms)) is not None:
            return no  # another launch has begun since its join was sent, and it was let into the one before
        own = opened(event.node, decode_node)
        s = replace(s, mod=event.node.mod_revision, ready=own.ready, told_check=(own.checked, own.unfit))
        s = _leader(_job(s, event.job, event.at), event.leader, event.at, event.revision)
        return s, (Watch(event.revision + 1),) if first else ()
    if s.joined:
        return _lease_lost(s, event.at), ()
    return enter(s, event)


def _wrote(s: NodeState, event: Wrote) -> Step:
    kind, result = event.kind, event.result
    if event.inc != s.inc:
        return s, ()  # the answer to an earlier incarnation's write
    s = _done(s, kind.value)
    if result is None:
        s = later(s, event.at)
        if kind in (Kind.JOIN, Kind.READY, Kind.CHECKED, Kind.STOP, Kind.MASTER, Kind.NOTICE):
            return _ask_again(s)
        if kind is Kind.LEAD:
            s = replace(s, campaign_at=event.at + AGAIN_S)
        return s, ()
    if not result.succeeded:
        return _guarded(s, event, result)
    match kind:
        case Kind.JOIN:
            job, leader = result.ranges
            s = _job(replace(s, mod=result.revision), job.one(), event.at)
            s = _leader(s, leader.one(), event.at, result.revision)
            return s, (Watch(result.revision + 1),)
        case Kind.STOP | Kind.MASTER | Kind.NOTICE:
            s = _job(s, result.ranges[0].one(), event.at)
            if kind is Kind.STOP and event.round == s.round:
                s = replace(s, facts=(*s.facts, Told(event.at - s.started_at)))
        case Kind.LEAD:
            s = replace(s, campaign_at=event.at + AGAIN_S)  # the watch will show the key: do not ask again before
        case Kind.READY:
            s = replace(s, mod=result.revision, ready=max(s.ready, event.round))
        case Kind.LOOKED if s.saying == s.looking:
            s = replace(s, sight=None)
        case Kind.CHECKED:
            s = replace(s, mod=result.revision, told_check=(s.checked, s.unfit))
        case Kind.EVIDENCE if event.round == s.round:
            s = replace(s, told=True, words=b"")
        case Kind.FINISHED if event.round == s.round:
            s = replace(s, recorded=True)
        case Kind.STARTED if event.round == s.round:
            s = replace(s, reported=True)
        case Kind.REENTERED if event.round == s.round:
            s = replace(s, reentered=b"")
        case _:
            pass
    return s, ()


def _guarded(s: NodeState, event: Wrote, result: TxnResult) -> Step:
    """A guard did not hold: take what was read instead; without a change of ``job`` it was the lease."""
    match event.kind:
        case Kind.JOIN | Kind.READY | Kind.CHECKED | Kind.LEAD:
            again = event.at + AGAIN_S if event.kind is Kind.LEAD else s.campaign_at
            return _ask_again(replace(s, campaign_at=again))
        case Kind.STOP | Kind.MASTER | Kind.NOTICE | Kind.LOOKED:
            before = s.job
            s = _job(s, result.ranges[0].one(), event.at)
            if s.job is before:
                return _ask_again(s)
            return s, ()
        case _:
            return _lease_lost(s, event.at), ()
