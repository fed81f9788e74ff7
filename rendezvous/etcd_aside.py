"""Blocking work beside the loop, for files and name servers that may hang. Called by ``etcd_channel, etcd_contact``.

Each piece of work gets a daemon thread of its own: one that hangs holds up neither the loop nor the program's end, as
one of an executor would.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def aside(work: Callable[[], _T], timeout_s: float) -> _T | None:
    """Return what ``work``, which must not raise, returns; None when that takes too long: it then ends by itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T) -> None:
        if not answer.done():
            answer.set_result(result)

    def run() -> None:
        result = work()
        with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="etcd-aside", daemon=True).start()
    await asyncio.wait({answer}, timeout=timeout_s)
    return answer.result() if answer.done() else None
