"""One agent process in virtual time: the node machine, what its shell does with the actions, and the keepalives.

Mirrors the shell: one loop (an inbox per source while it is stopped), one alarm of which the earliest time counts,
keepalives sent by that very loop, a deadline that counts from when the acknowledged renewal was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_enter import NO_STORE, UNKNOWN
from remuster.agent.node_state import Ranks, Settings
from remuster.health import wire
from remuster.rendezvous.closed_roster import WHOLE_MACHINE
from remuster.rendezvous.records import NO_PLACE, Incarnation, Job, Node, NodeId, Phase, Round, StoreLoss

from .guardian import Guardian, Rank
from .invariants import COLLECTED
from .seat import Seat
from .store import GONE, Watching

if TYPE_CHECKING:
    from .world import World


STORE_SLACK_S = 2.0  # after a TTL, for the store to end a lease
TERMS = (("--max-restarts", "3"),)


class Given(NamedTuple):
    """What an agent's command line says."""

    slots: int = 1
    place: int = NO_PLACE
    hold: bool = False
    terms: tuple[tuple[str, str], ...] = TERMS


@dataclass(slots=True)
class Machine:
    """A computer: its clock runs at its own rate; all on it goes with its power."""

    name: str
    offset: float
    rate: float
    boot: int = 0

    @property
    def known_as(self) -> str:
        """Its name in records, made as the product makes it: id, boot, pid namespace."""
        return f"{self.name}-{self.boot}-{WHOLE_MACHINE}"


class Alarm:
    """The shell's alarm: the earliest time that was set since it last rang."""

    def __init__(self, agent: Agent, ring: Callable[[], None]) -> None:
        self.agent = agent
        self.ring = ring
        self.at = float("inf")
        self.turn = 0

    def set(self, at: float) -> None:
        if at >= self.at:
            return
        self.at = at
        self.turn += 1
        turn, world = self.turn, self.agent.world
        world.at(max(self.agent.world_time(at), world.now) + 1e-6, lambda: self._due(turn))

    def _due(self, turn: int) -> None:
        if turn == self.turn:
            self.agent.post("timer", lambda: self._rang(turn))

    def _rang(self, turn: int) -> None:
        if turn == self.turn:
            self.at = float("inf")
            self.ring()


class Agent:
    """One process of the command on one node."""

    def __init__(self, world: World, name: str, machine: Machine, given: Given, launch: str, fresh: bool) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.given = given
        self.slots = given.slots
        self.launch = launch
        self.alive = True
        self.paused = False
        self.hung = False  # paused for ever
        self.cut = False
        self.laggy_until = 0.0
        self.pipe_slow = (0.0, 0.0)  # until when, by how much
        self.leaving = False
        self.inbox: dict[str, deque[Callable[[], None]]] = {}
        self.alarm = Alarm(self, lambda: self.take(words.Tick(self.clock())))
        self.guardian = Guardian(self)
        self.guardians = [self.guardian]
        self.lease = Incarnation(0)
        self.deadline = 0.0
        self.watching: list[Watching] = []
        self.nap = 0  # tells a keepalive that waits from one that was hurried on
        self.due: tuple[Incarnation, float] | None = None  # the one that waits
        self.seat: Seat | None = None
        self.in_flight: set[str] = set()
        self.mixed_up: set[str] = set()
        cfg = world.cfg
        address = f"10.0.0.{name}"
        known_as = machine.known_as if cfg.hold else machine.name
        record = Node(Incarnation(0), known_as, str(machine.boot), address, self.slots, Round(0), place=given.place)
        self.timing = cfg.timing._replace(hold=given.hold)
        self.away = False  # under hold: it has been told that the store is silent
        how = StoreLoss.HOLD if given.hold else StoreLoss.FENCE
        begin = Job(Phase.FORMING, Round(1), cfg.min_nodes, cfg.max_nodes, launch, store_loss=how)
        settings = Settings(
            *(cfg.keys, NodeId(name), record, begin, fresh, cfg.grace_s, cfg.patience_s),
            held_s=cfg.timing.ttl_s + STORE_SLACK_S,
            stall_s=2400.0,
            terms=given.terms,
            asks=cfg.asks,
            reserve_s=8.0,
        )
        world.note(name, "begins", f"launch {launch} on {machine.name}")
        self.node, actions = node.begin(settings, self.clock())
        self._do_all(actions)

    @property
    def inc(self) -> Incarnation:
        return self.node.inc

    def __repr__(self) -> str:
        return f"{self.name}@{self.inc:x}"

    # -- time and delays

    def clock(self) -> float:
        return self.machine.offset + self.machine.rate * self.world.now

    def world_time(self, local: float) -> float:
        return (local - self.machine.offset) / self.machine.rate

    def watch_lag(self) -> float:
        return self.world.net.watch_lag(self.world.now < self.laggy_until)

    def pipe_lag(self) -> float:
        until, most = self.pipe_slow
        return self.world.net.pipe_lag(most if self.world.now < until else 0.0)

    def slow_pipe(self, most: float, lasting: float) -> None:
        self.pipe_slow = (self.world.now + lasting, most)

    # -- the loop

    def post(self, source: str, fn: Callable[[], None]) -> None:
        """Handle ``fn`` in the agent's loop: now, or in the order of its source when the process goes on."""
        if not self.alive:
            return
        if self.paused and source != "thread":
            self.inbox.setdefault(source, deque()).append(fn)
        else:
            fn()

    def pause(self) -> None:
        self.paused = True

    def thaw(self) -> None:
        """Go on: what has piled up is handled source by source in any interleaving."""
        self.paused = False
        while self.alive and not self.paused and self.inbox:
            source = self.world.rng.choice(sorted(self.inbox))
            queue = self.inbox[source]
            fn = queue.popleft()
            if not queue:
                del self.inbox[source]
            fn()

    def take(self, event: words.Event) -> None:
        """Give the node machine an event and carry out what it wants."""
        if not self.alive:
            return
        self.world.note(self.name, "<", event)
        inc = self.node.inc
        self.node, actions = self.world.rules.node(self, self.node, event)
        if inc and self.node.inc != inc:
            self.world.note(self.name, "is outside", "")
            self.world.stats["lease lost by a living agent"] += 1
            self.in_flight.clear()
        self._do_all(actions)

    def _unwatch(self) -> None:
        for watching in self.watching:
            watching.open = False
        self.watching = []

    def depose(self) -> None:
        if self.seat is not None:
            self.seat.open = False
            self.seat = None

    def _do_all(self, actions: tuple[Any, ...]) -> None:
        for action in actions:
            if self.alive:
                self._do(action)

    # -- carrying out

    def call(self, op: Callable[[], Any], done: Callable[[Any], None], *, is_txn: bool = False) -> None:
        self.world.store.call(self, op, done, is_txn=is_txn)

    def _do(self, action: Any) -> None:
        world, store, keys = self.world, self.world.store, self.world.cfg.keys
        if not isinstance(action, words.Wake):
            world.note(self.name, ">", action)
        match action:
            case words.Grant():
                self._grant()
            case words.Reread():
                name = keys.node(NodeId(self.name))

                def read() -> tuple[Any, ...]:
                    four = (keys.job, name, keys.leader, keys.terms)
                    return store.tree.revision, *(store.range(k).one() for k in four)

                def reread(found: tuple[Any, ...] | None) -> None:
                    at = self.clock()
                    self.take(words.Rereading(at, False) if found is None else words.Rereading(at, True, *found))

                self.call(read, reread)
            case words.Watch(revision=revision):
                self._unwatch()  # one stream for each key: what they say has no order between them
                self.watching = [
                    store.watch(self, frozenset((key,)), revision, self._watched) for key in (keys.job, keys.leader)
                ]
            case words.Submit(write=write):
                inc = self.node.inc
                self.submit(write, "node", lambda w, r: words.Wrote(self.clock(), w.kind, w.round, inc, r))
            case words.RevokeOld(inc=old):
                self.call(lambda: store.revoke(old), lambda _: None)
            case words.ReadRoster(round=n):
                self.call(
                    lambda: tuple(store.range(key).one() for key in (keys.roster(n), keys.job)),
                    lambda found: self._roster(n, found),
                )
            case words.ReservePort(round=n):
                world.after(world.rng.random() * 0.3, lambda: self.post("port", lambda: self._port(n)))
            case words.Start():
                inc = self.node.inc
                self.guardian.tell(lambda: self.guardian.order(inc, action))
            case words.Terminate(round=n):
                self.guardian.tell(lambda: self.guardian.terminate(n))
            case words.Notify():
                pass  # ranks that end sooner for it are ranks that end
            case words.AskLimit(leaving=leaving):
                if world.rng.random() < 0.8:  # else it does not come back
                    left = world.rng.choice((None, 0.0, 5.0, 30.0, 120.0))
                    why = "" if left is None else "the limit"
                    answer = lambda: words.Limited(self.clock(), leaving, why, left)  # noqa: E731
                    world.after(world.rng.random() * 6.0, lambda: self.post("limit", lambda: self.take(answer())))
            case words.Inspect(round=n):
                looked = words.Inspected
                if world.rng.random() < 0.8:  # else it does not come back
                    world.after(
                        world.rng.random() * 3.0, lambda: self.post("look", lambda: self.take(looked(self.clock(), n)))
                    )
            case words.Kill(round=n):
                self.guardian.tell(lambda: self.guardian.kill(n))
            case words.AcknowledgeFence(inc=inc):
                self.guardian.tell(lambda: self.guardian.acknowledge(inc))
                self._hurry()
            case words.Collect(round=n, facts=facts):
                found = words.Collected
                whole = wire.encode((*facts, COLLECTED))
                world.after(
                    world.rng.random() * 0.4,
                    lambda: self.post("collect", lambda: self.take(found(self.clock(), n, whole))),
                )
            case words.Check(round=n):
                self._check(n)
            case words.Look():
                self.world.views.look(self, action)
            case words.Lead(token=token):
                self.depose()
                self.seat = Seat(self, token)
                world.stats["elected"] += 1
            case words.Tell():
                pass  # the trace has it
            case words.Wake(at=at):
                self.alarm.set(at)
            case words.Exit(code=code, sentence=sentence, revoke=revoke):
                self._exit(code, sentence, revoke)
            case _:
                raise AssertionError(f"the simulator does not know {action!r}")

    def submit(self, wanted: Any, machine: str, make: Callable[[Any, Any], Any]) -> None:
        """Send a write of the node's or the job's machine; its answer goes back to that machine."""
        seat, inc = self.seat, self.node.inc
        row = kind = f"{machine} {wanted.kind.value}"
        if machine == "leader":  # it may decide again as soon as ``job`` has changed: what is under way is void then
            kind += f" {wanted.txn.guards}"
        twice = kind in self.in_flight and row not in self.mixed_up
        self.world.truth.expect(not twice, "machine", f"{self}: two {row} writes under way at once")
        self.mixed_up.discard(row)
        self.in_flight.add(kind)
        back = self.take if machine == "node" else seat.take if seat else None
        assert back is not None

        def done(result: Any) -> None:
            if inc == self.node.inc:
                self.in_flight.discard(kind)
            if result is None and any(k.startswith(row) for k in self.in_flight):
                self.mixed_up.add(row)  # an answer says its row alone: this one is taken for that of a later write
            if result is GONE:
                self._lost(inc)
            else:
                back(make(wanted, result))

        txn = self.world.rules.write(self, wanted).txn
        self.call(lambda: self.world.store.apply(txn, inc), done, is_txn=True)

    def _watched(self, batch: Any) -> None:
        for event in batch.events:
            if event.key == self.world.cfg.keys.job:
                self.take(words.JobSeen(self.clock(), event.kv))
            elif self.alive:
                self.take(words.LeaderSeen(self.clock(), event.kv, event.revision))

    def _roster(self, n: Round, found: Any) -> None:
        if found is None:
            self.take(words.RosterRead(self.clock(), n, False))
            return
        roster, job = found
        self.take(words.RosterRead(self.clock(), n, True, roster, job.mod_revision if job else 0))

    def _port(self, n: Round) -> None:
        if self.world.net.port_fails():
            self.take(words.PortFailed(self.clock(), n, "no port is free"))
        else:
            self.take(words.PortReserved(self.clock(), n, f"{self.name}:{self.world.rng.randint(20000, 60000)}"))

    def _check(self, n: Round) -> None:
        """Check this node: soon, slowly, badly, or without ever an answer."""
        rng, checked = self.world.rng, self.world.cfg.check
        how = checked or rng.choice(("passes", "passes", "passes", "is slow", "fails", "hangs"))
        self.world.stats[f"a check that {how}"] += 1
        if how == "hangs":
            return
        lasts = rng.uniform(20.0, 60.0) if how == "is slow" else rng.uniform(0.0, 3.0)
        unfit = "GPU 0 does not answer" if how == "fails" else ""
        said = words.Checked
        self.world.after(lasts, lambda: self.post("check", lambda: self.take(said(self.clock(), n, unfit))))

    def guardian_lost(self) -> None:
        """The guardian is dead and what it had is proven dead: a new one takes over."""

        def lost() -> None:
            n = self.node.round
            self.guardian = Guardian(self)
            self.guardians.append(self.guardian)
            if self.lease:
                inc, deadline = self.lease, self.deadline
                self.guardian.tell(lambda: self.guardian.lease(inc, deadline))
            self.take(words.GuardianLost(self.clock(), n))

        self.world.after(self.pipe_lag(), lambda: self.post("guardian", lost))

    # -- the lease

    def _grant(self) -> None:
        inc, sent = Incarnation(self.world.rng.getrandbits(40) + 1), self.clock()
        self.lease, self.away = Incarnation(0), False

        def granted(answer: Any) -> None:
            if answer is None:
                self.take(words.Granted(self.clock(), Incarnation(0)))
                return
            self.lease = inc
            self._renewed(inc, sent)
            self._next_keepalive(inc, sent)
            self.take(words.Granted(self.clock(), inc))

        self.call(lambda: self.world.store.grant(inc), granted)

    def _renewed(self, inc: Incarnation, sent: float) -> None:
        deadline = self.deadline = self.timing.deadline(sent)
        self.guardian.tell(lambda: self.guardian.lease(inc, deadline))

    def _next_keepalive(self, inc: Incarnation, sent: float) -> None:
        timing = self.world.cfg.timing
        pause = max(timing.try_s / 4, sent + timing.keepalive_s - self.clock())
        self.nap += 1
        nap, self.due = self.nap, (inc, sent)
        source = "thread" if self.world.rules.keepalive_thread else "timer"
        self.world.after(pause, lambda: self.post(source, lambda: self._keepalive(nap, inc, sent)))

    def _hurry(self) -> None:
        """Renew now, unless a renewal is under way: the guardian starts nothing after a fence until there was one."""
        if self.due:
            self._keepalive(self.nap, *self.due)

    def _lost(self, inc: Incarnation) -> None:
        if self.node.inc == inc:
            self.depose()
            self._unwatch()
            self.take(words.LeaseLost(self.clock()))

    def _keepalive(self, nap: int, inc: Incarnation, sent: float) -> None:
        if inc != self.lease or nap != self.nap:
            return
        self.nap += 1
        self.due = None
        trying = self.clock()
        given_up_by_a_fence = sent + self.timing.fence_s if self.timing.hold else float("inf")

        def answered(answer: Any) -> None:
            if inc != self.lease:
                return
            if answer is GONE:
                self.away = False
                self._lost(inc)
                return
            if answer is None and given_up_by_a_fence < self.clock() and not self.away:
                self.away = True
                self.world.stats["held while the store was silent"] += self.node.ranks is not Ranks.NONE
                self.take(words.StoreAway(self.clock()))
            if answer is not None:
                if self.away:
                    self.away = False
                    self.take(words.StoreBack(self.clock()))
                self._renewed(inc, trying)
            self._next_keepalive(inc, sent if answer is None else trying)

        source = "thread" if self.world.rules.keepalive_thread else "store"
        self.world.store.call(self, lambda: self.world.store.keepalive(inc), answered, source=source)

    # -- ends

    def fail(self, sentence: str) -> None:
        """End in words, as the shell does when nobody can lead this run."""
        if not self.node.exiting:
            self.node = replace(self.node, exiting=True)
            self._exit(UNKNOWN if self.node.round else NO_STORE, sentence, True)

    def _exit(self, code: int, sentence: str, revoke: bool) -> None:
        if self.node.ranks is not Ranks.NONE:
            self.depose()
            self._unwatch()
            self._slay(lambda: self._gone(code, sentence, revoke))
        else:
            self._gone(code, sentence, revoke)

    def _slay(self, then: Callable[[], None]) -> None:
        """Have the guardian kill all it has and drop what is on its way, and go on when that is proven."""
        if not self.alive:
            return
        guardian = self.guardian
        if self.world.now >= guardian.down.last:
            if not (guardian.ranks or guardian.queue or guardian.killing):
                then()
                return
            guardian.stop()
        self.world.after(0.1, lambda: self.post("timer", lambda: self._slay(then)))

    def _gone(self, code: int, sentence: str, revoke: bool) -> None:
        inc = self.lease
        self.world.truth.exited(self, code, sentence)
        if revoke and inc:
            self.call(lambda: self.world.store.revoke(inc), lambda _: None)
        self.stop()

    def stop(self) -> None:
        """End this process; its guardian sweeps what it may have left."""
        self.alive = False
        self.inbox.clear()
        self.depose()
        self._unwatch()
        guardian = self.guardian
        self.world.after(self.world.rng.random() * 0.05, guardian.orphan)

    def lose_power(self) -> None:
        """Everything of this process is gone at once."""
        self.alive = False
        self.depose()
        self._unwatch()
        for guardian in self.guardians:
            guardian.alive, guardian.orphaned, guardian.crashed = False, True, False
            for rank in list(guardian.ranks):
                self.world.work.end(rank, -9)

    def guardian_of(self, rank: Rank) -> Guardian:
        return next(g for g in self.guardians if rank in g.ranks)
