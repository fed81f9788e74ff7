"""What an agent keeps of each round: the verdict at once, the record on disk when the next ranks have started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from remuster.agent.chronicle import Chronicle
from remuster.agent.files import FileThread
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import Job, Outcome, Phase, Round
from remuster.rendezvous.store import Put, Txn

KEYS = Keys("run", "/remuster/")
RUNNING = Job(Phase.RUNNING, Round(1), 1, 1, "launch", formed=Round(1))
RECORD: dict[str, object] = {
    "attempt": 0,
    "state": "retried",
    "verdict": {"class": "killed", "sentence": "rank 1 was killed"},
}


class Book:
    """A chronicle over a store of this process, and what it said and kept."""

    def __init__(self) -> None:
        self.store = MemoryStore(never_expire=True)
        self.files = FileThread()
        self.said: list[str] = []
        self.kept: list[dict[str, object]] = []
        self.chronicle = Chronicle(self.store, KEYS, self.files, self.kept.append, self._line)

    def _line(self, event: str, **_: Any) -> None:
        self.said.append(event)

    async def put(self, n: int, record: dict[str, object]) -> None:
        await self.store.txn(Txn((), (Put(KEYS.attempt(Round(n)), json.dumps(record).encode()),)))

    async def turns(self, count: int = 20) -> None:
        """Let the loop do what waits for nothing."""
        for _ in range(count):
            await asyncio.sleep(0)


@pytest.fixture
async def book() -> AsyncIterator[Book]:
    one = Book()
    yield one
    one.files.close()
    await one.store.close()


async def test_ranks_that_start_again_come_before_the_record(book: Book) -> None:
    await book.put(1, RECORD)
    book.chronicle.job_seen(RUNNING)
    book.chronicle.job_seen(replace(RUNNING, phase=Phase.STOPPING))
    book.chronicle.job_seen(replace(RUNNING, phase=Phase.FORMING, round=Round(2)))
    await book.turns()
    assert book.said == ["running", "stopping", "forming", "verdict"]
    await book.files.run(lambda: None)
    assert book.kept == []
    await book.chronicle.settle()
    assert book.kept == [RECORD]


async def test_the_record_of_the_last_round_is_kept_at_once(book: Book) -> None:
    await book.put(1, {**RECORD, "state": "failed", "report": "it failed"})
    book.chronicle.job_seen(RUNNING)
    book.chronicle.job_seen(replace(RUNNING, phase=Phase.FAILED, outcome=Outcome(1, "it failed")))
    await book.turns()
    await book.files.run(lambda: None)
    assert [record["state"] for record in book.kept] == ["failed"]
    assert book.chronicle.report == "it failed"


async def test_rounds_that_a_slow_watch_left_out_are_kept_too(book: Book) -> None:
    for n in (1, 2, 3):
        await book.put(n, {**RECORD, "attempt": n - 1})
    book.chronicle.job_seen(RUNNING)
    book.chronicle.job_seen(replace(RUNNING, round=Round(4), formed=Round(4)))
    await book.chronicle.settle()
    assert sorted(str(record["attempt"]) for record in book.kept) == ["0", "1", "2"]
