"""A lease whose store falls silent: given up in time where ranks are fenced, never where they are held."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from remuster.agent.lease import Hearing, Lease, Renewal, Timing
from remuster.rendezvous.errors import LeaseNotFound, TransientError
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import Incarnation

FENCED = Timing(1, 0.2)
HELD = FENCED._replace(hold=True)


class Store(MemoryStore):
    """A store that answers keepalives as the test says."""

    trouble: Exception | None = None

    async def keepalive(self, lease_id: int, timeout_s: float) -> int:
        if self.trouble is not None:
            raise self.trouble
        return 1


class Heard:
    """What the lease says to its agent, in order."""

    def __init__(self) -> None:
        self.words: list[object] = []
        self.news = asyncio.Event()

    def hear(self, *what: object) -> None:
        self.words.append(what[0] if len(what) == 1 else what)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 10)


async def granted(timing: Timing) -> tuple[Lease, Store, Heard, list[float]]:
    store, heard, deadlines = Store(), Heard(), list[float]()

    def renewed(inc: Incarnation, deadline_s: float) -> None:
        deadlines.append(deadline_s)
        heard.hear("renewed")

    def away(since_s: float, silent: bool) -> None:
        heard.hear("away" if silent else "back")

    def trouble(words: str) -> None:
        heard.hear(words)

    async def guarded(work: Renewal) -> None:
        await work

    lease = Lease(store, timing, Hearing(renewed, trouble, away))
    await lease.grant(lambda inc: heard.hear("lost"), guarded)
    return lease, store, heard, deadlines


def test_a_deadline_is_only_where_ranks_are_fenced() -> None:
    assert FENCED.deadline(10.0) == pytest.approx(10.0 + 1 * 0.999 - 0.2 - 0.25)
    assert HELD.deadline(10.0) == Timing(1, 0.2, forever=True).deadline(10.0) == math.inf


async def test_a_silent_store_loses_a_fenced_lease() -> None:
    lease, store, heard, _ = await granted(FENCED)
    store.trouble = TransientError("no answer")
    await heard.until(lambda: "lost" in heard.words)
    assert set(heard.words) == {"renewed", "the lease was not renewed: no answer", "lost"}
    lease.stop()


async def test_a_silent_store_is_told_once_and_waited_for_where_ranks_are_held() -> None:
    lease, store, heard, deadlines = await granted(HELD)
    store.trouble = TransientError("no answer")
    lost_by = asyncio.get_running_loop().time() + FENCED.gone_s + 0.5
    await heard.until(lambda: asyncio.get_running_loop().time() > lost_by)
    assert heard.words.count("away") == 1
    store.trouble = None
    await heard.until(lambda: heard.words[-1] == "renewed")
    assert heard.words[-2] == "back"
    assert "lost" not in heard.words
    assert set(deadlines) == {math.inf}
    lease.stop()


@pytest.mark.parametrize("silent_first", [False, True])
async def test_the_stores_word_ends_a_held_lease(silent_first: bool) -> None:
    lease, store, heard, _ = await granted(HELD)
    if silent_first:
        store.trouble = TransientError("no answer")
        await heard.until(lambda: "away" in heard.words)
    store.trouble = LeaseNotFound("gone")
    await heard.until(lambda: "lost" in heard.words)
    assert heard.words[-2:] == (["back", "lost"] if silent_first else ["renewed", "lost"])
    lease.stop()
