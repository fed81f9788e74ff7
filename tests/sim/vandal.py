"""Somebody with access to the store who writes over, deletes and adds keys of a run in virtual time.

Not told are lies: a well-formed record of the right incarnation that says what is not so ("ready", another roster), a
node's key deleted or moved to a lease that ends, a "finished" deleted, or the job record and the last roster both gone,
cannot be told from the truth; whoever can write them runs the job.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Job,
    NodeId,
    Outcome,
    Phase,
    Roster,
    Round,
    decode_job,
    decode_node,
    decode_roster,
    encode,
)
from remuster.rendezvous.store import Delete, KeyValue, Put, Txn, WatchBatch, prefix_end
from remuster.rendezvous.tree import Tree

from .faults import Injector
from .garbage import mutated, noise
from .invariants import Truth
from .world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from .agents import Agent

ODD = ("", "\udcff", "x", "a@zz", "a@-7", "9" * 5000, "9999999999", "0000000002", "000000003", "²²²²²²²²²²", "b@8/c")


class OneWorld(Truth):
    """Of the invariants those that hold whatever stands in the store."""

    HOLD = frozenset({"1 one world", "9 liveness", "4 nothing is left", "machine", "6 same start"})

    def expect(self, holds: bool, name: str, what: str) -> None:
        if name in self.HOLD:
            super().expect(holds, name, what)

    def exited(self, agent: Agent, code: int, sentence: str) -> None:
        """Nobody ends without a word."""
        super().expect(bool(sentence), "13 words", f"{agent} exits with {code} and says nothing")
        super().exited(agent, code, sentence)

    # What compares with records that somebody may have written over is left out.
    def left_over(self, tree: Tree) -> None: ...

    def _too_few(self, new: Job, after: Tree) -> None: ...

    def _joined(self, inc: int, after: Tree) -> None: ...

    def _budget(self, old: Job, new: Job, before: Tree) -> None: ...

    def _stopped(self, new: Job, before: Tree) -> None: ...

    def _steady(self, new: Job, roster: Roster, after: Tree) -> None: ...

    def _in_order(self, roster: Roster) -> None: ...


class Vandal:
    """Strikes a few times at random while the job runs."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.strikes: Counter[str] = Counter()
        self.kinds: tuple[Callable[[], str], ...] = (
            self._over_a_record,
            self._over_a_record,
            self._over_a_record,
            self._over_a_report,
            self._new_key,
            self._other_job,
            self._delete,
            self._leader,
        )
        self.removes = rng.choice(("job", "rounds"))  # one of the two, never both

    def plan(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.world.after(self.rng.random() * self.world.cfg.fault_phase_s, self._strike)

    def _strike(self) -> None:
        what = self.rng.choice(self.kinds)()
        if what:
            self.strikes[what] += 1

    def _write(self, key: str, value: bytes | None, lease: int = 0) -> None:
        store = self.world.store
        lease = lease if lease in store.tree.leases else 0
        op = Delete(key) if value is None else Put(key, value, lease)
        store.tree, _, batch = store.tree.apply(Txn((), (op,)))
        self.world.note("vandal", key[:60], value if value is None else (value[:120], lease))
        if isinstance(batch, WatchBatch):
            store.log.append(batch)
            store.poke()

    def _all(self) -> list[KeyValue]:
        keys = self.world.cfg.keys
        return list(self.world.store.tree.range(keys.prefix, prefix_end(keys.prefix)).items)

    def _lease(self, kv: KeyValue | None = None) -> int:
        """Choose on what to hang a key: on nothing, on what it hung on, or on somebody's lease."""
        return self.rng.choice((0, kv.lease if kv else 0, self.rng.choice([0, *sorted(self.world.store.tree.leases)])))

    def _over_a_record(self) -> str:
        """Write what cannot be read over a record that decides."""
        keys, spoil = self.world.cfg.keys, {"job": decode_job, "rounds": decode_roster, "nodes": decode_node}
        found = [kv for kv in self._all() if kv.key[len(keys.prefix) :].partition("/")[0] in (*spoil, "terms")]
        if not found:
            return ""
        kv = self.rng.choice(found)
        kind = kv.key[len(keys.prefix) :].partition("/")[0]
        value, lease = mutated(kv.value, self.rng), self._lease(kv)
        if kind == "nodes":
            lease = self.rng.choice((0, kv.lease))
        elif kind in spoil and kind != self.removes:
            lease = 0
        if kind in spoil and not _unreadable(spoil[kind], value) and not (kind == "nodes" and lease != kv.lease):
            value = noise(self.rng)
        self._write(kv.key, value, lease)
        return f"{kind} spoilt"

    def _over_a_report(self) -> str:
        kinds = ("evidence", "started", "history", "~attempts", "terms")
        keys = self.world.cfg.keys
        found = [kv for kv in self._all() if kv.key[len(keys.prefix) :].partition("/")[0] in kinds]
        if not found:
            return ""
        kv = self.rng.choice(found)
        self._write(kv.key, mutated(kv.value, self.rng), self._lease())
        return "report spoilt"

    def _new_key(self) -> str:
        keys = self.world.cfg.keys
        kind = self.rng.choice(("", "nodes/", "rounds/", "history/", "evidence/0000000001/", "started/", "~attempts/"))
        key = keys.prefix + kind + self.rng.choice(ODD)
        if self.world.store.range(key).one() is None:
            self._write(key, noise(self.rng), self._lease())
        return "new key"

    def _other_job(self) -> str:
        """A job record that is well-formed, and not what any agent has written."""
        kv = self.world.store.range(self.world.cfg.keys.job).one()
        if kv is None or self.removes != "job":
            return ""
        job = _job(kv)
        if job is not None:
            job = self.world.truth.job = self.rng.choice(others(job, self.rng))
            self._write(kv.key, encode(job), self._lease())
        return "another job"

    def _delete(self) -> str:
        """Delete anything but a node's key, whose absence says that its lease is gone, or its word that it is done."""
        keys = self.world.cfg.keys
        keeps = (keys.nodes, f"{keys.prefix}finished/", keys.rosters if self.removes == "job" else keys.job)
        found = [kv.key for kv in self._all() if not kv.key.startswith(keeps)]
        if not found:
            return ""
        key = self.rng.choice(found)
        self._write(key, None)
        return f"{key[len(keys.prefix) :].partition('/')[0]} deleted"

    def _leader(self) -> str:
        """Take the leader key: on no lease, on another agent's, or on one that nobody will ever lead under."""
        immortal = self.rng.getrandbits(40) + 1
        if self.rng.random() < 0.3:
            self.world.store.tree = self.world.store.tree.grant(immortal)
        kv = self.world.store.range(self.world.cfg.keys.leader).one()
        lease = self.rng.choice((immortal, self._lease(kv)))
        if self.rng.random() < 0.5:
            self._write(self.world.cfg.keys.leader, None)
        self._write(self.world.cfg.keys.leader, noise(self.rng), lease)
        return "leader's key taken"


def _job(kv: KeyValue) -> Job | None:
    try:
        return decode_job(kv.value)
    except BadRecord:
        return None


def _unreadable(decode: Callable[[bytes], Any], value: bytes) -> bool:
    try:
        decode(value)
    except BadRecord:
        return True
    return False


def others(job: Job, rng: Random) -> list[Job]:
    """Return records that contradict what the run has come to, but not themselves."""
    n, far = job.round, Round(job.round + rng.choice((1, 2, 1000, 10**8)))
    cause = Cause("failed", NodeId("n0"), Incarnation(1))
    running = replace(job, phase=Phase.RUNNING, cause=None, outcome=None)
    forming = replace(running, phase=Phase.FORMING, resume=None, master="")
    return [
        replace(forming, round=far, formed=job.formed),
        replace(forming, round=far, formed=Round(far - 1)),
        replace(running, round=far, formed=far, master="10.0.0.1:5"),
        replace(running, round=far, formed=far, master=""),
        replace(running, phase=Phase.STOPPING, round=far, formed=far, cause=cause),
        replace(forming, round=Round(max(1, n - 1)), first=Round(1), formed=Round(0)),
        replace(job, phase=Phase.FAILED, outcome=Outcome(3, "says who")),
        replace(job, min_nodes=10**6, max_nodes=10**6),
        replace(job, min_nodes=1, max_nodes=10**6),
        replace(job, launch="another"),
        replace(job, charged=10**9, spent=(("unknown", 10**9),)),
        *([replace(job, master="")] if job.phase is Phase.RUNNING else []),
    ]


def played(seed: int) -> tuple[World, Vandal]:
    """Play a schedule with a vandal at work; Violation unless there is one world and every agent ends."""
    world = World(seed, truth=OneWorld)
    world.cfg = replace(world.cfg, faults=world.cfg.faults // 4)
    world.injector = Injector(world)
    vandal = Vandal(world, Random(-1000 - seed))
    vandal.plan()
    return world.play(), vandal
