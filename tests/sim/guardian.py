"""A guardian and its ranks in virtual time. What may start and what must die is decided by the product's ``Fence``."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from remuster.agent import node_words as words
from remuster.agent.fence import Fence
from remuster.rendezvous.reentered import Reentered, encode_reentered

if TYPE_CHECKING:
    from collections.abc import Callable

    from .agents import Agent
    from .world import World

SIGKILL = 9


class Rank:
    """One process of a round: alive until it is not."""

    def __init__(self, agent: Agent, round: int, inc: int, local: int) -> None:
        self.agent = agent
        self.round = round
        self.inc = inc
        self.local = local
        self.alive = True
        self.killed = False  # SIGKILL is on its way
        self.may_finish = True

    def __repr__(self) -> str:
        return f"rank {self.local} of round {self.round} on {self.agent.name}@{self.inc:x}"


class Pipe:
    """One direction of the socket between agent and guardian: in order, after a delay."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.last = 0.0

    def send(self, fn: Callable[[], None], delay: float) -> None:
        self.last = max(self.last, self.world.now + delay)
        self.world.at(self.last, fn)


class Guardian:
    """Parent of the ranks of one agent process; goes on while the agent is stopped."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.world = agent.world
        self.fence = Fence()
        self.queue: list[tuple[int, int]] = []
        self.ranks: list[Rank] = []
        self.round = 0
        self.killing: list[Callable[[tuple[int, ...]], Any]] = []
        self.alive = True
        self.orphaned = False
        self.crashed = False
        self.down = Pipe(agent.world)
        self.up = Pipe(agent.world)
        self.timer_at: float | None = None

    # -- words to and from the agent

    def tell(self, fn: Callable[[], None]) -> None:
        """Obey ``fn`` when it has come through the socket."""
        self.down.send(lambda: fn() if self.alive and not self.orphaned else None, self.agent.pipe_lag())

    def say(self, make: Callable[[float], Any]) -> None:
        """Tell the agent; the time is that at which it happened, however late it is read."""
        if not self.orphaned:
            agent, event = self.agent, make(self.agent.clock())
            self.up.send(lambda: agent.post("guardian", lambda: agent.take(event)), agent.pipe_lag())

    def lease(self, inc: int, deadline: float) -> None:
        before = self.fence
        self._watch_deadline()
        self.fence = self.fence.lease(inc, deadline)
        if inc != before.inc and self.ranks:
            n = self.round
            self._kill(lambda _: self.say(lambda at: words.FencedHere(at, n, before.inc)))
        self._arm()

    def acknowledge(self, inc: int) -> None:
        self.fence = self.fence.acknowledge(inc)

    def order(self, inc: int, action: words.Start) -> None:
        """Queue a start; it is forked a little later."""
        self.queue.append((action.round, inc))
        self.world.after(self.world.net.fork_delay(), lambda: self._fork(inc, action))

    def terminate(self, n: int) -> None:
        for rank in list(self.ranks):
            if rank.round == n and self.world.rng.random() < 0.8:
                delay = self.world.rng.random() * 1.2 * self.world.cfg.grace_s
                status = self.world.rng.choice((-15, 0, 143))
                self.world.after(delay, lambda r=rank, s=status: self.world.work.end_stopped(r, s))

    def stop(self) -> None:
        """Kill all there is; nobody waits for a word."""
        if self.alive:
            self._kill(None)

    def kill(self, n: int) -> None:
        self._kill(lambda left: self.say(lambda at: words.NothingLeft(at, n, left)))

    # -- starting

    def _fork(self, inc: int, action: words.Start) -> None:
        if not self.alive:
            return
        n = action.round
        queued = (n, inc) in self.queue
        if queued:
            self.queue.remove((n, inc))
        self._watch_deadline()
        refusal = None
        if not queued:
            refusal = "the orders were cancelled"
        elif self.killing:
            refusal = "the ranks of an earlier round are still being killed"
        elif self.ranks:
            refusal = "ranks of an earlier round are alive"
        refusal = refusal or self.world.rules.may_start(self.fence, inc, self.agent.clock())
        if refusal is not None:
            self.world.stats["start refused"] += 1
            self.say(lambda at: words.Refused(at, n, refusal or ""))
            return
        if self.world.net.exec_fails():
            self.say(lambda at: words.StartFailed(at, n, 0, 2, "train.py"))
            locals_ = range(1, self.agent.slots)
        else:
            locals_ = range(self.agent.slots)
        self.round = n
        self.ranks = [Rank(self.agent, n, inc, i) for i in locals_]
        for rank in self.ranks:
            self.world.truth.started(rank, action)
        self.say(lambda at: words.Started(at, n))
        if action.job.resume is not None and action.job.resume.path:
            self._reenter(n, self.agent)
        self.world.work.began(self.ranks, action)

    def _reenter(self, n: int, agent: Agent) -> None:
        """Have the ranks seen to go on from where they resumed, some time later or never."""
        rng = Random(self.world.seed * 1009 + n)  # its own: other draws stay what they were
        if rng.random() < 0.8:
            word = encode_reentered(Reentered(rng.randint(5, 20), "steps"))
            told = words.Reentered
            agent.world.after(
                rng.uniform(0.5, 15.0), lambda: agent.post("look", lambda: agent.take(told(agent.clock(), n, word)))
            )

    # -- ends

    def ended(self, rank: Rank, status: int) -> None:
        """A rank is dead and reaped."""
        if rank in self.ranks:
            self.ranks.remove(rank)
        if self.alive:
            self.say(lambda at: words.Exited(at, rank.round, rank.local, status, 100 + rank.local))
        self._proved()

    def _proved(self) -> None:
        if self.ranks or not (self.killing or self.orphaned or self.crashed):
            return
        if self.crashed:
            self.crashed = False
            self.agent.guardian_lost()
            return
        done, self.killing = self.killing, []
        self.round = 0
        if self.alive:
            for word in done:
                word(())
        if self.orphaned:
            self.alive = False

    def _kill(self, word: Callable[[tuple[int, ...]], Any] | None) -> None:
        if self.world.rules.kill_cancels:
            self.queue.clear()
        if word is not None:
            self.killing.append(word)
        self.slay()
        self._proved()

    def slay(self) -> None:
        """SIGKILL every rank: reaped within K."""
        for rank in self.ranks:
            if not rank.killed:
                rank.killed = True
                delay = self.world.rng.random() * self.world.cfg.timing.kill_bound_s
                self.world.after(delay, lambda r=rank: self.world.work.end(r, -SIGKILL))

    # -- the fence

    def _arm(self) -> None:
        if self.timer_at is None and not self.fence.latched and self.fence.inc and self.world.rules.fences:
            self.timer_at = self.agent.world_time(self.fence.deadline_s)
            self.world.at(max(self.timer_at, self.world.now), self._ring)

    def _ring(self) -> None:
        self.timer_at = None
        if self.alive:
            self._watch_deadline()
            self._arm()

    def _watch_deadline(self) -> None:
        if not self.world.rules.fences or not self.fence.due(self.agent.clock() + 1e-7):
            return
        inc, n = self.fence.inc, self.round
        self.fence = self.fence.fenced()
        self.world.stats["fenced"] += 1
        self.world.stats["fenced with ranks alive"] += bool(self.ranks)
        self.world.note(self.agent.name, "guardian fences", n)
        self._kill(lambda _: self.say(lambda at: words.FencedHere(at, n, inc)))

    # -- being left, dying

    def orphan(self) -> None:
        """The agent is gone: sweep, then leave; the node's lock is held until then."""
        if self.alive and not self.orphaned:
            self.orphaned = True
            self._kill(None)

    def crash(self) -> None:
        """Die; the ranks die with their parent, and the agent proves it."""
        self.alive = False
        self.crashed = not self.orphaned
        self.queue.clear()
        self.slay()
        self._proved()

    @property
    def holds_lock(self) -> bool:
        return self.alive or bool(self.ranks)
