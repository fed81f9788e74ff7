"""One call at a time through remuster's client and through bare gRPC, in turn; prints JSON. Run by ``store.py``.

``store_calls.py ENDPOINT CALLS``. Milliseconds of each put, of each create-if-absent, and from the start of a put to
its arrival at a watch on another connection. Our client has no plain put: the protocol writes by transaction alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import bare_etcd as bare

from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import Endpoint, EtcdConfig
from remuster.rendezvous.store import Compare, Field, Put, Txn

VALUE = b"x" * 200  # a node's record is about as long
WARM = 20  # calls of each kind that are not counted


async def _timed(call: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await call
    return 1000 * (time.perf_counter() - began)


async def _arrival(call: Callable[[], Awaitable[Any]], batches: AsyncIterator[Any]) -> float:
    """Time from the start of ``call`` until the watch brings what it wrote; its own answer is awaited after that."""
    began = time.perf_counter()
    writing = asyncio.ensure_future(call())
    await anext(batches)
    took_ms = 1000 * (time.perf_counter() - began)
    await writing
    return took_ms


async def measure(endpoint: str, calls: int) -> dict[str, list[float]]:
    """Make all calls in turn."""
    host, _, port = endpoint.rpartition(":")
    config = EtcdConfig((Endpoint(host, int(port)),))
    found: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        theirs, watcher = [await stack.enter_async_context(bare.connection(endpoint)) for _ in range(2)]
        ours, ours_watcher = EtcdStore(config), EtcdStore(config)
        stack.push_async_callback(ours.close)
        stack.push_async_callback(ours_watcher.close)
        key, put = b"/bench/calls/bare", bare.put(b"/bench/calls/bare", VALUE)
        at = bare.revision(await theirs.put(put))
        stream = watcher.watch(bare.watch(key, at + 1))
        bare_batches = aiter(stream)
        await anext(bare_batches)  # the watch is made
        batches = await stack.enter_async_context(
            aclosing(
                ours_watcher.watch("/bench/calls/ours", None, (await ours.range("/bench/calls/ours")).revision + 1)
            )
        )
        for i in range(WARM + calls):
            name, absent = f"/bench/calls/{i}", Compare(f"/bench/calls/{i}/ours", Field.CREATE, 0)
            create = bare.guard(bare.CREATE, f"{name}/bare".encode(), 0) + bare.then_put(
                bare.put(f"{name}/bare".encode(), VALUE)
            )
            plain = Txn((), (Put(f"{name}/plain", VALUE),))
            guarded = Txn((absent,), (Put(absent.key, VALUE),))
            watched = Txn((), (Put("/bench/calls/ours", VALUE),))
            took = {
                "put, bare": await _timed(theirs.put(bare.put(f"{name}/bare-plain".encode(), VALUE))),
                "put, ours": await _timed(ours.txn(plain)),
                "txn, bare": await _timed(theirs.txn(create)),
                "txn, ours": await _timed(ours.txn(guarded)),
                "watch, bare": await _arrival(lambda: theirs.put(put), bare_batches),
                "watch, ours": await _arrival(lambda: ours.txn(watched), batches),  # noqa: B023  (called at once)
            }
            for what, took_ms in took.items():
                if i >= WARM:
                    found.setdefault(what, []).append(took_ms)
        stream.cancel()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2])))))
