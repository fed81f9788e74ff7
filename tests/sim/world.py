"""A run of remuster in virtual time: many agents, one store, one seed. Deterministic: same seed, same schedule.

``World(seed).play()`` runs a schedule to its end: faults at random times, then a fair phase in which the job must
end. It raises ``Violation`` with the tail of what happened. Tests and plants differ in the ``Rules`` that they give.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from remuster.agent.lease import Timing
from remuster.rendezvous.admission import Admit
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_words import Limits
from remuster.rendezvous.membership import Order
from remuster.rendezvous.records import Job

from .agents import Agent
from .faults import Injector
from .invariants import Truth, Violation
from .net import Net
from .parted import Parted
from .rules import Rules
from .store import SimStore
from .telling import tell
from .views import Views
from .work import Work

MOST_EVENTS = 60_000
FAIR_S = 900.0


@dataclass(frozen=True, slots=True)
class Config:
    """What the seed chose for this run."""

    nodes: int
    min_nodes: int
    max_nodes: int
    budget: int
    steps: int
    fault_phase_s: float
    faults: int
    grace_s: float
    limits: Limits
    patience_s: float = 90.0
    static: bool = False  # every node asks for its place
    blames: float = 0.0  # share of failures that are laid on a node
    asides: float = 0.4  # … of which, those whose node stands aside as well
    check: str = ""  # how the check of a blamed node ends; '' = by chance
    views: float = 0.0  # share of machines that may see other checkpoints than the rest
    fixed_views: bool = False  # … as a story says
    parted: bool = False  # each machine holds the files of its own ranks alone; with ``views``
    asks: bool = False  # there is a scheduler that says how much time is left, or does not
    hold: bool = False  # the first launch, and most later ones, are begun with --on-store-loss=hold
    timing: Timing = Timing(15, 3.0)
    keys: Keys = Keys("sim")


def drawn(rng: Random) -> Config:
    """Draw a configuration."""
    nodes = rng.randint(2, 6)
    low = rng.randint(1, nodes)
    high = rng.randint(low, nodes)
    limits = Limits(rng.choice((2.0, 5.0)), rng.choice((40.0, 80.0)), rng.choice((3.0, 18.0)))
    grace = rng.choice((1.0, 3.0, 6.0))
    steps, phase_s, faults = rng.randint(40, 160), rng.uniform(120, 300), rng.randint(5, 30)
    return Config(nodes, low, high, rng.randint(0, 5), steps, phase_s, faults, grace, limits)


def in_places(cfg: Config, rng: Random) -> Config:
    """Let some runs be static: nodes ask for their places, mostly all of a fixed number."""
    if rng.random() > 0.25:
        return cfg
    fixed = rng.random() < 0.7
    return replace(cfg, static=True, min_nodes=cfg.max_nodes if fixed else cfg.min_nodes)


def held(cfg: Config) -> Config:
    """Let ranks be held: the number of nodes is fixed then."""
    return replace(cfg, hold=True, min_nodes=cfg.max_nodes)


def with_newcomers(cfg: Config, rng: Random) -> Config:
    """Let most runs take newcomers into a running round, and some stand in the order of names."""
    admit = rng.choice((Admit.RESTART, Admit.NOW, Admit.NOW, Admit.CHECKPOINT))
    order = rng.choice((Order.STICKY, Order.STICKY, Order.HOSTNAME))
    return replace(cfg, limits=cfg.limits._replace(admit=admit, admit_after_s=rng.uniform(1.0, 15.0), order=order))


class World:
    """Everything of one schedule."""

    def __init__(
        self, seed: int, rules: Rules | None = None, cfg: Config | None = None, truth: type[Truth] = Truth
    ) -> None:
        self.seed = seed
        self.rules = rules or Rules()
        self.rng = Random(seed)
        self.cfg = cfg or with_newcomers(in_places(drawn(self.rng), Random(-1 - seed)), Random(-(10**6) - seed))
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = 0
        self.stats: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.trace: list[tuple[float, str, str, Any]] = []
        self.agents: list[Agent] = []
        self.truth = truth(self)
        self.net = Net(self)
        self.store = SimStore(self)
        self.work = Work(self, self.cfg.steps)
        self.views = Parted(self) if self.cfg.parted else Views(self)
        self.injector = Injector(self)

    # -- time

    def at(self, when: float, fn: Callable[[], Any]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, fn))

    def after(self, delay: float, fn: Callable[[], Any]) -> None:
        self.at(self.now + delay, fn)

    def note(self, who: str, what: str, about: Any) -> None:
        self.trace.append((self.now, who, what, about))

    def run(self, until: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until ``until``, or until ``enough``."""
        heap = self._heap
        while heap and heap[0][0] <= until and not enough():
            self.now, _, fn = heapq.heappop(heap)
            self.events += 1
            self.truth.expect(self.events < MOST_EVENTS, "9 liveness", "the machines go round in circles")
            fn()

    # -- playing

    def play(self) -> World:
        """Run the whole schedule; Violation, with its trace, when an invariant does not hold."""
        try:
            self.injector.begin()
            self.run(self.cfg.fault_phase_s)
            self.injector.heal()
            self.run(self.now + FAIR_S, self.settled)
            self._ended()
        except Violation as violation:
            violation.args = (f"seed {self.seed}, {self.rules.name}: {violation.args[0]}\n{self.story()}",)
            raise
        return self

    def living(self) -> list[Agent]:
        return [a for a in self.agents if a.alive and not a.hung]

    def settled(self) -> bool:
        """Tell whether nobody is left who could do anything."""
        return not self.injector.coming and not self.living() and not self.work.living()

    def phase_changed(self, old: Job, new: Job) -> None:
        self.views.ended(new)
        self.injector.phase_changed(new)

    def _ended(self) -> None:
        """(9) and (10): the job has ended, or nobody is left to run it."""
        job, expect = self.truth.job, self.truth.expect
        stuck = [a.name for a in self.living()]
        words = "; ".join(a.seat.said for a in self.living() if a.seat) or "nobody leads"
        state = "no job" if job is None else f"{job.phase.name}({job.round})"
        expect(not stuck, "9 liveness", f"{FAIR_S:g} s after the last fault {stuck} still run, at {state}: {words}")
        expect(not self.work.living(), "4 nothing is left", f"{self.work.living()} are left")
        self.run(self.now + 40.0)
        if job is not None and not job.phase.over:
            self.stats["abandoned: every agent was killed, left or gave up"] += 1
        self.truth.left_over(self.store.tree)

    def story(self, lines: int = 120) -> str:
        """Return the end of what happened, for a person; ``at`` of a node's own clock is left out."""
        out = [str(self.cfg)]
        out += [f"{at:9.3f} {who:>6} {what} {tell(about)}" for at, who, what, about in self.trace[-lines:]]
        return "\n".join(out)
