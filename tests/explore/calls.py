"""An agent's calls: what the store does with them, and what those answer who take a while (judge, resume hook, port).

A call is done and answered in one step unless answers are late or its agent is stopped; then its answer waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuster.agent import node_words as words
from remuster.rendezvous import leader_words
from remuster.rendezvous.records import Incarnation, Memory, NodeId, Outcome, ResumePoint, encode
from remuster.rendezvous.store import Compare, Field, Put, Txn, WatchBatch, WatchEvent
from remuster.rendezvous.writes import Charge, Kind, Write

from . import guardian, truth
from .values import FROM_HERE, KEYS, NONE, NOW, ROUNDS, STOPPED, UP

if TYPE_CHECKING:
    from .play import Play

AT_HOME = frozenset({"port", "collect", "judge", "resume", "answer"})  # no store is needed
SEAT = frozenset({"elect", "judge", "resume"})  # calls of the job machine
BY_SEAT = frozenset({"join", "ready", "stop", "evidence", "started", "finished", "master", "lead"}) | {
    *("lost", "next", "close", "done", "fail", "answer"),
}  # calls whose second field is the leader's token, 0 for the node machine


def carry(play: Play, i: int, call: tuple[Any, ...]) -> None:
    """Let a call be done, and answered at once if the agent can hear it and answers are not late."""
    n = play.node(i)
    play.drop_call(n, call)
    stands, what = play.scene.stands, call[0]
    match what:
        case "grant":
            n.grants += 1
            inc = (i + 1) * ROUNDS + n.grants
            play.stand = stands.grant(play.stand, inc)
            answer: Any = words.Granted(NOW, Incarnation(inc))
        case "reread":
            if not play.m.nodes[n.machine].joined:
                n.watch, n.jobs, n.keys = FROM_HERE, (), ()
            four = (KEYS.job, KEYS.node(NodeId(play.names[i])), KEYS.leader, KEYS.terms)
            found = [stands.get(play.stand, key) for key in four]
            answer = words.Rereading(NOW, True, stands[play.stand].leads, *found)
        case "roster":
            job = stands.get(play.stand, KEYS.job)
            kv = stands.get(play.stand, KEYS.roster(call[1]))
            answer = words.RosterRead(NOW, call[1], True, kv, job.mod_revision if job else 0)
        case "revoke":
            drop_lease(play, call[1])
            return
        case "elect":
            n.run = ()
            answer = leader_words.Elected(NOW, call[1], stands.range(play.stand))
        case "port":
            answer = words.PortReserved(NOW, call[1], f"{play.names[i]}:{1000 + call[1]}")
        case "collect":
            answer = words.Collected(NOW, call[1], b"words")
        case "judge":
            answer = _judged(play, play.m.values[call[1]])
        case "resume":
            step = play.ledger.checkpoint
            answer = leader_words.Resumed(NOW, play.m.values[call[1]].round, ResumePoint(f"step-{step}", step))
        case "answer":
            _answered(play, i, call[1], play.m.values[call[2]])
            return
        case _:
            answer = write(play, i, call)
            if what == Kind.JOIN.value:
                n.watch, n.jobs, n.keys = FROM_HERE, (), ()
    token = call[1] if what in BY_SEAT else int(what in SEAT)
    if n.process == UP and "answer" not in play.lag:
        _answered(play, i, token, answer)
    elif n.process in (UP, STOPPED):
        play.call(n, ("answer", token, play.m.value(answer)))


def _answered(play: Play, i: int, token: int, answer: Any) -> None:
    n = play.node(i)
    if token:
        play.seat(i, answer)
        return
    if isinstance(answer, words.Granted):
        n.lease, n.ahead = answer.inc, True
        guardian.lease_told(play, i, n)
    play.take(i, answer)
    if n.watch == FROM_HERE and isinstance(answer, words.Wrote | words.Rereading | words.LeaseLost):
        n.watch, n.jobs, n.keys = NONE, (), ()


def write(play: Play, i: int, call: tuple[Any, ...]) -> Any:
    """Apply a write of a machine; return the answer as its event."""
    what, token, number, inc = call
    wanted = play.m.writes[number]
    change = play.scene.stands.apply(play.stand, number, wanted.txn)
    before, play.stand = play.stand, change.stand
    truth.wrote(play, i, inc, wanted, before, change)
    publish(play, change.events)
    result = change.result
    play.note(lambda: f"{play.names[i]}: {what}({wanted.round}) {_outcome(result)}: {wanted.reason}")
    if token:
        return leader_words.Wrote(NOW, wanted.kind, result)
    if result is None:
        return words.LeaseLost(NOW)
    return words.Wrote(NOW, wanted.kind, wanted.round, Incarnation(inc), result)


def _judged(play: Play, ask: leader_words.Conclude) -> leader_words.Concluded:
    """Charge each failed round, unless a node left or not all had started; stop when the budget is spent."""
    job, n = ask.job, ask.round
    if ask.done:
        kept = Charge(job.spent, job.charged, Memory())
        return leader_words.Concluded(NOW, n, False, kept, Outcome(0, "done"), b"{}", True)
    if not ask.all_started or (job.cause is not None and job.cause.kind == "leave"):
        kept = Charge(job.spent, job.charged, Memory())
        return leader_words.Concluded(NOW, n, True, kept, Outcome(0, ""), b"{}")
    paid = Charge((("unknown", sum(k for _, k in job.spent) + 1),), job.charged + 1, Memory())
    retry = job.charged < play.scene.setting.budget
    return leader_words.Concluded(NOW, n, retry, paid, Outcome(1, "the budget is spent"), b"{}")


def publish(play: Play, events: tuple[WatchEvent, ...]) -> None:
    """Put what has changed on its way to all who watch."""
    if not events:
        return
    jobs = tuple(play.m.value(e.kv) for e in events if e.key == KEYS.job)
    leads = play.scene.stands[play.stand].leads
    keys = tuple((play.m.value(e.kv) if e.kv else 0, leads) for e in events if e.key == KEYS.leader)
    for i, node in enumerate(play.all()):
        if node.watch and (jobs or keys):
            n = play.node(i)
            n.jobs += jobs
            n.keys += keys
        if node.leader:
            play.node(i).run += (play.m.value(WatchBatch(events)),)


def drop_lease(play: Play, lease: int) -> None:
    """End a lease: by its time, or because somebody revokes it."""
    change = play.scene.stands.drop(play.stand, lease)
    play.stand = change.stand
    publish(play, change.events)


def come_back(play: Play, i: int) -> None:
    """Take the lease anew and put the old record on it, as no agent of the product does."""
    n = play.node(i)
    s = play.m.nodes[n.machine]
    key, record = KEYS.node(s.settings.node), replace(s.settings.record, inc=s.inc, ready=s.ready)
    put = Txn((Compare(key, Field.CREATE, 0),), (Put(key, encode(record), n.lease),))
    number = play.m.writes.number(Write(Kind.JOIN, put, s.ready, "carries on"))
    change = play.scene.stands.apply(play.scene.stands.grant(play.stand, n.lease), number, put)
    play.stand = change.stand
    publish(play, change.events)


def _outcome(result: Any) -> str:
    return "on a dead lease" if result is None else "done" if result.succeeded else "held off by a guard"
