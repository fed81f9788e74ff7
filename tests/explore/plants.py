"""Wrong readings of the protocol (its part b), each with the setting in which it must be found, and by which invariant.

Those that the simulator plants as well are the simulator's own (``sim/plants.py``), played here in every order instead
of at random. The others replace what the random schedules cannot reach, or an actor of this model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

from sim.plants import PLANTS as SIMULATED
from sim.rules import altered

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.fence import Fence
from remuster.agent.node_state import NodeState
from remuster.rendezvous import leader
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.leader_words import Changed, Elected, Submit
from remuster.rendezvous.records import Node, Phase, Round, decode_job, decode_node, decode_roster, encode
from remuster.rendezvous.store import Field, KeyValue, Range, WatchBatch, WatchEvent
from remuster.rendezvous.writes import Kind, Write

from .rules import Actions, Rules
from .setting import Setting
from .settings import (
    AGAIN,
    BOTH,
    CHECKPOINT,
    COLD_CUT,
    COLD_RANK,
    COLD_SKIP,
    COLD_STOP,
    CRASH,
    CUT,
    CUT_HELD_UP,
    FINISH,
    FINISH_CUT,
    FINISH_RANK,
    HANG,
    LATE_PEER,
    LEAVE,
    NAMESAKE,
    RANK,
    RANK_CRASH,
    READY_HELD_UP,
    SPARE,
    SPARE_POWER,
    SPARE_POWERS,
    STOP,
    STOP_HELD_UP,
)
from .values import KEYS

ONE = {"1 one world", "5 join after sweep", "7 ready", "8 resume"}  # ranks that should be dead are not


@dataclass(frozen=True, slots=True)
class Plant:
    """A reading, where it shows, and what it breaks."""

    name: str
    rules: Rules
    setting: Setting
    breaks: frozenset[str] = field(default_factory=lambda: frozenset(ONE))


def _agent(name: str) -> Any:
    """All that a plant of the simulator may ask of its agent here."""
    return SimpleNamespace(
        world=SimpleNamespace(cfg=SimpleNamespace(keys=KEYS)),
        node=SimpleNamespace(settings=SimpleNamespace(node=name)),
    )


def _simulated(start: str, writes: bool = True) -> Rules:
    """Return a plant of the simulator as rules of the explorer, with what it does to writes or without."""
    plant = next(rules for rules in SIMULATED if rules.name.startswith(start))
    return Rules(
        node=lambda s, event: plant.node(_agent(s.settings.node), s, event),
        leader=lambda s, event: plant.leader(_agent(s.own.node), s, event),
        write=lambda name, wanted: plant.write(_agent(name), wanted) if writes else wanted,
        may_start=plant.may_start,
        fences=plant.fences,
        kill_cancels=plant.kill_cancels,
        sweep_first=plant.sweep_first,
        keepalive_thread=plant.keepalive_thread,
    )


def _with_tree(s: Leader, change: Callable[[dict[str, KeyValue]], None]) -> Leader:
    tree = dict(s.view.tree)
    change(tree)
    return replace(s, view=replace(s.view, tree=MappingProxyType(tree)))


def _node_kv(member: Any) -> KeyValue:
    record = Node(member.inc, member.machine, "", member.address, member.slots, Round(0))
    return KeyValue(KEYS.node(member.node), encode(record), 1, 1, member.inc)


# Hole 1: the leader closes with whoever is ready.
def _does_not_wait(s: Leader, event: Any) -> tuple[Leader, Actions]:
    seen = s.view.job()
    if seen is None or seen.job.phase is not Phase.FORMING:
        return leader.step(s, event)

    def without_the_slow(tree: dict[str, KeyValue]) -> None:
        for key in [k for k in tree if k.startswith(KEYS.nodes) and k != KEYS.node(s.own.node)]:
            if decode_node(tree[key].value).ready < seen.job.round:
                del tree[key]

    return leader.step(_with_tree(s, without_the_slow), event)


# Hole 12: ready is a word for all rounds, given once.
def _ready_for_any(s: Leader, event: Any) -> tuple[Leader, Actions]:
    def always(kv: KeyValue) -> KeyValue:
        if not kv.key.startswith(KEYS.nodes):
            return kv
        return kv._replace(value=encode(replace(decode_node(kv.value), ready=Round(1000))))

    match event:
        case Elected(found=found):
            event = event._replace(found=Range(tuple(always(kv) for kv in found.items), found.revision))
        case Changed(batch=batch):
            events = tuple(e._replace(kv=e.kv and always(e.kv)) for e in batch.events)
            event = event._replace(batch=WatchBatch(events))
        case _:
            pass
    return leader.step(s, event)


# Hole 7: a loss is the event that this leader sees.
def _by_event(s: Leader, event: Any) -> tuple[Leader, Actions]:
    if isinstance(event, Elected):
        found = {kv.key: kv for kv in event.found.items}
        formed = decode_job(found[KEYS.job].value).formed
        roster = found.get(KEYS.roster(formed))
        for m in decode_roster(roster.value).members if roster else ():
            found.setdefault(KEYS.node(m.node), _node_kv(m))
        items = tuple(found[key] for key in sorted(found))
        event = event._replace(found=Range(items, event.found.revision))
    return leader.step(s, event)


# Hole 7: a leader begins with the list of nodes that it had before it led.
def _older_list(s: Leader, event: Any) -> tuple[Leader, Actions]:
    if isinstance(event, Elected):
        others = [kv for kv in event.found.items if kv.key.startswith(KEYS.nodes) and kv.lease != s.own.inc]
        newest = max(others, key=lambda kv: kv.create_revision, default=None)
        items = tuple(kv for kv in event.found.items if kv is not newest)
        event = event._replace(found=Range(items, event.found.revision))
    return leader.step(s, event)


# Hole 7: only the node that failed may say that a round is over.
def _members_stop(s: Leader, event: Any) -> tuple[Leader, Actions]:
    after, actions = leader.step(s, event)
    rest = tuple(a for a in actions if not (isinstance(a, Submit) and a.write.kind is Kind.STOP))
    return (after, actions) if rest == actions else (replace(after, busy=-1), rest)


# Hole 11: the charge is a write of its own, before the transition.
def _charges_first(s: Leader, event: Any) -> tuple[Leader, Actions]:
    s, actions = leader.step(s, event)
    seen = s.view.job()
    moves = [a for a in actions if isinstance(a, Submit) and a.write.kind is Kind.NEXT]
    if not moves or seen is None:
        return s, actions
    write = moves[0].write
    put = write.txn.then[0]
    new = decode_job(put.value)  # type: ignore[union-attr]
    if sum(n for _, n in new.spent) <= sum(n for _, n in seen.job.spent):
        return s, actions
    paid = altered(put, value=encode(replace(seen.job, spent=new.spent, charged=new.charged)))
    rest = tuple(a for a in actions if a not in moves)
    return s, (*rest, Submit(write._replace(txn=write.txn._replace(then=(paid,)))))


# Hole 15: one that has finished speaks for all.
def _done_by_any(s: Leader, event: Any) -> tuple[Leader, Actions]:
    seen = s.view.job()
    roster = s.view.roster(seen.job) if seen else None
    if roster is not None and isinstance(event, Changed):
        extra = [
            WatchEvent(key, e.revision, e.kv and e.kv._replace(key=key))
            for e in event.batch.events
            if e.key.startswith(KEYS.reports("finished", roster.round)[0]) and e.kv
            for key in (KEYS.report("finished", roster.round, *m.who) for m in roster.members)
        ]
        event = event._replace(batch=WatchBatch((*event.batch.events, *extra)))
    return leader.step(s, event)


# Hole 15: who has finished in any round has finished, by name; the words of old rounds are kept for that.
def _finished_by_name(s: Leader, event: Any) -> tuple[Leader, Actions]:
    if isinstance(event, Changed):
        s, event = replace(s, view=s.view.after(event.batch)), Changed(event.at, WatchBatch(()))
    seen = s.view.job()
    if seen is None or seen.job.phase is not Phase.RUNNING:
        return leader.step(s, event)
    roster = s.view.roster(seen.job)

    def by_name(tree: dict[str, KeyValue]) -> None:
        for m in roster.members if roster else ():
            said = [k for k in tree if k.startswith(f"{KEYS.prefix}finished/") and f"/{m.node}@" in k]
            for key in said[:1]:
                own = KEYS.report("finished", seen.job.round, *m.who)
                tree.setdefault(own, tree[key]._replace(key=own))

    return leader.step(_with_tree(s, by_name), event)


# Hole 4: who finds the node's name taken by another machine takes it away from that.
def _takes_the_name(s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    if isinstance(event, words.Rereading) and event.node is not None and not s.joined:
        record = replace(decode_node(event.node.value), machine=s.settings.record.machine)
        event = event._replace(node=event.node._replace(value=encode(record)))
    return node.step(s, event)


# Hole 9: who is given --fresh begins an ended job again, whichever launch has ended it.
def _begins_again(s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    if isinstance(event, words.Rereading) and event.job is not None and not s.joined:
        job = decode_job(event.job.value)
        if job.phase.over and s.settings.fresh:
            event = event._replace(job=event.job._replace(value=encode(replace(job, launch="another", past=()))))
    return node.step(s, event)


def _unguarded(_name: str, wanted: Write) -> Write:
    """Make a write without the guards of the lease and of the token."""
    token = [g for g in wanted.txn.guards if g.key == KEYS.leader and g.value]
    guards = tuple(g for g in wanted.txn.guards if g.field is not Field.LEASE and g not in token)
    return wanted._replace(txn=wanted.txn._replace(guards=guards))


def _starts_anyway(fence: Fence, inc: int, _now: float) -> str | None:
    return Fence(fence.inc).may_start(inc, 0.0)


PLANTS = (
    Plant("the store may end a lease before the deadline", Rules(early_expiry=True), CUT),
    Plant("no guardian fences", Rules(fences=False, may_start=_starts_anyway), STOP),
    Plant("1: members of the last round forgotten", _simulated("hole 1:", writes=False), SPARE),
    Plant("1: closes without waiting", Rules(leader=_does_not_wait), SPARE),
    Plant("2: starts without looking at the deadline", Rules(may_start=_starts_anyway), COLD_STOP),
    Plant("2: a kill leaves a start on its way", Rules(kill_cancels=False), COLD_RANK),
    Plant(
        "3: goes on with its old view on a new lease",
        Rules(view_survives=True),
        COLD_CUT,
        frozenset(ONE | {"3 no false loss"}),
    ),
    Plant("3: membership by name", _simulated("hole 3"), CRASH, frozenset({"2 membership"})),
    Plant("4: the leader revokes a slow member's lease", _simulated("hole 4: the leader"), RANK),
    Plant("4: a namesake revokes", Rules(node=_takes_the_name), NAMESAKE),
    Plant("4: keepalives in a thread", _simulated("hole 4: keepalives"), HANG, frozenset({"9 liveness"})),
    Plant("5: joins before the sweep", Rules(sweep_first=False), CRASH),
    Plant("6: fenced ranks unreported", _simulated("hole 6"), BOTH, frozenset({"9 liveness"})),
    Plant("7: loss is an event", Rules(leader=_by_event), SPARE_POWERS, frozenset({"9 liveness"})),
    Plant(
        "7: a list from before the lead", Rules(leader=_older_list), SPARE_POWERS, frozenset(ONE | {"3 no false loss"})
    ),
    Plant("7: only members stop a round", Rules(leader=_members_stop), SPARE_POWER, frozenset({"9 liveness"})),
    Plant("8: who never started is silent", _simulated("hole 8"), COLD_SKIP, frozenset({"9 liveness"})),
    Plant("9: a finished id begins at 1", _simulated("hole 9"), AGAIN, frozenset({"2 rounds"})),
    Plant("9: each agent resets", Rules(node=_begins_again), LATE_PEER, frozenset({"4 over is over"})),
    Plant("9: a reset forgets the members", _simulated("hole 1:", writes=False), AGAIN),
    Plant("11: the charge in its own write", Rules(leader=_charges_first), RANK_CRASH, frozenset({"3 budget"})),
    Plant("12: ready before the proof", _simulated("hole 12: ready before"), RANK),
    Plant("12: ready for any round", Rules(leader=_ready_for_any), RANK),
    Plant(
        "12: ready may fall", _simulated("hole 12: ready is not"), READY_HELD_UP, frozenset({"7 ready", "9 liveness"})
    ),
    Plant("13: stop without comparing", _simulated("hole 13"), STOP_HELD_UP, frozenset({"2 rounds", "3 budget"})),
    Plant("14: leaves before its ranks are dead", Rules(leaves_first=True), LEAVE),
    Plant("15: done by any", Rules(leader=_done_by_any), FINISH, frozenset({"4 done"})),
    Plant(
        "15: finished by name",
        replace(_simulated("old words"), leader=_finished_by_name),
        FINISH_RANK,
        frozenset({"4 done"}),
    ),
    Plant("15: finished hangs on the lease", _simulated("hole 15: a fin"), FINISH_CUT, frozenset({"3 no false loss"})),
    Plant("19: each takes the newest", Rules(newest_at_start=True), CHECKPOINT, frozenset({"6 same start"})),
    Plant("no lease guard", _simulated("the lease guard"), CUT_HELD_UP, frozenset({"5 lease"})),
    Plant("neither lease guard nor token", Rules(write=_unguarded), CUT_HELD_UP, frozenset({"5 lease"})),
)
