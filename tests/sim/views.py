"""What each machine sees of the checkpoints: the same, or its own mixture. With the rule that a round must keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuster.agent.node_words import Look, Looked
from remuster.rendezvous.agreement import NOT_FOR_ALL
from remuster.rendezvous.asked import Asked, Found, Sight
from remuster.rendezvous.leader_words import Resumed, SelectResume
from remuster.rendezvous.records import Job, ResumePoint, Roster
from remuster.rendezvous.tree import Tree

if TYPE_CHECKING:
    from .agents import Agent, Machine
    from .world import World

RULE = "18 agreement"
HAS, LACKS, TORN = "has", "lacks", "torn"
KINDS = ("shared", "shared", "shared", "late", "local", "torn", "away", "hangs")


class Views:
    """The machines' views; ``cfg.views`` is how many of them are not the shared one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kinds: dict[str, str] = {}  # of a machine: how its view is
        self.states: dict[tuple[str, int], str] = {}  # of a step on a machine
        self.answered: dict[tuple[int, tuple[int, int]], Sight] = {}  # by incarnation and question: what really was

    def kind(self, machine: Machine) -> str:
        if not self.world.cfg.views or self.world.injector.fair:
            return self.kinds.get(machine.name, "shared") if self.world.cfg.fixed_views else "shared"
        if machine.name not in self.kinds:
            odd = self.world.rng.random() < self.world.cfg.views
            self.kinds[machine.name] = self.world.rng.choice(KINDS) if odd else "shared"
        return self.kinds[machine.name]

    def state(self, machine: Machine, step: int) -> str:
        """Return how a published step looks on a machine; it stays so."""
        kind, rng = self.kind(machine), self.world.rng
        if kind in ("shared", "hangs"):
            return HAS
        if kind == "away":
            return LACKS
        if (machine.name, step) not in self.states:
            share = {"late": 0.3, "local": 0.7, "torn": 0.5}[kind]
            bad = TORN if kind == "torn" else LACKS
            self.states[machine.name, step] = bad if rng.random() < share else HAS
        return self.states[machine.name, step]

    def seen(self, machine: Machine) -> list[tuple[int, str]]:
        """Return the steps that stand on a machine, newest first, each with how it looks."""
        steps = reversed(self.world.work.checkpoints)
        return [(step, how) for step in steps if (how := self.state(machine, step)) != LACKS]

    # -- the leading agent

    def chosen(self, agent: Agent, ask: SelectResume) -> Resumed:
        """Choose as the product's search does: the newest that is whole here and that nobody objects to."""
        at = agent.clock()
        if not self.world.cfg.views:
            return Resumed(at, ask.round, ResumePoint(*self.world.work.newest()))
        against, refused = dict(ask.against), list[tuple[str, str]]()
        hinted = {name for name, *_ in ask.hints}
        for step, how in self.seen(agent.machine):
            name = f"step-{step:06d}"
            why = against.get(name, "")
            if not why and ask.within is not None and name not in ask.within and name not in hinted:
                why = NOT_FOR_ALL
            if not why and how == TORN:
                why = "torn"
            if not why:
                asked = Asked(0, 0, name, step, "sim", 1, 1, "d", "1@1")
                return Resumed(at, ask.round, ResumePoint(name, step, name=name), tuple(refused), question=asked)
            refused.append((name, why))
        return Resumed(at, ask.round, ResumePoint(), tuple(refused), question=Asked())

    # -- the others

    def look(self, agent: Agent, action: Look) -> None:
        """Look, which takes a while, and answer, unless the file system hangs."""
        rng, kind = self.world.rng, self.kind(agent.machine)
        self.world.stats["looks"] += 1
        if kind == "hangs":
            self.world.stats["looks that hang"] += 1
            return
        lasts = rng.random() * rng.choice((0.1, 0.1, 5.0))
        self.world.after(lasts, lambda: agent.post("look", lambda: self._looked(agent, action)))

    def _looked(self, agent: Agent, action: Look) -> None:
        asked, seen = action.asked, self.seen(agent.machine)
        how = dict(seen).get(asked.step, LACKS) if asked.name else HAS
        found = {HAS: Found.CAN, LACKS: Found.LACKS, TORN: Found.DIFFERS}[how]
        steps = tuple((f"step-{step:06d}", step) for step, state in seen if state == HAS or step <= asked.step)[:32]
        sight = Sight(asked.mark, found, "" if how == HAS else how, steps)
        self.answered[agent.inc, asked.mark] = sight
        self.world.stats[f"look: {found.value}"] += 1
        agent.take(Looked(agent.clock(), action.round, sight))

    # -- the rule

    def ended(self, new: Job) -> None:
        """Of how a job ends nothing is asked where the views alone differ."""

    def formed(self, old: Job, new: Job, roster: Roster, after: Tree) -> None:
        """No round runs with a resume point that a member had refused or was not asked about."""
        expect, n = self.world.truth.expect, new.round
        step = new.resume.step if new.resume else None
        leader = after.range(self.world.cfg.keys.leader).one()
        assert leader is not None
        others = [m for m in roster.members if m.inc != leader.lease]
        if not others:
            return
        asked = old.asked
        expect(asked is not None, RULE, f"round {n} resumes from {step}, and nobody was asked")
        assert asked is not None
        expect(asked.step == step, RULE, f"round {n} resumes from {step}, and was asked about {asked}")
        expect(asked.token == leader.create_revision, RULE, f"round {n}: another leader had asked")
        own = next(a for a in self.world.agents if a.lease == leader.lease)
        stand = {f"step-{one:06d}" for one, _ in self.seen(own.machine)}
        for m in others:
            sight = self.answered.get((m.inc, asked.mark))
            self.world.stats["answers checked"] += 1
            expect(sight is not None, RULE, f"round {n} resumes from {step}; {m.node} has not looked at {asked}")
            assert sight is not None
            expect(sight.found is Found.CAN, RULE, f"round {n} resumes from {step}; {m.node} said {sight}")
            unseen = [name for name, _ in sight.steps if name not in stand]
            lost = step == -1 and unseen
            expect(not lost, RULE, f"round {n} begins from nothing; {m.node} has {unseen}")
        if step == -1:
            whole = [one for one, how in self.seen(own.machine) if how == HAS]
            expect(not whole, RULE, f"round {n} begins from nothing; its leader has {whole}")
        newest = self.world.work.newest()[1]
        self.world.stats["resumed from an older one"] += step is not None and 0 <= step < newest
