"""Wrong readings of the protocol (PROTOCOL part b), each as ``Rules`` that wrap the product without touching it.

Every one is what somebody could write in good faith; the simulator must catch each by an invariant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.fence import Fence
from remuster.agent.node_state import NodeState, Ranks
from remuster.rendezvous import leader, leader_state, leader_words
from remuster.rendezvous.records import NO_PLACE, Phase, Round, Terms, decode_job, decode_node, decode_roster, encode
from remuster.rendezvous.store import Delete, Field, KeyValue, Put, Range, WatchBatch
from remuster.rendezvous.writes import Kind, Write

from .rules import Actions, Revoke, Rules, altered

if TYPE_CHECKING:
    from collections.abc import Callable

    from .agents import Agent


def sees(change: Callable[[Agent, KeyValue], KeyValue]) -> Any:
    """Make a leader that reads every key through ``change``."""

    def step(agent: Agent, state: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
        match event:
            case leader_words.Elected(found=found):
                found = Range(tuple(change(agent, kv) for kv in found.items), found.revision)
                event = altered(event, found=found)
            case leader_words.Changed(batch=batch):
                events = tuple(altered(e, kv=e.kv and change(agent, e.kv)) for e in batch.events)
                event = altered(event, batch=WatchBatch(events))
            case _:
                pass
        return leader.step(state, event)

    return step


def _without(kinds: tuple[Kind, ...], unwanted: Callable[[Agent, Any], bool]) -> Any:
    """Make writes of ``kinds`` without the guards that are ``unwanted``."""

    def write(agent: Agent, wanted: Write) -> Write:
        if wanted.kind not in kinds:
            return wanted
        guards = tuple(g for g in wanted.txn.guards if not unwanted(agent, g))
        return altered(wanted, txn=altered(wanted.txn, guards=guards))

    return write


# 1. F does not say whose ranks must be dead: the leader closes over whoever is ready.
def _forgets_members(_agent: Agent, kv: KeyValue) -> KeyValue:
    if not kv.key.endswith("/job"):
        return kv
    job = decode_job(kv.value)
    return kv if job.phase is not Phase.FORMING else altered(kv, value=encode(altered(job, formed=Round(0))))


def _no_last_round(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    """… and the rosters are out of its sight, too: the product would miss the one that ``formed`` does not name."""
    gone = set()
    if isinstance(event, leader_words.Elected):
        found = event.found
        forming = any(kv.key.endswith("/job") and decode_job(kv.value).phase is Phase.FORMING for kv in found.items)
        if forming:
            items = tuple(kv for kv in found.items if "/rounds/" not in kv.key)
            event = altered(event, found=Range(items, found.revision))
    elif isinstance(event, leader_words.Changed):
        jobs = [decode_job(e.kv.value) for e in event.batch.events if e.kv and e.key.endswith("/job")]
        if jobs and jobs[-1].phase is Phase.FORMING:
            gone = {key for key in s.view.tree if "/rounds/" in key}
    if gone:
        tree = {key: kv for key, kv in s.view.tree.items() if key not in gone}
        s = altered(s, view=altered(s.view, tree=tree))
    return sees(_forgets_members)(agent, s, event)


def _fails_with_members(agent: Agent, wanted: Write) -> Write:
    """Leave ``formed`` as it stands in the other write of F, so that the plant is about the close alone."""
    if wanted.kind is not Kind.FAIL:
        return wanted
    put, *rest = wanted.txn.then
    kv = agent.world.store.range(agent.world.cfg.keys.job).one()
    assert isinstance(put, Put)
    assert kv is not None
    job = altered(decode_job(put.value), formed=decode_job(kv.value).formed)
    return altered(wanted, txn=altered(wanted.txn, then=(altered(put, value=encode(job)), *rest)))


# 2. The guardian checks the deadline when it kills, and not when it starts.
def _starts_anyway(fence: Fence, inc: int, _now: float) -> str | None:
    return Fence(fence.inc).may_start(inc, 0.0)


# 3. Membership by node name: a new incarnation takes the place of the one before it.
def _by_name(_agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    if isinstance(event, words.RosterRead) and event.roster:
        roster = decode_roster(event.roster.value)
        places = tuple(altered(m, inc=s.inc) if m.node == s.settings.node and s.inc else m for m in roster.members)
        event = altered(event, roster=altered(event.roster, value=encode(altered(roster, members=places))))
    return node.step(s, event)


# 4. The leader revokes the lease of a member that does not answer.
def _impatient(_agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    s, actions = leader.step(s, event)
    seen = s.view.job()
    last = s.view.roster(seen.job) if seen and seen.job.phase is Phase.FORMING else None
    if seen is None or last is None or not any(isinstance(a, leader_words.Wake) for a in actions):
        return s, actions
    here = s.view.nodes()
    slow = [m.inc for m in last.members if m.node in here and here[m.node].record.inc == m.inc]
    slow = [inc for inc in slow if any(x.record.inc == inc and x.record.ready < seen.job.round for x in here.values())]
    return s, (*actions, *(Revoke(inc) for inc in slow))


# 6. Ranks that were fenced while the lease lived go unreported: the agent renews and believes that they run.
def _trusts_memory(_agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    fenced = isinstance(event, words.FencedHere)
    if fenced or (isinstance(event, words.Exited) and event.status == -9 and s.ranks is Ranks.LIVE):
        s, actions = node.step(s, words.Tick(event.at))
        return s, (*actions, words.AcknowledgeFence(event.inc)) if fenced else actions
    return node.step(s, event)


# 7. A loss is an event: a leader acts on a DELETE that it sees, and a successor never sees the one before its time.
def _edge_triggered(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    if isinstance(event, leader_words.Elected):
        kvs, keys = {kv.key: kv for kv in event.found.items}, agent.world.cfg.keys
        job = decode_job(kvs[keys.job].value)
        roster = agent.world.truth.rosters.get(job.formed)
        for m in roster.members if roster else ():
            record = altered(agent.node.settings.record, inc=m.inc, machine=m.machine, slots=m.slots)
            kv = KeyValue(keys.node(m.node), encode(record), 1, 1, m.inc)
            kvs.setdefault(kv.key, kv)
        event = altered(event, found=Range(tuple(kvs[k] for k in sorted(kvs)), event.found.revision))
    return leader.step(s, event)


# 8. Only an agent that had ranks answers that they are dead.
def _silent(_agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    s, actions = node.step(s, event)
    never = [a for a in actions if isinstance(a, words.Submit) and a.write.kind is Kind.READY]
    if s.round == 0 and never:
        return s, tuple(a for a in actions if a not in never)
    return s, actions


# 9. A finished id is reset: the rounds begin at 1 again.
def _resets(_agent: Agent, wanted: Write) -> Write:
    if wanted.kind is not Kind.JOIN:
        return wanted
    then = []
    for op in wanted.txn.then:
        if isinstance(op, Put) and op.key.endswith("/job"):
            job = altered(decode_job(op.value), round=Round(1), first=Round(1), formed=Round(0))
            then.append(altered(op, value=encode(job)))
        else:
            then.append(op)
    return altered(wanted, txn=altered(wanted.txn, then=tuple(then)))


# 11. The charge is a write of its own; the transition follows a little later.
def _charges_first(_agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    s, actions = leader.step(s, event)
    seen = s.view.job()
    moves = [a for a in actions if isinstance(a, leader_words.Submit) and a.write.kind is Kind.NEXT]
    if not moves or seen is None:
        return s, actions
    rest, write = tuple(a for a in actions if a not in moves), moves[0].write
    put = write.txn.then[0]
    new = decode_job(put.value)
    if sum(n for _, n in new.spent) > sum(n for _, n in seen.job.spent):
        put = altered(put, value=encode(altered(seen.job, spent=new.spent, charged=new.charged)))
        return s, (*rest, leader_words.Submit(altered(write, txn=altered(write.txn, then=(put,)))))
    if new.spent and event.at < (s.stamps.gathered or 0.0) + 3.0:
        return altered(s, busy=-1), (*rest, leader_words.Wake(event.at + 0.5, "not yet"))
    return s, actions


# 12. ready is written when the ranks are told to stop, not when they are proven dead.
def _early(_agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    s, actions = node.step(s, event)
    for action in actions:
        if isinstance(action, words.Terminate | words.Kill):
            s, more = node.step(s, words.NothingLeft(event.at, action.round))
            actions += more
    return s, actions


# 14. A leaving agent goes at once: its lease is revoked while its ranks live.
def _leaves_first(agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    if isinstance(event, words.LeaveAsked) and s.ranks is not Ranks.NONE:
        agent.world.store.revoke(s.inc)
    return node.step(s, event)


# 15. Done by any: one member that has finished speaks for all.
def _done_by_any(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    if isinstance(event, leader_words.Changed):
        keys, events = agent.world.cfg.keys, list(event.batch.events)
        for e in event.batch.events:
            kind, _, rest = e.key[len(keys.prefix) :].partition("/")
            roster = agent.world.truth.rosters.get(int(rest.partition("/")[0])) if kind == "finished" else None
            if e.kv and roster:
                names = [keys.report("finished", roster.round, m.node, m.inc) for m in roster.members]
                events += [altered(e, key=k, kv=altered(e.kv, key=k)) for k in names if k != e.key]
        event = altered(event, batch=WatchBatch(tuple(events)))
    return leader.step(s, event)


# 15. A member that has finished is lost when its lease goes.
def _forgets_finished(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    keys, seen = agent.world.cfg.keys, s.view.job()
    if seen is None:
        return leader.step(s, event)
    here = {(node, standby.record.inc) for node, standby in s.view.nodes().items()}
    before = s.view.reports("finished", seen.job.round)
    gone = {keys.report("finished", seen.job.round, *who) for who in before if who not in here}
    if gone:
        tree = {key: kv for key, kv in s.view.tree.items() if key not in gone}
        s = altered(s, view=altered(s.view, tree=tree))
    return leader.step(s, event)


# 19. Each node takes the newest checkpoint when it starts its ranks.
def _newest_at_start(agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    s, actions = node.step(s, event)
    return s, tuple(_with_own_choice(agent, a) if isinstance(a, words.Start) else a for a in actions)


def _with_own_choice(agent: Agent, start: words.Start) -> words.Start:
    path, step = agent.world.work.newest()
    if agent.world.rng.random() < 0.3:
        path, step = "an older one: this node's view of the file system is late", step - 1
    assert start.job.resume
    return altered(start, job=altered(start.job, resume=altered(start.job.resume, path=path, step=step)))


# Words of old rounds are never deleted.
def _keeps_all(_agent: Agent, wanted: Write) -> Write:
    then = tuple(op for op in wanted.txn.then if not isinstance(op, Delete))
    return altered(wanted, txn=altered(wanted.txn, then=then))


# A place is a wish: the order of joining decides who runs where.
def _no_places(_agent: Agent, kv: KeyValue) -> KeyValue:
    if "/nodes/" not in kv.key:
        return kv
    return altered(kv, value=encode(altered(decode_node(kv.value), place=NO_PLACE)))


# Whoever joins takes the launch's terms for its own.
def _any_terms(_agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    if isinstance(event, words.Rereading) and event.terms:
        own = Terms(s.settings.node, s.settings.terms)
        event = altered(event, terms=altered(event.terms, value=encode(own)))
    return node.step(s, event)


def _own_node(agent: Agent, guard: Any) -> bool:
    return guard.field is Field.LEASE and guard.key == agent.world.cfg.keys.node(agent.node.settings.node)


def _job_revision(agent: Agent, guard: Any) -> bool:
    return guard.field is Field.MOD and guard.key == agent.world.cfg.keys.job


def _node_revision(_agent: Agent, guard: Any) -> bool:
    return guard.field is Field.MOD and "/nodes/" in guard.key


PLANTS = (
    Rules("hole 1: members of the last round forgotten", leader=_no_last_round, write=_fails_with_members),
    Rules("hole 2: starts without looking at the deadline", may_start=_starts_anyway),
    Rules("hole 2: a kill leaves queued starts", kill_cancels=False),
    Rules("hole 3: membership by node name", node=_by_name),
    Rules("hole 4: the leader revokes a slow member's lease", leader=_impatient),
    Rules("hole 4: keepalives go on while the loop hangs", keepalive_thread=True),
    Rules("hole 5: joins before the old guardian has swept", sweep_first=False),
    Rules("hole 5: the keeper revokes before the sweep", bury_late=False),
    Rules("hole 6: fenced ranks unreported", node=_trusts_memory),
    Rules("hole 7: loss is an event", leader=_edge_triggered),
    Rules("hole 8: never-started member is silent", node=_silent),
    Rules("hole 9: a finished id begins at round 1 again", write=_resets),
    Rules("hole 11: the charge in its own write", leader=_charges_first),
    Rules("hole 12: ready before the proof", node=_early),
    Rules("hole 12: ready is not monotone", write=_without((Kind.READY,), _node_revision)),
    Rules("hole 13: stop without comparing the revision of job", write=_without((Kind.STOP,), _job_revision)),
    Rules("hole 14: leaves before its ranks are dead", node=_leaves_first),
    Rules("hole 15: a finished member whose lease goes is lost", leader=_forgets_finished),
    Rules("hole 15: done by any member", leader=_done_by_any),
    Rules("hole 19: every node takes the newest checkpoint", node=_newest_at_start),
    Rules("no fence: the guardian does not kill at the deadline", fences=False, may_start=_starts_anyway),
    Rules("the lease guard dropped", write=_without(tuple(Kind), _own_node)),
    Rules("old words are kept for ever", write=_keeps_all),
    Rules("places: two that ask for the same one are both members", leader=sees(_no_places)),
    Rules("terms: they are not compared", node=_any_terms),
)
