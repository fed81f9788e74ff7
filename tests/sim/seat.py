"""The shell of the job machine in virtual time, with stubs for the judge and for the choice of a resume point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuster.rendezvous import leader_state, leader_words
from remuster.rendezvous.gate import NOBODY, Blame
from remuster.rendezvous.records import Memory, Outcome
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import Range
from remuster.rendezvous.writes import Charge

from .rules import Revoke
from .store import Watching

if TYPE_CHECKING:
    from .agents import Agent

AGAIN_S, LOOK_EVERY_S = 0.2, 5.0


class Seat:
    """One term of one leader: it ends when the machine deposes itself or the agent's lease is gone."""

    def __init__(self, agent: Agent, token: int) -> None:
        from .agents import Alarm

        self.agent = agent
        self.world = agent.world
        self.token = token
        self.open = True
        self.said = ""
        self.watching: Watching | None = None
        self.alarm = Alarm(agent, lambda: self.take(leader_words.Tick(agent.clock())))
        self.state = leader_state.Leader(agent.node.own, self.world.cfg.limits, Snapshot(self.world.cfg.keys))
        self._read()

    def _read(self) -> None:
        keys, store = self.world.cfg.keys, self.world.store
        self.agent.call(lambda: store.range(keys.prefix, keys.end), self._found)

    def _found(self, found: Range | None) -> None:
        if not self.open:
            return
        if found is None:
            self.world.after(AGAIN_S, lambda: self.agent.post("timer", lambda: self._read() if self.open else None))
            return
        self.take(leader_words.Elected(self.agent.clock(), self.token, found))
        if self.open:
            self.watching = self.world.store.watch(self.agent, None, found.revision + 1, self._changed)

    def _changed(self, batch: Any) -> None:
        self.take(leader_words.Changed(self.agent.clock(), batch))

    def take(self, event: leader_words.Event) -> None:
        """Give the job machine an event and carry out what it wants."""
        if not self.open:
            if self.watching:
                self.watching.open = False
            return
        if not isinstance(event, leader_words.Changed):
            self.world.note(self.agent.name, "leader <", event)
        self.state, actions = self.world.rules.leader(self.agent, self.state, event)
        for action in actions:
            self._do(action)

    def _do(self, action: Any) -> None:
        world, agent = self.world, self.agent
        if not isinstance(action, leader_words.Wake):
            world.note(agent.name, "leader >", action)
        match action:
            case leader_words.Submit(write=write):
                self.said = write.reason
                agent.submit(write, "leader", lambda w, r: leader_words.Wrote(agent.clock(), w.kind, r))
            case leader_words.Conclude():
                world.after(world.rng.random() * 0.5, lambda: agent.post("judge", lambda: self._conclude(action)))
            case leader_words.SelectResume(round=n):
                world.truth.choosing(n)
                world.after(world.rng.random() * 1.0, lambda: agent.post("judge", lambda: self._select(action)))
            case leader_words.AwaitCheckpoint(round=n, again=again, reason=reason):
                self.said = reason
                world.after(
                    again * LOOK_EVERY_S + world.rng.random(), lambda: agent.post("look", lambda: self._look(n))
                )
            case leader_words.Prove(round=n, above=above, before=before, reason=reason):
                self.said = reason
                world.stats["re-entries whose steps agree"] += not before
                world.after(1.0 + before, lambda: agent.post("look", lambda: self._prove(n, above)))
            case leader_words.Wake(at=at, reason=reason):
                self.said = reason
                self.alarm.set(at)
            case leader_words.Depose():
                world.stats["deposed"] += 1
                agent.depose()
            case leader_words.Abandon(reason=reason):
                world.stats["abandoned by its leader"] += 1
                agent.fail(reason)
            case Revoke(inc=inc):
                agent.call(lambda: world.store.revoke(inc), lambda _: None)
            case _:
                raise AssertionError(f"the simulator does not know {action!r}")

    def _conclude(self, ask: leader_words.Conclude) -> None:
        """Charge each failed round, unless a node left or not all had started; stop when the budget is spent."""
        job, at = ask.job, self.agent.clock()
        kept = Charge(job.spent, job.charged, job.memory)
        blame, pause = self._blame(ask)
        if job.notice:
            self.take(leader_words.Concluded(at, ask.round, False, kept, Outcome(75, "notice"), b"{}", ask.done))
            return
        if ask.done:
            self.take(leader_words.Concluded(at, ask.round, False, kept, Outcome(0, "done"), b"{}", True))
            return
        if job.cause is not None and job.cause.kind == "admit":
            self.take(leader_words.Concluded(at, ask.round, True, kept, Outcome(0, ""), b"{}"))
            return
        if not ask.all_started or (job.cause is not None and job.cause.kind == "leave"):
            charge = Charge(job.spent, job.charged, Memory(free=job.memory.free + 1))
            free = leader_words.Concluded(at, ask.round, True, charge, Outcome(0, ""), b"{}", blame=blame)
            self.take(free)
            return
        retry = job.charged < self.world.cfg.budget
        spent = sum(n for _, n in job.spent) + 1
        charge = Charge((("unknown", spent),), job.charged + 1, Memory())
        over = Outcome(1, "budget spent")
        self.take(leader_words.Concluded(at, ask.round, retry, charge, over, b"{}", blame=blame, pause_s=pause))

    def _blame(self, ask: leader_words.Conclude) -> tuple[Blame, int]:
        """Lay some failures on the node that they came from."""
        cfg, rng, cause = self.world.cfg, self.world.rng, ask.job.cause
        if not cfg.blames or cause is None or cause.kind == "admit":
            return NOBODY, 0
        blame = Blame(cause.node, True, rng.random() < cfg.asides) if rng.random() < cfg.blames else NOBODY
        return blame, rng.choice((0, 0, 1, 8))

    def _look(self, n: int) -> None:
        step = None if self.world.rng.random() < 0.05 else self.world.work.newest()[1]
        self.take(leader_words.CheckpointSeen(self.agent.clock(), n, step))

    def _prove(self, n: Any, above: int) -> None:
        newest = self.world.work.newest()[1]
        step = newest if newest > above else None
        self.world.stats["re-entries that are proven"] += step is not None
        self.take(leader_words.ProofSeen(self.agent.clock(), n, step))

    def _select(self, ask: leader_words.SelectResume) -> None:
        self.take(self.world.views.chosen(self.agent, ask))
