"""The store on an etcd that is killed, stopped, refusing or not an etcd. Real processes, no simulation."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import aclosing

import grpc.aio
import pytest
from etcd_server import EtcdCluster, EtcdServer, free_ports
from store_watching import take

from remuster.rendezvous.errors import LeaseNotFound, OutcomeUnknown, PermanentError, TransientError
from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_channel import Links
from remuster.rendezvous.etcd_config import Endpoint, EtcdConfig, Tls
from remuster.rendezvous.store import Compare, Delete, Field, Get, Put, Txn, WatchEvent


def put(key: str) -> Txn:
    return Txn((), (Put(key, b"v"),))


def create(key: str) -> Txn:
    """Safe to repeat after an unknown outcome."""
    return Txn((Compare(key, Field.CREATE, 0),), (Put(key, b"v"),))


class Writers:
    """Create numbered keys, some at a time, through whatever happens; counts what is acknowledged, and the pauses."""

    def __init__(self, store: EtcdStore, count: int, at_a_time: int) -> None:
        self._store = store
        self._count = count
        self._numbers = itertools.count()
        self._at_a_time = at_a_time
        self._last = time.monotonic()
        self._reached: dict[int, asyncio.Event] = {}
        self.written = 0
        self.longest_gap_s = 0.0

    async def run(self) -> None:
        self._last = time.monotonic()
        await asyncio.gather(*(self._write() for _ in range(self._at_a_time)))

    async def reached(self, written: int) -> None:
        await self._reached.setdefault(written, asyncio.Event()).wait()

    async def _write(self) -> None:
        while (number := next(self._numbers)) < self._count:
            await settled(self._store, f"/k/{number:05d}")
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - self._last)
            self._last = now
            self.written += 1
            if self.written in self._reached:
                self._reached[self.written].set()


async def check_complete(store: EtcdStore, events: list[WatchEvent], count: int) -> None:
    """What the watch told is exactly what is there, in the order in which it was written."""
    there = sorted((await store.range("/k/", "/k0")).items, key=lambda kv: kv.mod_revision)
    assert len(there) == count
    assert [event.kv for event in events] == there


async def test_a_server_killed_and_restarted_amid_2000_puts(etcd: EtcdServer, client: EtcdStore) -> None:
    writers = Writers(client, 2000, at_a_time=16)
    async with aclosing(client.watch("/k/", "/k0", 1)) as watch:

        async def restart() -> None:
            await writers.reached(700)
            await asyncio.to_thread(etcd.restart)

        _, _, events = await asyncio.gather(writers.run(), restart(), take(watch, 2000, timeout_s=60))
    await check_complete(client, events, 2000)


async def test_a_lagging_reader_gets_all_history_after_a_restart(etcd: EtcdServer, client: EtcdStore) -> None:
    await Writers(client, 3000, at_a_time=32).run()
    async with aclosing(client.watch("/k/", "/k0", 1)) as watch:
        first = list((await anext(watch)).events)
        await asyncio.to_thread(etcd.restart)
        rest = await take(watch, 3000 - len(first))
    assert 0 < len(first) < 3000, "etcd sends a backlog in parts; resuming from a header's revision would lose the rest"
    await check_complete(client, first + rest, 3000)


async def test_a_stopped_server_costs_no_more_than_the_deadlines(etcd: EtcdServer, client: EtcdStore) -> None:
    await client.range("/a")
    await client.grant(60, 5)
    etcd.stop()
    start = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="was sent"):
        await client.txn(put("/sent"))
    assert time.monotonic() - start < 0.5 + 1.0
    for call, limit_s in ((client.keepalive(5, 0.3), 0.3), (client.range("/a"), 1.5), (client.txn(put("/b")), 1.5)):
        start = time.monotonic()
        with pytest.raises(TransientError) as told:
            await call
        assert type(told.value) is TransientError, "nothing was sent: the outcome is known"
        assert time.monotonic() - start < limit_s + 1.0
    etcd.cont()
    assert (await client.range("/b")).one() is None
    assert (await client.txn(put("/b"))).succeeded
    assert await client.keepalive(5, 2.0) == 60


async def test_a_read_only_txn_is_repeated(etcd: EtcdServer, client: EtcdStore) -> None:
    await client.range("/a")
    etcd.stop()
    reading = asyncio.ensure_future(client.txn(Txn((Compare("/a", Field.MOD, 0),), (Get("/a"),))))
    await asyncio.wait({reading}, timeout=0.7)  # past the first deadline, within the whole time
    assert not reading.done()
    etcd.cont()
    assert (await reading).succeeded


async def test_a_watch_moves_as_soon_as_another_call_finds_the_server_silent(cluster: EtcdCluster) -> None:
    first, second, _ = cluster.members
    store = EtcdStore(EtcdConfig((first.endpoint, second.endpoint), call_timeout_s=1.0))
    other = EtcdStore(EtcdConfig((second.endpoint,)))
    start = (await store.txn(put("/w/0"))).revision
    async with aclosing(store.watch("/w/", "/w0", start)) as watch:
        assert len(await take(watch, 1)) == 1
        following = asyncio.ensure_future(take(watch, 1))
        first.stop()
        await settled(other)
        await other.txn(put("/w/1"))
        done, _ = await asyncio.wait({following}, timeout=0.2)
        assert not done, "the silent server must not have told"
        await store.range("/w/0")
        (event,) = await asyncio.wait_for(following, 0.7)  # less than the deadline of a call
        assert event.key == "/w/1"
    await store.close()
    await other.close()


async def test_a_lost_connection_is_known_before_a_write_is_sent_on_it(etcd: EtcdServer) -> None:
    links = Links(EtcdConfig((etcd.endpoint,), call_timeout_s=0.3))
    clock = asyncio.get_running_loop().time
    link = await links.get(clock() + 5.0)
    assert link.connected
    etcd.kill()
    end = clock() + 10.0
    while link.connected:
        assert clock() < end
        await asyncio.sleep(0.01)
    with pytest.raises(TransientError, match="refused"):
        await links.get(clock() + 0.3)
    await asyncio.to_thread(etcd.start)
    assert await links.get(clock() + 5.0) is not link
    await links.close()


async def test_a_strangers_key_that_is_not_text(etcd: EtcdServer, client: EtcdStore) -> None:
    await asyncio.to_thread(etcd.post, "kv/put", {"key": "L2sv/w==", "value": "dg=="})  # /k/ and a byte ff
    (kv,) = (await client.range("/k/", "/k0")).items
    assert (await client.txn(Txn((Compare(kv.key, Field.MOD, kv.mod_revision),), (Delete(kv.key),)))).succeeded
    assert (await client.range("/k/", "/k0")).items == ()


async def settled(store: EtcdStore, key: str = "/settled") -> None:
    """Wait until writes are accepted."""
    while not await accepted(store, key):
        pass


async def accepted(store: EtcdStore, key: str) -> bool:
    try:
        await store.txn(create(key))
    except TransientError:
        return False
    return True


@pytest.mark.parametrize("fault", ["kill", "stop"])
async def test_the_leader_of_three_is_lost_amid_puts(cluster: EtcdCluster, fault: str) -> None:
    leader = cluster.leader()
    members = sorted(cluster.members, key=lambda member: member is not leader)
    store = EtcdStore(EtcdConfig(tuple(m.endpoint for m in members), call_timeout_s=0.5))
    writers = Writers(store, 1000, at_a_time=16)
    await store.grant(600, 7)
    async with aclosing(store.watch("/k/", "/k0", 1)) as watch:

        async def strike() -> None:
            await writers.reached(300)
            leader.kill() if fault == "kill" else leader.stop()

        _, _, events = await asyncio.gather(writers.run(), strike(), take(watch, 1000, timeout_s=60))
    print(f"leader {fault}: longest gap between acknowledged writes {writers.longest_gap_s:.2f} s")
    assert writers.longest_gap_s < 8.0
    assert (await store.status())[1] != str(leader.endpoint)
    await check_complete(store, events, 1000)
    assert await store.keepalive(7, 2.0) == 600
    await store.close()


async def test_an_unknown_outcome_may_turn_out_applied(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    followers = [member for member in cluster.members if member is not leader]
    store = EtcdStore(EtcdConfig((leader.endpoint,), call_timeout_s=0.5))
    start = (await store.range("/late")).revision + 1
    for follower in followers:
        follower.stop()
    with pytest.raises(OutcomeUnknown):
        await store.txn(put("/late"))
    for follower in followers:
        follower.cont()
    async with aclosing(store.watch("/late", None, start)) as watch:
        (event,) = await take(watch, 1)
    assert (await store.range("/late")).one() == event.kv
    await store.close()


async def test_the_first_endpoint_refuses(etcd: EtcdServer) -> None:
    (nobody,) = free_ports(1)
    store = EtcdStore(EtcdConfig((Endpoint("127.0.0.1", nobody), etcd.endpoint)))
    assert await store.status() == ((await store.status())[0], str(etcd.endpoint))
    assert (await store.txn(put("/a"))).succeeded
    await store.close()


async def test_nobody_listens(etcd: EtcdServer) -> None:
    etcd.kill()
    store = EtcdStore(EtcdConfig((etcd.endpoint,), call_timeout_s=0.2))
    waiting = asyncio.ensure_future(anext(store.watch("/a", None, 1)))
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:\d+.*refused"):
        await store.range("/a")
    with pytest.raises(TransientError) as told:
        await store.txn(put("/a"))
    assert type(told.value) is TransientError, "never connected: the outcome is known"
    assert not waiting.done()
    await asyncio.to_thread(etcd.start)
    await settled(store)
    await store.txn(put("/a"))
    assert [event.key for event in (await asyncio.wait_for(waiting, 10.0)).events] == ["/a"]
    await store.close()


async def test_something_that_is_no_etcd() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    store = EtcdStore(EtcdConfig((Endpoint("127.0.0.1", port),)))
    with pytest.raises(PermanentError, match="is not an etcd v3 server"):
        await store.range("/a")
    with pytest.raises(PermanentError, match="is not an etcd v3 server"):
        await anext(store.watch("/a", None, 1))
    await store.close()
    await server.stop(None)


def test_a_config_that_cannot_work() -> None:
    with pytest.raises(ValueError, match="no endpoint"):
        EtcdConfig(())
    with pytest.raises(ValueError, match="both its file and its key's file"):
        EtcdConfig((Endpoint("h", 1),), tls=Tls(cert="c.pem"))
    assert str(Endpoint("::1", 2379)) == "[::1]:2379"


async def test_a_lease_that_expired_meanwhile_is_gone_for_good(etcd: EtcdServer, client: EtcdStore) -> None:
    await client.grant(1, 9)
    start = (await client.txn(Txn((), (Put("/l", b"", 9),)))).revision
    async with aclosing(client.watch("/l", None, start + 1)) as watch:
        assert [event.kv for event in await take(watch, 1)] == [None]
    with pytest.raises(LeaseNotFound):
        await client.txn(Txn((), (Put("/l", b"", 9),)))
