"""The store on an etcd whose answers are late, and a client that has lost its connection a thousand times."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest
from etcd_access import Authority, needs_openssl, tls_server
from etcd_server import EtcdServer
from store_watching import take

from remuster.rendezvous.errors import OutcomeUnknown, TransientError
from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import Endpoint, EtcdConfig, Tls
from remuster.rendezvous.etcd_contact import first_contact
from remuster.rendezvous.store import Put, Txn


def put(key: str) -> Txn:
    return Txn((), (Put(key, b"v"),))


class SlowPath:
    """A way to a server on which whatever comes back takes ``delay_s``."""

    def __init__(self, server: EtcdServer, delay_s: float) -> None:
        self.delay_s = delay_s
        self._server = server
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def listen(self) -> Endpoint:
        self._listener = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return Endpoint("127.0.0.1", self._listener.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_connection("127.0.0.1", self._server.port)
        ways = [self._carry(reader, there, slow=False), self._carry(back, writer, slow=True)]
        self._tasks += [asyncio.ensure_future(way) for way in ways]
        self._writers += [writer, there]

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, slow: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(65536):
                if slow:
                    loop.call_later(self.delay_s, sink.write, data)
                else:
                    sink.write(data)
        except OSError:
            pass
        finally:
            loop.call_later(self.delay_s if slow else 0.0, sink.close)


@contextlib.asynccontextmanager
async def slow_path(server: EtcdServer, delay_s: float) -> AsyncIterator[tuple[SlowPath, Endpoint]]:
    path = SlowPath(server, delay_s)
    try:
        yield path, await path.listen()
    finally:
        path.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """One version will do: what is slow is the way."""
    made = EtcdServer(tmp_path / "e")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.drill
@needs_openssl
async def test_answers_that_take_a_second_and_a_half(tmp_path: Path) -> None:
    own = Authority(tmp_path / "home").issue("s")
    server = tls_server(tmp_path / "e", own)
    try:
        await asyncio.to_thread(server.start)
        async with slow_path(server, 1.5) as (_, endpoint):
            store = EtcdStore(EtcdConfig((endpoint,), Tls(own.ca)))
            await first_contact(store, "/a", 30.0, print)
            _, result, _ = await asyncio.gather(store.grant(60, 5), store.txn(put("/a")), store.range("/a"))
            async with aclosing(store.watch("/a", None, result.revision)) as watch:
                events, ttl_s = await asyncio.gather(take(watch, 1), store.keepalive(5, 2.0))
            assert ttl_s == 60
            assert [event.key for event in events] == ["/a"]
            await store.close()
    finally:
        server.close()


async def test_answers_that_take_ten_seconds_are_silence(server: EtcdServer) -> None:
    async with slow_path(server, 0.0) as (path, slow):
        store = EtcdStore(EtcdConfig((slow, server.endpoint), call_timeout_s=0.5))
        while (await store.status())[1] != str(slow):  # a busy machine may have taken too long for that one
            assert store.links.link is not None
            store.links.drop(store.links.link, "the other one is wanted")
        path.delay_s = 10.0
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await store.txn(put("/a"))
        assert (await store.txn(put("/b"))).succeeded
        assert (await store.status())[1] == str(server.endpoint)
        assert time.monotonic() - began < 5.0
        await store.close()
        alone = EtcdStore(EtcdConfig((slow,), call_timeout_s=0.5))
        with pytest.raises(TransientError, match="no answer"):
            await first_contact(alone, "/a", 2.0, lambda text: None)
        await alone.close()


async def test_a_silent_member_costs_one_deadline_at_the_start(server: EtcdServer) -> None:
    async with slow_path(server, 60.0) as (_, slow):
        store = EtcdStore(EtcdConfig((slow, server.endpoint), call_timeout_s=1.0))
        began = time.monotonic()
        await store.range("/a")
        assert 1.0 <= time.monotonic() - began < 3.5
        await store.close()


def held() -> tuple[int, int, int, int]:
    """Return what this process holds: file descriptors, its own threads, all threads, and memory in KiB."""
    gc.collect()
    process = psutil.Process()
    return (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        process.num_threads(),
        process.memory_info().rss >> 10,
    )


@pytest.mark.drill
@needs_openssl
async def test_a_thousand_lost_connections_leave_nothing(tmp_path: Path) -> None:
    own = Authority(tmp_path / "home").issue("s")
    server = tls_server(tmp_path / "e", own)
    try:
        await asyncio.to_thread(server.start)
        store = EtcdStore(EtcdConfig((server.endpoint,), Tls(own.ca), call_timeout_s=0.5))
        start = (await store.txn(put("/w"))).revision + 1
        async with aclosing(store.watch("/w", None, start)) as watch:

            async def lose(times: int) -> None:
                for _ in range(times):
                    await store.range("/w")
                    link = store.links.link
                    assert link is not None
                    store.links.drop(link, "the test says so")
                    store.links.answered()

            await lose(100)
            await store.range("/w")
            before = held()
            await lose(1000)
            await store.txn(put("/w"))
            assert len(await take(watch, 1)) == 1
            end = time.monotonic() + 10.0
            while (after := held())[:2] > before[:2]:  # channels close behind the calls
                assert time.monotonic() < end, (before, after)
                await asyncio.sleep(0.05)
        print(f"before {before}, after {after}")
        assert after[2] <= before[2] + 4
        assert after[3] <= before[3] + 8192
        await store.close()
    finally:
        server.close()
