"""The store in virtual time: the product's key tree, leases that expire, watches that lag, and a network that loses.

Every call travels: request, apply, response. What is lost, late or doubled is decided when it is sent or on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remuster.rendezvous.errors import LeaseNotFound
from remuster.rendezvous.store import Range, Txn, TxnResult, WatchBatch
from remuster.rendezvous.tree import Tree

if TYPE_CHECKING:
    from .agents import Agent
    from .world import World

GONE = object()  # the answer "LeaseNotFound"
TIMEOUT_S = 2.0


class Watching:
    """One watch of one agent: every revision in order, after a lag."""

    def __init__(self, agent: Agent, keys: frozenset[str] | None, revision: int, take: Callable[[WatchBatch], None]):
        self.agent = agent
        self.keys = keys
        self.at = revision - 2  # the first write of an empty tree makes revision 2
        self.take = take
        self.open = True
        self.due = False
        self.source = f"watch {min(keys) if keys else ''}"  # of the loop's inbox: one stream, one order

    def poke(self) -> None:
        """Deliver what is new, in a while."""
        if self.open and not self.due and self.at < len(self.agent.world.store.log):
            self.due = True
            self.agent.world.after(self.agent.watch_lag(), self._deliver)

    def _deliver(self) -> None:
        self.due = False
        store = self.agent.world.store
        if not self.open or not store.reachable(self.agent):
            return  # healing pokes again
        while self.at < len(store.log):
            batch = store.log[self.at]
            self.at += 1
            if self.keys is not None:
                events = tuple(e for e in batch.events if e.key in self.keys)
                if not events:
                    continue
                batch = WatchBatch(events)
            self._hand_over(batch)
            break
        self.poke()

    def _hand_over(self, batch: WatchBatch) -> None:
        self.agent.post(self.source, lambda: self.take(batch) if self.open else None)


class SimStore:
    """One linearizable store with leases in virtual time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = Tree()
        self.log: list[WatchBatch] = []
        self.expires: dict[int, float] = {}
        self.out = False  # nobody reaches it
        self.frozen_at: float | None = None  # it is down: leases do not run, and are granted anew when it is back
        self.watches: list[Watching] = []

    def reachable(self, agent: Agent) -> bool:
        return not (self.out or agent.cut)

    def watch(self, agent: Agent, keys: frozenset[str] | None, revision: int, take: Callable[[WatchBatch], None]):
        """Begin to watch ``keys`` (None = the whole run) from ``revision`` on."""
        self.watches = [w for w in self.watches if w.open]
        watching = Watching(agent, keys, revision, take)
        self.watches.append(watching)
        watching.poke()
        return watching

    def poke(self) -> None:
        for watching in self.watches:
            watching.poke()

    # -- what is applied, each at one moment

    def apply(self, txn: Txn, inc: int) -> TxnResult | object:
        """Apply a transaction that incarnation ``inc`` sent."""
        before = self.tree
        try:
            self.tree, result, batch = before.apply(txn)
        except LeaseNotFound:
            self.world.stats["write on a dead lease refused"] += 1
            return GONE
        if not result.succeeded:
            self.world.stats["guard held a write off"] += 1
            if inc not in before.leases:
                self.world.stats["guard held off a write without lease"] += 1
        self._published(batch, before, inc)
        return result

    def range(self, key: str, end: str | None = None) -> Range:
        return self.tree.range(key, end)

    def grant(self, lease: int) -> bool:
        self.tree = self.tree.grant(lease)
        self._renew(lease)
        self.world.at(self.expires[lease], lambda: self._expire(lease))
        return True

    def keepalive(self, lease: int) -> object:
        if lease not in self.tree.leases:
            return GONE
        self._renew(lease)
        return True

    def revoke(self, lease: int) -> bool:
        self.expires.pop(lease, None)
        self._drop(lease)
        return True

    def _renew(self, lease: int) -> None:
        self.expires[lease] = self.world.now + self.world.cfg.timing.ttl_s + self.world.rng.random() * 0.5

    def _expire(self, lease: int) -> None:
        due = self.expires.get(lease)
        if due is None:
            return
        if self.frozen_at is not None:
            self.world.after(1.0, lambda: self._expire(lease))
        elif due > self.world.now:
            self.world.at(due, lambda: self._expire(lease))
        else:
            del self.expires[lease]
            self.world.stats["lease expired"] += 1
            self.world.note("store", "lease expired", lease)
            self._drop(lease)

    def _drop(self, lease: int) -> None:
        before = self.tree
        self.tree, batch = before.drop_lease(lease)
        self._published(batch, before, None)

    def _published(self, batch: WatchBatch | None, before: Tree, inc: int | None) -> None:
        if batch is None:
            return
        self.log.append(batch)
        self.world.truth.changed(batch, before, self.tree, inc)
        self.poke()

    # -- the way there and back

    def call(
        self,
        agent: Agent,
        op: Callable[[], Any],
        done: Callable[[Any], None],
        *,
        is_txn: bool = False,
        source: str = "store",
    ) -> None:
        """Send ``op``; ``done`` gets its answer, or None when none came in time."""
        world, net = self.world, self.world.net
        by = world.now + TIMEOUT_S

        def unanswered() -> None:
            world.at(max(by, world.now), lambda: agent.post(source, lambda: done(None)))

        def respond(answer: Any) -> None:
            arrives = world.now + net.delay(agent)
            if arrives > by or net.loses("answer", is_txn):
                unanswered()
                return

            def back() -> None:
                if self.reachable(agent):
                    agent.post(source, lambda: done(answer))
                else:
                    unanswered()

            world.at(arrives, back)

        def arrive() -> None:
            if self.reachable(agent):
                respond(op())
            else:
                unanswered()

        def stray() -> None:
            world.truth.stray = True
            op()
            world.truth.stray = False

        if is_txn and (late := net.late()) is not None:
            world.after(late, stray)
            unanswered()
            return
        if net.loses("request", is_txn):
            unanswered()
            return
        world.after(net.delay(agent), arrive)
        if is_txn and (again := net.again()) is not None:
            world.after(again, stray)

    # -- outage

    def go_out(self, *, down: bool) -> None:
        self.out = True
        self.frozen_at = self.world.now if down else None

    def come_back(self) -> None:
        """Answer again; after a real outage every lease has its whole TTL, as etcd's new leader gives it."""
        self.out = False
        if self.frozen_at is not None:
            self.frozen_at = None
            for lease in self.expires:
                self._renew(lease)
        self.poke()
