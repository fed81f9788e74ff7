"""What may go wrong, how often, and how it does. Every fault here costs one of the setting's budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuster.agent import node_words as words
from remuster.agent.fence import Fence
from remuster.rendezvous import leader_words
from remuster.rendezvous.records import Incarnation, Round

from . import calls, guardian
from .play import Play, Scene
from .values import DEAD, DOWN, FROZEN, HUNG, LIVE, NOW, STOPPED, UP, Around, Node

Move = tuple[Any, ...]

FAULT = "fault"
HELD_UP = ("ready", "stop", "finished", "lost", "next", "close", "done", "fail", "evidence", "started", "master")


def faults(scene: Scene, around: Around, i: int, n: Node, reached: bool) -> Iterator[tuple[str, Move]]:
    """Yield what may go wrong with a node, of what is left to go wrong."""
    process, alive = n.process, n.rank is not None and n.rank.alive
    for kind, left in around.left[1]:
        match kind:
            case _ if not left:
                continue
            case "rank" | "guardian":
                possible = alive and (kind == "rank" or process in (UP, STOPPED))
            case "crash" | "power":
                possible = process in (UP, STOPPED)
            case "stop" | "hang" | "freeze":
                possible = process == UP
            case "leave":
                possible = process == UP and bool(n.lease) and not scene.machines.nodes[n.machine].leaving
            case "cut":
                possible = n.linked and process in (UP, STOPPED)
            case "checkpoint":
                possible = alive
            case "delay":
                if reached and process == UP and around.late is None:
                    for call in n.calls:
                        if call[0] in HELD_UP and call[0] in scene.setting.lag:
                            yield FAULT, ("delay", i, call)
                continue
            case _:
                continue
        if possible:
            yield FAULT, (kind, i)


def _spend(play: Play, kind: str) -> None:
    total, kinds = play.around.left
    left = tuple((k, n - (k == kind)) for k, n in kinds)
    play.around = play.around._replace(left=(total - 1, left))


def _rank(play: Play, i: int) -> None:
    _spend(play, "rank")
    guardian.end(play, i, 1)


def _guardian(play: Play, i: int) -> None:
    """Kill the guardian: its ranks die with it, the agent proves it and has another one."""
    _spend(play, "guardian")
    n = play.node(i)
    owed = n.kills
    n.kills, n.order = (), None
    number = n.rank.round if n.rank else 0
    guardian.slay(play, n)
    guardian.say(play, i, words.GuardianLost(NOW, Round(number)))
    for other in owed:
        guardian.say(play, i, words.NothingLeft(NOW, Round(other)))
    n.fence = Fence().lease(n.lease, LIVE) if n.ahead else Fence()


def _crash(play: Play, i: int) -> None:
    _spend(play, "crash")
    play.clear(i, DOWN)


def _power(play: Play, i: int) -> None:
    _spend(play, "power")
    play.clear(i, DEAD)


def _stop(play: Play, i: int) -> None:
    _spend(play, "stop")
    play.node(i).process = STOPPED


def _hang(play: Play, i: int) -> None:
    _spend(play, "hang")
    play.node(i).process = HUNG


def _freeze(play: Play, i: int) -> None:
    _spend(play, "freeze")
    play.node(i).process = FROZEN


def _cut(play: Play, i: int) -> None:
    _spend(play, "cut")
    play.node(i).linked = False


def _outage(play: Play) -> None:
    _spend(play, "outage")
    play.around = play.around._replace(reachable=False)


def _leave(play: Play, i: int) -> None:
    _spend(play, "leave")
    if play.rules.leaves_first:
        calls.drop_lease(play, play.node(i).lease)
    play.take(i, words.LeaveAsked(NOW, 15))


def _checkpoint(play: Play, i: int) -> None:
    _spend(play, "checkpoint")
    play.ledger = play.ledger._replace(checkpoint=play.ledger.checkpoint + 1)


def _delay(play: Play, i: int, call: Any) -> None:
    """Hold a write up: its sender hears nothing, and it may be applied at any time."""
    _spend(play, "delay")
    n = play.node(i)
    play.drop_call(n, call)
    _, token, number, inc = call
    play.around = play.around._replace(late=(number, i, inc))
    wanted = play.m.writes[number]
    if token:
        play.seat(i, leader_words.Wrote(NOW, wanted.kind, None))
    else:
        play.take(i, words.Wrote(NOW, wanted.kind, wanted.round, Incarnation(inc), None))


HAPPEN: dict[str, Any] = {
    "rank": _rank,
    "guardian": _guardian,
    "crash": _crash,
    "power": _power,
    "stop": _stop,
    "hang": _hang,
    "freeze": _freeze,
    "cut": _cut,
    "outage": _outage,
    "leave": _leave,
    "checkpoint": _checkpoint,
    "delay": _delay,
}
