"""The node machine: what one agent does with its ranks and may write to the store. Pure.

``step(state, event) -> (state, actions)``. Its view of the world is the ``job`` record in order; all it decides is
decided again from the state after each event, so a lost, late or doubled answer changes nothing but the time. The
guardian's word alone counts for what its ranks are doing. ``agent/loop.py`` carries out the actions.
"""

from __future__ import annotations

from ..health import wire
from ..health.evidence import Fact
from ..rendezvous import writes
from ..rendezvous.errors import BadRecord
from ..rendezvous.records import Cause, Phase, Round, unusable
from ..rendezvous.replacing import replace
from ..rendezvous.writes import Kind
from .node_answers import answer, look, undescribed, vouch
from .node_calls import free, submit
from .node_enter import NO_STORE, UNKNOWN, Step, end
from .node_limit import ask_limit, in_time, noticed, why_left
from .node_state import NodeState, Ranks, Settings
from .node_take import take
from .node_wait import early, give_up, placeless, stalled, waiting
from .node_words import (
    Action,
    Collect,
    Event,
    Exit,
    Grant,
    Inspect,
    Kill,
    Lead,
    Notify,
    ReadRoster,
    Reread,
    ReservePort,
    Start,
    Terminate,
    Wake,
)

SIGUSR1, SIGUSR2, SIGTERM = 10, 12, 15
PLANNED = ("leave", "admit")  # causes of a stop that leave every rank able to save
INSPECT_S = 2.0  # for a look at living ranks, before they are told to end


def begin(settings: Settings, at: float) -> Step:
    """Return the first state and the first actions of an agent that has proven its strays dead."""
    return _advance(NodeState(settings, out_since=at), at)


def step(s: NodeState, event: Event) -> Step:
    """Take one event; return the new state and what to do. What cannot be read in the store ends the agent."""
    if s.exiting:
        return s, ()
    try:
        s, first = take(s, event)
    except BadRecord as error:
        return end(s, unusable(error))
    s, then = _advance(s, event.at)
    return s, first + then


def _advance(s: NodeState, at: float) -> Step:
    """Decide all that can be decided now; every rule looks at the state alone."""
    out: list[Action] = []
    for rule in (
        _notice,
        ask_limit,
        in_time,
        _alarmed,
        _obsolete,
        _ladder,
        _leave,
        _unheard,
        _outside,
        _campaign,
        _report,
        _stop,
        answer,
        vouch,
        look,
        _enter_round,
        _over,
        placeless,
        waiting,
        stalled,
        early,
    ):
        if s.exiting:
            break
        s = rule(s, at, out)
    if s.not_before > at and not s.exiting:
        out.append(Wake(s.not_before, "a pause before the store is asked again"))
    return s, tuple(out)


def _alarmed(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """After an alarm: look at the ranks at once, end the round when its window is over; here and on every node."""
    if s.ranks is not Ranks.LIVE:
        return s
    job = s.job.job if s.job else None
    elsewhere = job is not None and job.round == s.round and job.cause is not None and job.cause.kind == "alarm"
    if (s.alarm is not None or elsewhere) and s.inspected != s.round:
        out.append(Inspect(s.round, s.alarm.why if s.alarm else "an alarm on another node"))
        s = replace(s, inspected=s.round, inspect_by=at + INSPECT_S)
    if s.alarm is None or s.broken is not None:
        return s
    if at < s.alarm_at:
        out.append(Wake(s.alarm_at, "time for the ranks to leave their dumps"))
        return s
    cause = Cause("alarm", s.settings.node, s.inc)
    return replace(s, broken=cause)


def _obsolete(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Ranks must go when their round is over, when they broke it, when we leave or have lost our lease."""
    if s.ranks is not Ranks.LIVE:
        return s
    job = s.job.job if s.job else None
    if not s.inc or s.finished:
        why = "every rank exited 0: its leftovers" if s.finished else "the lease is gone"
        out.append(Kill(s.round, why))
        return replace(s, ranks=Ranks.DYING, stopped=True)
    over = job is not None and (job.round > s.round or (job.round == s.round and job.phase is not Phase.RUNNING))
    if not (over or s.broken or s.leaving):
        return s
    if at < s.inspect_by:
        out.append(Wake(s.inspect_by, "a look at the ranks before they are told to end"))
        return s
    why = "its round is over" if over else "one of its ranks failed" if s.broken else "this node leaves"
    why = s.alarm.why if s.alarm and s.broken and s.broken.kind == "alarm" else why
    asked = s.leaving.signal if s.leaving else 0
    signal = asked if asked in (SIGUSR1, SIGUSR2) else SIGTERM  # --signals-to-handle: scripts know these by number
    cause = job.cause.kind if job is not None and job.cause else ""
    softly = noticed(s) or (not s.broken and (s.leaving is not None or cause in PLANNED))
    out.append(Terminate(s.round, signal, why, softly))
    return replace(s, ranks=Ranks.DYING, stopped=True, kill_at=at + s.settings.grace_s)


def _owes_notice(s: NodeState) -> bool:
    """Tell whether a notice was given here of which the job's record says nothing yet."""
    job = s.job.job if s.job else None
    return s.noticed and job is not None and not job.phase.over and not job.notice


def _notice(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Tell the ranks of a notice once in a round, and the other nodes of one that was given here."""
    if noticed(s) and s.ranks is Ranks.LIVE and s.told_of != s.round:
        out.append(Notify(s.round, "the job is to end soon", s.notice_signal))
        s = replace(s, told_of=s.round)
    if s.job is None or not _owes_notice(s):
        return s
    if not free(s, at, Kind.NOTICE.value, Kind.STOP.value, Kind.MASTER.value):
        return s
    return submit(s, writes.notice(s.settings.keys, s.own, s.job), out)


def _ladder(s: NodeState, at: float, out: list[Action]) -> NodeState:
    if s.ranks is not Ranks.DYING or not s.kill_at:
        return s
    if s.kill_by and s.kill_by < s.kill_at:
        s = replace(s, kill_at=s.kill_by)
    if s.alive and s.inc and at < s.kill_at:
        out.append(Wake(s.kill_at, "grace of the ranks"))  # each time: of several wakes the shell keeps the earliest
        return s
    out.append(Kill(s.round, "the grace is over" if s.alive else "all ranks have ended: their leftovers"))
    return replace(s, kill_at=0.0)


def _leave(s: NodeState, at: float, out: list[Action]) -> NodeState:
    if s.leaving is None or s.ranks is not Ranks.NONE:
        return s
    if at < s.answer_by:
        out.append(Wake(s.answer_by, "the scheduler is asked why it sent SIGTERM"))
        return s
    over = s.finished and s.job is not None and s.round == s.job.job.round
    unsaid = s.words or undescribed(s) or (s.finished and not s.recorded)
    stop = (s.member and not over) or Kind.STOP.value in s.pending
    if at < s.leave_by and s.joined and (stop or unsaid):
        out.append(Wake(s.leave_by, "leaving"))
        return s  # first S(n), then this
    alone = s.job is not None and s.job.job.max_nodes == 1  # nobody goes on with it
    code = 128 + s.leaving.signal if s.leaving.signal else UNKNOWN if alone else 0
    # Worth a requeue: the scheduler had said that it would stop the job.
    code = UNKNOWN if noticed(s) else code
    why = f"this node leaves: {s.leaving.why}" if s.leaving.why else ""
    out.append(Exit(code, why or f"this node was asked to leave{_by(s.leaving.signal)}{why_left(s)}", True))
    return replace(s, exiting=True)


def _by(signal: int) -> str:
    if not signal:
        return ""
    from ..health.exits import signal_name  # no start needs it

    return f", by {signal_name(-signal)}"


def _unheard(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Under hold: wait for a silent store as long as ranks live, and without them as one who is outside waits."""
    if s.away_since is None or s.ranks is not Ranks.NONE:
        return s
    until = s.away_since + s.settings.patience_s
    if at >= until:
        return _unreached(s, out)
    out.append(Wake(until, "the store is silent"))
    return s


def _unreached(s: NodeState, out: list[Action]) -> NodeState:
    code = UNKNOWN if s.round else NO_STORE
    what = "the outcome of the job is unknown" if s.round else "the group could not be formed"
    out.append(Exit(code, f"the store could not be reached for {s.settings.patience_s:g} s: {what}", False))
    return replace(s, exiting=True)


def _outside(s: NodeState, at: float, out: list[Action]) -> NodeState:
    if s.joined or s.ranks is not Ranks.NONE:
        return s
    until = s.out_since + s.settings.patience_s
    if at >= until and not s.pending:
        return _unreached(s, out)
    if s.pending or at < s.not_before:
        return s
    if not s.inc:
        out.append(Grant())
        return replace(s, pending=s.pending | {"grant"})
    out.append(Reread())
    return replace(s, pending=s.pending | {"reread"})


def _campaign(s: NodeState, at: float, out: list[Action]) -> NodeState:
    if not s.joined:
        return s
    leader = s.leader
    if leader is not None and not (leader.lease and leader.value.endswith(b"@%x" % leader.lease)):
        return give_up(s, f"{leader.key} was written by no agent: delete it and start again", out)
    if leader is not None:
        if leader.lease == s.inc and s.leading != leader.create_revision:
            out.append(Lead(leader.create_revision))
            return replace(s, leading=leader.create_revision)
        return s
    if s.leaving or not free(s, at, Kind.LEAD.value):
        return s
    if at < s.campaign_at:
        out.append(Wake(s.campaign_at, "there is no leader"))
        return s
    return submit(s, writes.lead(s.settings.keys, s.own), out)


def _report(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Say that ranks are started, have finished, and, once they are dead, how each of them ended."""
    keys = s.settings.keys
    if not s.reported and free(s, at, Kind.STARTED.value):
        s = submit(s, writes.report(keys, s.own, Kind.STARTED, s.round, b"{}"), out)
    if s.reentered and free(s, at, Kind.REENTERED.value):
        s = submit(s, writes.report(keys, s.own, Kind.REENTERED, s.round, s.reentered), out)
    # Ranks that exit 0 after a notice may have saved and no more: the job must not be done for it.
    if s.finished and not s.recorded and not _owes_notice(s) and free(s, at, Kind.FINISHED.value):
        s = submit(s, writes.report(keys, s.own, Kind.FINISHED, s.round, b"{}"), out)
    if undescribed(s) and "collect" not in s.pending:
        out.append(Collect(s.round, s.facts, _failed(s)))
        s = replace(s, pending=s.pending | {"collect"})
    # A stop brings the first word of it: it must not come behind the whole, and replace that.
    if s.words and _owed_stop(s) is None and free(s, at, Kind.EVIDENCE.value, Kind.STOP.value):
        s = submit(s, writes.report(keys, s.own, Kind.EVIDENCE, s.round, s.words), out)
    return s


def _failed(s: NodeState) -> bool:
    if s.broken is not None:
        return True
    cause = s.job.job.cause if s.job and s.job.job.round == s.round else None
    return s.leaving is None and not (cause and cause.kind in PLANNED)


def _stop(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """R(n) → S(n), as a member whose own ranks failed or who leaves; again until something newer is seen."""
    owed = _owed_stop(s)
    if s.job is None or owed is None or not free(s, at, Kind.STOP.value):
        return s
    cause, facts = owed
    return submit(s, writes.stop(s.settings.keys, s.own, s.job, cause, wire.encode(facts)), out)


def _owed_stop(s: NodeState) -> tuple[Cause, tuple[Fact, ...]] | None:
    """Return why the running round must be stopped by this node, with what it has to say at once; None when not."""
    if s.job is None or not s.member:
        return None
    n = s.job.job.round
    if s.broken is not None and s.round == n:
        return s.broken, s.facts
    if s.leaving is not None and not (s.finished and s.round == n):
        return Cause("leave", s.settings.node, s.inc), s.facts if s.round == n else (s.leaving,)
    return None


def _enter_round(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """In R(n): read the roster once; as its rank-0 node publish the master address; start the ranks once it stands."""
    if s.job is None or s.job.job.phase is not Phase.RUNNING or s.ranks is not Ranks.NONE:
        return s
    job, n = s.job.job, s.job.job.round
    if n <= s.round or not free(s, at, "roster"):
        return s
    if s.roster is None or s.roster.round != n:
        out.append(ReadRoster(n))
        return replace(s, pending=s.pending | {"roster"})
    if not s.member or s.leaving:
        return s
    index = s.roster.place(s.settings.node, s.inc)
    assert index is not None
    if job.master:
        out.append(Start(n, s.roster, index, job))
        return replace(
            s,
            ranks=Ranks.LIVE,
            round=n,
            index=index,
            started_at=at,
            alive=frozenset(range(s.settings.record.slots)),
            facts=(),
            broken=None,
            alarm=None,
            more_alarms=(),
            inspect_by=0.0,
            stopped=False,
            kill_at=0.0,
            told=False,
            words=b"",
            finished=False,
            recorded=False,
            reported=True,
            reentered=b"",
            checking=Round(0),
        )
    if index == 0 and (s.port is None or s.port[0] != n) and "port" not in s.pending:
        out.append(ReservePort(n))
        return replace(s, pending=s.pending | {"port"})
    if index == 0 and s.port is not None and s.port[0] == n and free(s, at, Kind.MASTER.value):
        return submit(s, writes.master(s.settings.keys, s.own, s.job, s.port[1]), out)
    return s


def _over(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """At D or X: leave together, with the job's outcome, once nothing of ours lives."""
    if s.job is None or not s.job.job.phase.over or s.ranks is not Ranks.NONE or not s.joined:
        return s
    outcome = s.job.job.outcome
    assert outcome is not None
    out.append(Exit(outcome.exit_code, outcome.sentence, True))
    return replace(s, exiting=True)
