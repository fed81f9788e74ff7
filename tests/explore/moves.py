"""Every step that may be taken in a world, and taking it.

A move is (kind, node, …). Its class says who takes it: FAIR by the protocol's own means and healing, RANKS by what
ranks do by themselves, FAULT by bad luck (``faults.py``). That a lease ends in the store only after the guardian's
deadline is an enabling condition here, as in the protocol's model: the arithmetic is ``agent/lease.py``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuster.agent import node_words as words
from remuster.rendezvous import leader_words
from remuster.rendezvous.records import decode_job

from . import calls, guardian, truth
from .calls import AT_HOME, BY_SEAT, SEAT
from .faults import FAULT, HAPPEN, Move, faults
from .play import Play, Scene
from .store import Stand
from .values import (
    DEAD,
    DOWN,
    ENDING,
    EXITED,
    FROZEN,
    HUNG,
    KEYS,
    LONG,
    NOW,
    ON,
    STOPPED,
    UP,
    Around,
    Ledger,
    Node,
    World,
    owner,
)

FAIR, RANKS = "fair", "ranks"


def beginning(scene: Scene) -> World:
    """Return the world in which nothing has happened, or, if the setting is warm, the one in which round 1 runs."""
    setting = scene.setting
    nothing = scene.nodes.number(Node())
    first = scene.stands.number(Stand())
    world = World(first, Ledger(), Around((0, ())), (nothing,) * len(setting.nodes))
    if setting.warm:
        on = [i for i, name in enumerate(setting.nodes) if name.isupper()]
        for i in on:
            world = taken(scene, world, ("begin", i))
        while moves := [m for kind, m in moves_of(scene, world) if kind is FAIR and m[0] != "begin"]:
            world = taken(scene, world, moves[0])
    return world._replace(around=Around(setting.harm))


def taken(scene: Scene, world: World, move: Move, notes: list[str] | None = None) -> World:
    """Return the world after ``move``; Violation when an invariant does not hold any more."""
    play = Play(scene, world, notes)
    TAKE[move[0]](play, *move[1:])
    return play.frozen()


def moves_of(scene: Scene, world: World) -> Iterator[tuple[str, Move]]:
    """Yield all moves of a world with their class."""
    around = world.around
    nodes = [scene.nodes[number] for number in world.nodes]
    leases = scene.stands[world.store].leases
    for i, n in enumerate(nodes):
        reached = n.linked and around.reachable
        yield from _of_agent(scene, i, n, reached, leases)
        yield from _of_guardian(scene, i, n, reached)
        yield from _of_ranks(scene, world.ledger, i, n)
        if around.left[0]:
            yield from faults(scene, around, i, n, reached)
    yield from _of_store(scene, world, nodes, leases)


def _of_agent(scene: Scene, i: int, n: Node, reached: bool, leases: tuple[int, ...]) -> Iterator[tuple[str, Move]]:
    lag, process = scene.setting.lag, n.process
    if process == DOWN and (n.old is None or not scene.rules.sweep_first):
        yield FAIR, ("begin", i)
    if process == STOPPED:
        yield FAIR, ("resume", i)
    if process == FROZEN:
        yield FAIR, ("thaw", i)
    if not n.linked and process not in (DEAD, EXITED):
        yield FAIR, ("heal", i)
    if process in (UP, STOPPED):
        for call in n.calls:
            what = call[0]
            if what in lag if what in AT_HOME else reached and what in lag:
                if what not in AT_HOME or process == UP:
                    yield FAIR, ("call", i, call)
            elif process == UP and (what == "answer" or (what == "reread" and reached and _holder(scene, n))):
                yield FAIR, ("call", i, call)
    if process != UP:
        return
    if n.words and (n.behind or "guardian" in lag):
        yield FAIR, ("hear", i)
    if reached and n.jobs and n.watch == ON:
        yield FAIR, ("job", i)
        if scene.setting.skip and len(n.jobs) > 1:
            yield FAIR, ("skip", i)
    if reached and n.keys and n.watch == ON:
        yield FAIR, ("leader", i)
    if reached and n.run and "run" in lag:
        yield FAIR, ("run", i)
    state = scene.machines.nodes[n.machine]
    if state.kill_at or (state.leaving and not reached):  # a leaving agent gives up only when it cannot be heard
        yield FAIR, ("wait", i, state.kill_at or state.leave_by)
    if n.patience:
        yield FAIR, ("patience", i)
    if n.lease and state.inc == n.lease and (n.lease not in leases if reached or n.linked is False else not n.ahead):
        yield FAIR, ("lost", i)  # the store says so, or has been silent for longer than a lease


def _holder(scene: Scene, n: Node) -> bool:
    """Tell whether the node waits for another machine to give up its name."""
    return scene.machines.nodes[n.machine].holder is not None


def _of_guardian(scene: Scene, i: int, n: Node, reached: bool) -> Iterator[tuple[str, Move]]:
    if n.process == FROZEN:
        if n.ahead:
            yield FAIR, ("deadline", i)
        return
    waits = n.order is None or n.order.behind or (n.order.held and n.fence.latched)
    if not waits and n.process != ENDING:
        yield FAIR, ("fork", i)
    if n.kills or n.process == ENDING:
        yield FAIR, ("kill", i)
    if n.old is not None:
        yield FAIR, ("sweep", i)
    renewing = (n.process == UP and reached) or (n.process == HUNG and scene.rules.keepalive_thread)
    if n.ahead and not renewing:
        yield FAIR, ("deadline", i)


def _of_ranks(scene: Scene, ledger: Ledger, i: int, n: Node) -> Iterator[tuple[str, Move]]:
    rank, setting = n.rank, scene.setting
    if rank is None or not rank.alive or n.process == FROZEN:
        return
    if rank.asked:
        yield FAIR, ("ends", i, -15)
    if setting.victims and ledger.hurt >= rank.round:
        yield RANKS, ("victim", i, 1)
    if setting.finish:
        yield RANKS, ("ends", i, 0)


def _of_store(scene: Scene, world: World, nodes: list[Node], leases: tuple[int, ...]) -> Iterator[tuple[str, Move]]:
    around = world.around
    if not around.reachable:
        yield FAIR, ("store back",)
        return
    if around.left[0] and dict(around.left[1]).get("outage"):
        yield FAULT, ("outage",)
    for lease in leases:
        if _may_end(scene, nodes[owner(lease)], lease, around):
            yield FAIR, ("expire", lease)
    if around.late is not None:
        yield FAIR, ("late",)
        yield FAIR, ("never",)


def _may_end(scene: Scene, n: Node, lease: int, around: Around) -> bool:
    """Tell whether the store may end a lease: not before the guardian's deadline, and all ranks are reaped by then."""
    if lease == n.lease and n.ahead:
        return scene.rules.early_expiry and not (n.process == UP and n.linked)
    if n.process == FROZEN:  # the one fault that no agent can prevent: its ranks are not dead, and do not run
        return True
    alive = any(r is not None and r.alive and r.inc == lease for r in (n.rank, n.old))
    return not (alive and scene.rules.fences)


# --- taking a step ----------------------------------------------------------------------------------------------------
def _resume(play: Play, i: int) -> None:
    play.node(i).process = UP


def _thaw(play: Play, i: int) -> None:
    """Let a machine go on; its ranks may run for an instant before its guardian does."""
    n = play.node(i)
    n.process = UP
    truth.together(play)
    if not n.ahead:
        guardian.fence(play, i)


def _heal(play: Play, i: int) -> None:
    play.node(i).linked = True


def _skip(play: Play, i: int) -> None:
    n = play.node(i)
    n.jobs = n.jobs[-1:]
    play.hear_job(i)


def _wait(play: Play, i: int, until: float) -> None:
    play.take(i, words.Tick(until))


def _patience(play: Play, i: int) -> None:
    play.node(i).patience = False
    play.seat(i, leader_words.Tick(NOW + LONG))


def _lost(play: Play, i: int) -> None:
    n = play.node(i)
    if play.rules.view_survives and play.reaches(n):
        calls.come_back(play, i)
        return
    play.take(i, words.LeaseLost(NOW))
    n.calls = tuple(c for c in n.calls if c[0] in SEAT or (c[0] in BY_SEAT and c[1]) or c[0] == "grant")


def _sweep(play: Play, i: int) -> None:
    n = play.node(i)
    n.old = None


def _expire(play: Play, lease: int) -> None:
    calls.drop_lease(play, lease)


def _store_back(play: Play) -> None:
    play.around = play.around._replace(reachable=True)
    for i in range(len(play.names)):
        play.node(i)


def _late(play: Play) -> None:
    assert play.around.late is not None
    number, i, inc = play.around.late
    play.around = play.around._replace(late=None)
    calls.write(play, i, ("late", 0, number, inc))


def _never(play: Play) -> None:
    play.around = play.around._replace(late=None)


TAKE: dict[str, Any] = {
    **HAPPEN,
    "begin": Play.begin,
    "resume": _resume,
    "thaw": _thaw,
    "heal": _heal,
    "call": calls.carry,
    "hear": Play.hear,
    "job": Play.hear_job,
    "skip": _skip,
    "leader": Play.hear_leader,
    "run": Play.hear_run,
    "wait": _wait,
    "patience": _patience,
    "lost": _lost,
    "fork": guardian.fork,
    "kill": guardian.kill,
    "sweep": _sweep,
    "deadline": guardian.deadline,
    "ends": guardian.end,
    "victim": guardian.end,
    "expire": _expire,
    "store back": _store_back,
    "late": _late,
    "never": _never,
}


def good(scene: Scene, world: World) -> bool:
    """Tell whether nothing more need happen: the job is over, a round runs on all its members, or too few are left."""
    kv = scene.stands.get(world.store, KEYS.job)
    nodes = [scene.nodes[number] for number in world.nodes]
    healthy = [n for n in nodes if n.process not in (DEAD, EXITED, HUNG) and not _leaving(scene, n)]
    if len(healthy) < scene.setting.low:
        return True
    if kv is None:
        return False
    job = decode_job(kv.value)
    if job.phase.over:
        return True
    if not (job.phase.value == "R" and job.master):
        return False
    some = False
    for m in truth.members_of(scene, world.store, job.round):
        if (job.round, m.node, m.inc) in world.ledger.finished:
            continue
        rank = nodes[owner(m.inc)].rank
        if rank is None or not rank.alive or (rank.round, rank.inc) != (job.round, m.inc):
            return False
        some = True
    return some


def _leaving(scene: Scene, n: Node) -> bool:
    return bool(n.machine) and scene.machines.nodes[n.machine].leaving is not None
