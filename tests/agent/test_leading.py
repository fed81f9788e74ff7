"""The shell of the job machine on a store in memory: how leading ends, and what becomes of a write that is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from remuster.agent.leading import Counsel, Leading
from remuster.rendezvous import leader_words
from remuster.rendezvous.errors import PermanentError
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_words import Limits
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import Incarnation, Job, Node, NodeId, Phase, ResumePoint, Round, encode
from remuster.rendezvous.store import Put, Txn, TxnResult
from remuster.rendezvous.writes import Own, lead

KEYS = Keys("run")
OWN = Own(NodeId("a"), Incarnation(7))
FORMING = Job(Phase.FORMING, Round(1), 1, 1, "one")
NODE = Node(OWN.inc, "m", "b", "10.0.0.1", 1, Round(1))


class Full(MemoryStore):
    """A store that refuses what a leader writes for as long as it is full."""

    full = False
    refused = 0
    running = False

    async def txn(self, txn: Txn) -> TxnResult:
        if self.full:
            self.refused += 1
            raise PermanentError("etcd is out of space")
        self.running |= any(isinstance(op, Put) and op.key == KEYS.roster(Round(1)) for op in txn.then)
        return await super().txn(txn)


class Impatient(Leading):
    refused_s = 0.0


async def led(store: Full) -> int:
    """Let a join and lead; return its token."""
    await store.grant(60, OWN.inc)
    await store.txn(Txn((), (Put(KEYS.node(OWN.node), encode(NODE), OWN.inc), Put(KEYS.job, encode(FORMING)))))
    await store.txn(lead(KEYS, OWN).txn)
    kv = (await store.range(KEYS.leader)).one()
    assert kv
    return kv.create_revision


def leading(store: Full, said: list[str], kind: type[Leading] = Leading) -> Leading:
    async def judge(_ask: leader_words.Conclude) -> leader_words.Concluded:
        raise AssertionError("no round has ended")

    async def resume(ask: leader_words.SelectResume) -> leader_words.Resumed:
        return leader_words.Resumed(time.clock_gettime(time.CLOCK_BOOTTIME), ask.round, ResumePoint())

    async def newest() -> int:
        return -1

    return kind(store, KEYS, OWN, Limits(1.0, 60.0, 3.0), Counsel(judge, resume, said.append, newest))


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that within 20 s")


async def test_what_cannot_be_read_ends_the_agent_with_the_reason() -> None:
    store, said = Full(), list[str]()
    token = await led(store)
    work = asyncio.ensure_future(leading(store, said).run(token))
    await store.txn(Txn((), (Put(KEYS.job, b"noise"),)))
    why = await asyncio.wait_for(work, 20)
    assert why.startswith("the store holds what cannot be used: /remuster/run/job: job: not JSON")
    await store.close()


async def test_another_leader_ends_the_leading_and_not_the_agent() -> None:
    store, said = Full(), list[str]()
    token = await led(store)
    work = asyncio.ensure_future(leading(store, said).run(token))
    await store.revoke(OWN.inc)
    assert await asyncio.wait_for(work, 20) == ""
    await store.close()


async def test_a_refused_write_is_said_once_and_tried_again() -> None:
    store, said = Full(), list[str]()
    token = await led(store)
    store.full = True
    work = asyncio.ensure_future(leading(store, said).run(token))
    await until(lambda: store.refused >= 2)
    store.full = False
    await until(lambda: store.running)
    assert len([line for line in said if "the store refuses" in line and "out of space" in line]) == 1
    work.cancel()
    await store.close()


async def test_a_store_that_goes_on_refusing_ends_the_agent() -> None:
    store, said = Full(), list[str]()
    token = await led(store)
    store.full = True
    with pytest.raises(PermanentError, match="out of space"):
        await asyncio.wait_for(leading(store, said, Impatient).run(token), 20)
    await store.close()
