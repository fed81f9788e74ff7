"""What must hold, checked where it could be broken: at every fork of ranks, every write and every exit.

From the ledger and the store, never from what a machine believes. The numbers are those of the protocol's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuster.agent import node_words as words
from remuster.rendezvous import leader_words
from remuster.rendezvous.records import Job, NodeId, Phase, Round, decode_job, decode_node, decode_roster
from remuster.rendezvous.store import KeyValue
from remuster.rendezvous.writes import Write

from .values import FROZEN, KEYS, Order, Rank, Violation, owner

if TYPE_CHECKING:
    from .play import Play, Scene
    from .store import Change

F, R, S, D, X = Phase.FORMING, Phase.RUNNING, Phase.STOPPING, Phase.DONE, Phase.FAILED
STEPS = {(F, R): 0, (R, R): 0, (R, S): 0, (S, F): 1, (S, X): 0, (F, X): 0, (R, D): 0, (X, F): 1, (D, F): 1}
OWN_END = ("failed", "fenced", "guardian")


def expect(holds: bool, name: str, what: str) -> None:
    """Raise ``Violation`` when ``holds`` is False."""
    if not holds:
        raise Violation(name, what)


def living(play: Play) -> list[tuple[int, Rank]]:
    """Return all ranks that run, with their nodes."""
    found = [(i, r) for i, n in enumerate(play.all()) if n.process != FROZEN for r in (n.rank, n.old)]
    return [(i, r) for i, r in found if r is not None and r.alive]


def started(play: Play, i: int, order: Order) -> None:
    """Check a fork of ranks: (1) one world, (2) membership, (6) the same start for the whole group, (7) ready."""
    n, name = order.round, play.names[i]
    play.note(lambda: f"{name}: ranks of round {n} run")
    others = [(play.names[j], r.round) for j, r in living(play) if r.round != n]
    expect(not others, "1 one world", f"ranks of round {n} start on {name} while these live: {others}")
    expect(n == play.ledger.formed, "1 one world", f"ranks of round {n} start when {play.ledger.formed} had formed")
    kv = play.scene.stands.get(play.stand, KEYS.roster(Round(n)))
    assert kv is not None  # the newest round's roster stands until the next one closes
    roster = decode_roster(kv.value)
    who = [m.who for m in roster.members]
    expect((name, order.inc) in who, "2 membership", f"{name}@{order.inc} starts in round {n} of {who}")
    expect(who.index((NodeId(name), order.inc)) == order.place, "6 same start", f"{name} takes place {order.place}")
    starts = {r.start for _, r in living(play) if r.round == n}
    expect(len(starts) == 1, "6 same start", f"ranks of round {n} start from {starts}")
    mine = play.scene.stands.get(play.stand, KEYS.node(NodeId(name)))
    ready = decode_node(mine.value).ready if mine and mine.lease == order.inc else 0
    expect(n >= ready, "7 ready", f"ranks of round {n} start on {name} after ready({ready})")


def together(play: Play) -> None:
    """Check that ranks of one round run, and of no other: (1)."""
    rounds = {r.round for _, r in living(play)}
    expect(len(rounds) <= 1, "1 one world", f"ranks of rounds {sorted(rounds)} run at once")


def asks(play: Play, ask: leader_words.Conclude | leader_words.SelectResume) -> None:
    """Check that a resume point is chosen when all ranks of earlier rounds are dead: (8)."""
    if isinstance(ask, leader_words.SelectResume):
        older = [play.names[i] for i, r in living(play) if r.round < ask.round]
        expect(not older, "8 resume", f"the resume point of round {ask.round} is chosen while ranks live on {older}")


def exits(play: Play, i: int, action: words.Exit) -> None:
    """Check how an agent ends: with the job's outcome, as asked, or because the run went on without it."""
    name, job = play.names[i], _job(play)
    play.note(lambda: f"{name}: exits {action.code}: {action.sentence}")
    state = play.m.nodes[play.peek(i).machine]
    if state.leaving or state.holder is not None:
        return
    if action.code == 0:
        launch = state.launch or state.settings.begin.launch
        expect(launch in play.ledger.done, "4 done", f"{name} exits 0, but launch {launch} is not done")
    seen = state.job is not None and state.job.job.phase.over
    beaten = job is not None and (job.phase.over or job.launch != state.launch)
    expect(seen or beaten, "machine", f"{name} exits {action.code}: {action.sentence}")


def wrote(play: Play, i: int, inc: int, wanted: Write, before: int, change: Change) -> None:
    """Check what a write has done; ``before`` is the store before it."""
    stands, name = play.scene.stands, play.names[i]
    if not change.events:
        return
    lives = inc in stands[before].leases
    expect(lives, "5 lease", f"a write ({wanted.kind.value}) of {name}@{inc}, whose lease is gone, took effect")
    for event in change.events:
        if event.kv is None:
            continue
        if event.key.startswith(KEYS.nodes):
            _node_wrote(play, event.kv, stands.get(before, event.key))
        elif event.key == KEYS.job:
            old = stands.get(before, KEYS.job)
            _job_wrote(play, wanted, decode_job(old.value) if old else None, decode_job(event.kv.value), before)


def _node_wrote(play: Play, kv: KeyValue, old: KeyValue | None) -> None:
    record, name = decode_node(kv.value), kv.key[len(KEYS.nodes) :]
    here = [r.round for i, r in living(play) if i == owner(record.inc)]
    if old is None:
        expect(not here, "5 join after sweep", f"{name} joins while ranks of round {here} live there")
    else:
        was = decode_node(old.value).ready
        expect(record.ready >= was, "7 ready", f"ready of {name} falls from {was} to {record.ready}")
    older = [n for n in here if n < record.ready]
    expect(not older, "7 ready", f"{name} says ready({record.ready}) while ranks of round {older} live there")


def _job_wrote(play: Play, wanted: Write, old: Job | None, new: Job, before: int) -> None:
    n, ledger = new.round, play.ledger
    play.note(lambda: f"the job is {new.phase.value}({n})")
    if old is None:
        expect((new.phase, n) == (F, 1), "2 rounds", f"the job begins as {new.phase.value}({n})")
        return
    pair = (old.phase, new.phase)
    said = f"{old.phase.value}({old.round}) becomes {new.phase.value}({n})"
    if pair != (S, S):  # never so in the product; what it means is for the charge to show
        expect(STEPS.get(pair) == n - old.round, "2 rounds", f"{said} by a write about round {wanted.round}")
    if old.phase.over:
        expect(new.launch not in ledger.done, "4 over is over", f"{said}: launch {new.launch} was done")
    if pair == (F, R):
        expect(n > ledger.formed, "2 rounds", f"round {n} is formed again")
        play.ledger = ledger = ledger._replace(formed=n)
    if old.launch == new.launch:
        _charged(play, old, new, before)
    if pair == (R, S):
        _stopped(play, wanted, new, before)
    if new.phase is D:
        unfinished = [m.who for m in members_of(play.scene, before, n) if (n, *m.who) not in ledger.finished]
        expect(not unfinished, "4 done", f"round {n} is done; {unfinished} have not finished")
        play.ledger = play.ledger._replace(done=(*ledger.done, new.launch))


def members_of(scene: Scene, stand: int, n: int) -> Any:
    """Return the members of round ``n`` as the store has them."""
    kv = scene.stands.get(stand, KEYS.roster(Round(n)))
    return decode_roster(kv.value).members if kv else ()


def _charged(play: Play, old: Job, new: Job, before: int) -> None:
    n, ledger = old.round, play.ledger
    paid = sum(k for _, k in new.spent) - sum(k for _, k in old.spent)
    leave = old.cause is not None and old.cause.kind == "leave"
    if paid:
        expect(
            paid == 1 and n not in ledger.charged, "3 budget", f"round {n} is charged {paid}, before: {ledger.charged}"
        )
        expect(old.phase is S, "3 budget", f"a charge in {old.phase.value}({n})")
        expect(not leave, "3 budget", f"round {n} ended by a leave and is charged")
        table = play.scene.stands.table(before)
        silent = [m.node for m in members_of(play.scene, before, n) if KEYS.report("started", n, *m.who) not in table]
        expect(not silent, "3 budget", f"round {n} is charged, but had not started on {silent}")
        expect(new.charged <= play.scene.setting.budget, "3 budget", f"{new.charged} charges")
        play.ledger = ledger._replace(charged=(*ledger.charged, n))


def _stopped(play: Play, wanted: Write, new: Job, before: int) -> None:
    """A round is stopped for something that has really happened, in that round."""
    n, cause = new.round, new.cause
    assert cause is not None
    expect(wanted.round == n, "3 budget", f"evidence of round {wanted.round} stops round {n}")
    if cause.kind == "lost":
        gone = cause.inc not in play.scene.stands[before].leases
        expect(gone, "3 no false loss", f"round {n} is stopped: {cause.node} lost its lease, but it has it")
        table = play.scene.stands.table(before)
        over = KEYS.report("finished", n, NodeId(cause.node), cause.inc) in table  # type: ignore[arg-type]
        expect(not over, "3 no false loss", f"round {n} is stopped for {cause.node}, which had finished")
    elif cause.kind in OWN_END:
        here = [r for _, r in living(play) if (r.round, r.inc) == (n, cause.inc)]
        expect(not here, "3 no false alarm", f"round {n} is stopped for {cause.node}, whose ranks run")


def _job(play: Play) -> Job | None:
    kv = play.scene.stands.get(play.stand, KEYS.job)
    return decode_job(kv.value) if kv else None
