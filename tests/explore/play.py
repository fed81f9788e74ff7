"""One step in the making: worlds are thawed into it, changed, and frozen again.

What an agent does follows ``agent/loop.py``, ``agent/leading.py`` and ``agent/crew.py`` action by action. What is not
in the setting's ``lag`` is answered within the same step (``_settle``), in the order of the nodes: a call to the store
by an agent that reaches it, news of a leader, the guardian's word. A setting with all in ``lag`` has every order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.rules import Revoke

from remuster.agent import node_words as words
from remuster.rendezvous import leader_words
from remuster.rendezvous.writes import Kind

from . import calls, guardian, truth
from .machines import Machines
from .rules import Rules
from .setting import Setting
from .store import Stands
from .values import (
    DEAD,
    DOWN,
    ENDING,
    EXITED,
    KEYS,
    LIVE,
    LONG,
    NONE,
    NOW,
    ON,
    PAUSE,
    UP,
    Node,
    Pool,
    Violation,
    World,
)

FIELDS = Node._fields


class Scene:
    """What all worlds of one search share."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self.setting = setting
        self.rules = rules
        self.machines = Machines(setting, rules)
        self.stands = Stands()
        self.nodes: Pool[Node] = Pool()


class Thawed:
    """A node that may be changed."""

    __slots__ = (*FIELDS, "pause", "seat_pause")

    def __init__(self, node: Node) -> None:
        for name, value in zip(FIELDS, node, strict=True):
            setattr(self, name, value)
        self.pause = self.seat_pause = False  # a Tick is due at once

    def frozen(self) -> Node:
        return Node(*[getattr(self, name) for name in FIELDS])


class Play:
    """The world while one step is taken."""

    def __init__(self, scene: Scene, world: World, notes: list[str] | None = None) -> None:
        self.scene = scene
        self.m = scene.machines
        self.rules = scene.rules
        self.lag = scene.setting.lag
        self.names = scene.setting.names
        self.stand, self.ledger, self.around, self._frozen = world
        self.thawed: dict[int, Thawed] = {}
        self.notes = notes  # what happened, for a trace

    def note(self, text: Callable[[], str]) -> None:
        if self.notes is not None:
            self.notes.append(text())

    def node(self, i: int) -> Thawed:
        found = self.thawed.get(i)
        if found is None:
            found = self.thawed[i] = Thawed(self.scene.nodes[self._frozen[i]])
        return found

    def peek(self, i: int) -> Node | Thawed:
        return self.thawed.get(i) or self.scene.nodes[self._frozen[i]]

    def all(self) -> list[Node | Thawed]:
        return [self.peek(i) for i in range(len(self._frozen))]

    def frozen(self) -> World:
        """Let all that is answered at once be answered, and return the world after the step."""
        self._settle()
        nodes = list(self._frozen)
        for i, node in self.thawed.items():
            nodes[i] = self.scene.nodes.number(node.frozen())
        return World(self.stand, self.ledger, self.around, tuple(nodes))

    def reaches(self, node: Node | Thawed) -> bool:
        return node.linked and self.around.reachable

    def leases(self) -> tuple[int, ...]:
        return self.scene.stands[self.stand].leases

    # -- what follows at once

    def _settle(self) -> None:
        going = True
        while going:
            going = False
            for i, n in list(self.thawed.items()):
                while n.process == UP and self._one(i, n):
                    going = True

    def _one(self, i: int, n: Thawed) -> bool:
        """Let one thing happen that does not wait; False when there is none."""
        if n.words and not n.behind and "guardian" not in self.lag:
            self.hear(i)
            return True
        reached = self.reaches(n)
        for call in reversed(n.calls):  # a revocation before the look at what it has done
            if call[0] not in self.lag and (reached or call[0] in calls.AT_HOME) and not self._in_vain(n, call):
                calls.carry(self, i, call)
                return True
        if n.watch == ON and n.jobs and n.machine:
            seen = self.m.nodes[n.machine].job
            if seen is not None and self.m.values[n.jobs[0]].mod_revision <= seen.mod:
                n.jobs = n.jobs[1:]  # the answer to a write has said it already
                return True
        if reached and self._reached(i, n):
            return True
        if n.pause:
            n.pause = False
            self.take(i, words.Tick(NOW + PAUSE))
            return True
        if n.seat_pause:
            n.seat_pause = False
            self.seat(i, leader_words.Tick(NOW + PAUSE))
            return True
        return False

    def _reached(self, i: int, n: Thawed) -> bool:
        """Let one thing happen that the store says by itself."""
        if n.lease in self.leases() and (not n.ahead or (n.fence.latched and n.fence.known)):
            self.renewed(i, n)
            return True
        if n.watch == ON and n.keys and n.keys[0][0] and "leader key" not in self.lag:
            self.hear_leader(i)
            return True
        if n.run and "run" not in self.lag:
            self.hear_run(i)
            return True
        return False

    def _in_vain(self, n: Thawed, call: tuple[Any, ...]) -> bool:
        """Tell whether a call would only be made again after a pause; then it waits for what must come first."""
        if call[0] == "roster":
            return bool(n.jobs) and self.scene.stands.get(self.stand, KEYS.roster(call[1])) is None
        return call[0] == "reread" and self.m.nodes[n.machine].holder is not None

    def renewed(self, i: int, n: Thawed) -> None:
        """A keepalive was acknowledged: the deadline moves, the guardian opens again if the fence is known."""
        n.ahead = True
        n.fence = n.fence.lease(n.lease, LIVE)
        self.note(lambda: f"{self.names[i]}: its lease is renewed")

    # -- events into the machines

    def take(self, i: int, event: words.Event) -> None:
        """Give the node machine an event and carry out what it wants."""
        n = self.node(i)
        n.machine, actions = self.m.node(n.machine, event)
        for action in actions:
            if n.process == UP:
                self._do(i, n, action)

    def seat(self, i: int, event: leader_words.Event) -> None:
        """Give the job machine an event and carry out what it wants."""
        n = self.node(i)
        if not n.leader:
            return
        n.leader, actions = self.m.leader(n.leader, event)
        n.patience = False
        for action in actions:
            self._do(i, n, action)

    def begin(self, i: int) -> None:
        """Start an agent on the node."""
        n = self.node(i)
        n.process = UP
        n.machine, actions = self.m.begin(i)
        for action in actions:
            self._do(i, n, action)

    def hear(self, i: int) -> None:
        """Let the agent hear its guardian's next word."""
        n = self.node(i)
        word, n.words = n.words[0], n.words[1:]
        n.behind = n.behind and bool(n.words)
        self.take(i, self.m.values[word])

    def hear_job(self, i: int) -> None:
        n = self.node(i)
        number, n.jobs = n.jobs[0], n.jobs[1:]
        self.take(i, words.JobSeen(NOW, self.m.values[number]))

    def hear_leader(self, i: int) -> None:
        n = self.node(i)
        (number, revision), n.keys = n.keys[0], n.keys[1:]
        self.take(i, words.LeaderSeen(NOW, self.m.values[number], revision))

    def hear_run(self, i: int) -> None:
        n = self.node(i)
        number, n.run = n.run[0], n.run[1:]
        self.seat(i, leader_words.Changed(NOW, self.m.values[number]))

    # -- actions of both machines

    def _do(self, i: int, n: Thawed, action: Any) -> None:
        match action:
            case words.Wake(at=at):
                n.pause = n.pause or at <= NOW + PAUSE
            case leader_words.Wake(at=at):
                if at <= NOW + PAUSE:
                    n.seat_pause = True
                elif at <= NOW + LONG:
                    n.patience = True
            case words.Grant():
                self._stop_following(n)
                self.call(n, ("grant",))
            case words.Reread():
                self.call(n, ("reread",))
            case words.Watch():
                n.watch = ON
            case words.Tell() | words.Notify():
                pass
            case words.Submit(write=write):
                number = self.m.writes.number(self.rules.write(self.names[i], write))
                self.call(n, (write.kind.value, 0, number, self.m.nodes[n.machine].inc))
            case leader_words.Submit(write=write):
                number = self.m.writes.number(self.rules.write(self.names[i], write))
                kind = "lost" if write.kind is Kind.STOP else write.kind.value
                own = self.m.leaders[n.leader]
                self.call(n, (kind, own.token, number, own.own.inc))
            case words.RevokeOld(inc=inc):
                self.call(n, ("revoke", inc))
            case words.ReadRoster(round=number):
                self.call(n, ("roster", number))
            case words.ReservePort(round=number):
                self.call(n, ("port", number))
            case words.Collect(round=number):
                self.call(n, ("collect", number))
            case words.Start():
                guardian.order(self, n, action)
            case words.Terminate(round=number):
                guardian.terminate(self, n, number)
            case words.Kill(round=number):
                n.kills += (number,)
            case words.AcknowledgeFence(inc=inc):
                if n.order is not None and not n.order.held and not n.order.behind:
                    guardian.fork(self, i)  # it was sent before: the socket keeps the order
                n.fence = n.fence.acknowledge(inc)
            case words.Lead(token=token):
                self._leave_seat(n)
                n.leader = self.m.elected(self.m.nodes[n.machine].own)
                self.call(n, ("elect", token))
                self.note(lambda: f"{self.names[i]}: leads")
            case words.Exit():
                self._exit(i, n, action)
            case leader_words.Conclude() | leader_words.SelectResume():
                truth.asks(self, action)
                what = "judge" if isinstance(action, leader_words.Conclude) else "resume"
                self.call(n, (what, self.m.values.number(action)))
            case leader_words.Depose():
                self._leave_seat(n)
            case Revoke(inc=inc):
                self.call(n, ("revoke", inc))
            case leader_words.Abandon(reason=reason):
                raise Violation("machine", f"{self.names[i]} must end: {reason}")
            case _:
                raise AssertionError(f"the explorer does not know {action!r}")

    def call(self, n: Thawed, call: tuple[Any, ...]) -> None:
        """Put a call on its way."""
        n.calls = tuple(sorted((*n.calls, call)))

    def drop_call(self, n: Thawed, call: tuple[Any, ...]) -> None:
        at = n.calls.index(call)
        n.calls = n.calls[:at] + n.calls[at + 1 :]

    def _stop_following(self, n: Thawed) -> None:
        n.watch, n.jobs, n.keys = NONE, (), ()
        self._leave_seat(n)

    def _leave_seat(self, n: Thawed) -> None:
        n.leader, n.run, n.patience, n.seat_pause = 0, (), False, False
        n.calls = tuple(c for c in n.calls if c[0] not in calls.SEAT and not (c[0] in calls.BY_SEAT and c[1]))

    # -- the guardian

    # -- ends

    def _exit(self, i: int, n: Thawed, action: words.Exit) -> None:
        truth.exits(self, i, action)
        self._stop_following(n)
        n.calls = ()
        n.process = ENDING
        if n.rank is None and n.order is None:
            self.gone(i, n)

    def gone(self, i: int, n: Thawed) -> None:
        """Let the agent's process end; its lease goes with it."""
        self.note(lambda: f"{self.names[i]}: ends")
        lease = n.lease
        self.clear(i, EXITED)
        if lease and self.reaches(n) and lease in self.leases():
            calls.drop_lease(self, lease)

    def clear(self, i: int, process: str) -> None:
        """Let the agent's process be gone, with all it knew; what its guardian has is for a sweep, unless power is."""
        n = self.node(i)
        old = n.rank if n.rank and n.rank.alive and process == DOWN else n.old
        if process == DEAD:
            guardian.hurt(self, n.rank)
            guardian.hurt(self, n.old)
            old = None
        for name, value in zip(FIELDS, Node(process, grants=n.grants, linked=n.linked, old=old), strict=True):
            setattr(n, name, value)
        n.pause = n.seat_pause = False
