"""A scripted run for the stories: no random harm, what happens is said by the test, the end is read as a text."""

from __future__ import annotations

import re
from collections.abc import Callable

from remuster.agent.node_words import LeaveAsked, NoticeGiven
from remuster.rendezvous.admission import Admit
from remuster.rendezvous.leader_words import Limits
from remuster.rendezvous.membership import Order

from .agents import Agent
from .rules import Rules
from .world import Config, World


class Scene:
    """Some nodes with their slots, begun half a second apart in the order given."""

    def __init__(
        self,
        nodes: dict[str, int],
        low: int,
        high: int,
        *,
        budget: int = 3,
        rules: Rules | None = None,
        places: dict[str, int] | None = None,
        hold: bool = False,
        admit: Admit = Admit.RESTART,
        order: Order = Order.STICKY,
    ):
        limits = Limits(5.0, 60.0, 18.0, admit, 20.0, order)  # last call, join, gather; admit after
        cfg = Config(len(nodes), low, high, budget, 60, 0.0, 0, 2.0, limits, static=places is not None, hold=hold)
        self.world = World(1, rules, cfg)
        self.places = places or {}
        self.world.net.calm()
        self.world.work.victims = self.world.work.unharmed = 0.0
        self.world.injector.fair = True  # nothing happens by chance
        for i, (name, slots) in enumerate(nodes.items()):
            self.begin(name, slots, at=0.5 * i)

    def begin(self, name: str, slots: int = 1, at: float = 0.0, *, fresh: bool = False) -> None:
        """Start an agent on a machine of its own, or again on the one that it has."""
        if name not in self.world.injector.home:
            self.world.injector.place(name, slots=slots, place=self.places.get(name, -1))
        self.world.injector.bring(name, max(0.0, at - self.world.now), fresh=fresh)

    def launch_again(self, *, fresh: bool = False) -> None:
        """Start every node's agent under the next launch id."""
        self.world.injector.launch += 1
        for i, name in enumerate(sorted(self.world.injector.home)):
            self.begin(name, at=self.world.now + 0.5 * i, fresh=fresh)

    def until(self, when: float | Callable[[], bool]) -> None:
        """Let time pass."""
        if callable(when):
            self.world.run(self.world.now + 600.0, when)
            assert when(), self.world.story()
        else:
            self.world.run(when)

    def until_training(self, n: int) -> None:
        """Let time pass until all ranks of round ``n`` have trained for ten seconds."""
        groups = self.world.work.groups
        self.until(lambda: n in groups and groups[n].began_at is not None)
        self.until(self.world.now + 10.0)

    def until_over(self) -> None:
        """Let time pass until every agent has ended."""
        self.until(self.world.settled)

    def agent(self, name: str) -> Agent:
        return next(a for a in self.world.living() if a.name == name)

    def leader(self) -> str:
        return next(a.name for a in self.world.living() if a.seat)

    def fail_rank(self, name: str) -> None:
        self.world.work.end(next(r for r in self.world.work.living() if r.agent.name == name), 1)

    def power_off(self, name: str) -> None:
        self.agent(name).lose_power()

    def cut_off(self, name: str) -> None:
        self.agent(name).cut = True

    def heal(self, name: str) -> None:
        self.agent(name).cut = False
        self.world.store.poke()

    def leave(self, name: str) -> None:
        agent = self.agent(name)
        agent.leaving = True
        agent.take(LeaveAsked(agent.clock(), 15))

    def notice(self, name: str) -> None:
        agent = self.agent(name)
        agent.take(NoticeGiven(agent.clock()))

    def job(self) -> list[str]:
        """Return what became of the job, step by step, without times and step numbers."""
        steps = [re.sub(r"from step \d+", "from a checkpoint", line[8:]) for line in self.world.truth.chronicle]
        return [line for line in steps if not re.fullmatch(r"R\(\d+\) at .*", line)]

    def exits(self) -> dict[str, int]:
        """Return each node's last exit code."""
        return {who: about[0] for _, who, what, about in self.world.trace if what == "EXIT"}

    def last_words(self, name: str) -> str:
        """Return the sentence with which a node's agent ended."""
        return next(about[1] for _, who, what, about in reversed(self.world.trace) if (who, what) == (name, "EXIT"))
