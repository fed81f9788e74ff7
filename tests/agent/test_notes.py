"""The agent's own lines: kept while ranks start, written in order with the time at which they were said."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
import structlog

from remuster.agent.files import FileThread
from remuster.agent.notes import LATER_S, Notes


class Said:
    """Notes whose two outputs are kept."""

    def __init__(self, folder: Path, level: str = "") -> None:
        self.lines: list[str] = []
        self.written = asyncio.Event()
        self.files = FileThread()
        self._path = folder / "events.jsonl"
        self.notes = Notes(self._say, folder, self.files, level)

    def _say(self, line: str) -> None:
        self.lines.append(line)
        self.written.set()

    async def events(self) -> list[dict[str, object]]:
        await self.files.run(lambda: None)  # behind what was queued before
        return [json.loads(line) for line in self._path.read_text().splitlines()]


@pytest.fixture
async def said(tmp_path: Path) -> AsyncIterator[Said]:
    structlog.reset_defaults()
    one = Said(tmp_path)
    yield one
    one.files.close()
    structlog.reset_defaults()


async def test_nothing_is_written_before_the_first_order(said: Said) -> None:
    said.notes.line("start", node="a")
    assert said.lines == []
    said.notes.write()
    assert len(said.lines) == 1
    assert "node=a" in said.lines[0]


async def test_later_lines_are_written_together_a_moment_later(said: Said) -> None:
    said.notes.write()
    began = time.monotonic()
    for i in range(3):
        said.notes.line("one", i=i)
    assert said.lines == []  # whoever says a line does not write it
    await asyncio.wait_for(said.written.wait(), 5)
    assert time.monotonic() - began >= 0.9 * LATER_S
    assert [line.split("i=")[1].strip() for line in said.lines] == ["0", "1", "2"]
    said.written.clear()
    said.notes.line("one", i=3)
    await asyncio.wait_for(said.written.wait(), 5)
    assert [event["i"] for event in await said.events()] == [0, 1, 2, 3]


async def test_a_line_bears_the_time_at_which_it_was_said(said: Said) -> None:
    said.notes.write()
    before = time.time()
    said.notes.line("one")
    after = time.time()
    await asyncio.wait_for(said.written.wait(), 5)
    (event,) = await said.events()
    assert before - 0.001 <= datetime.fromisoformat(str(event["timestamp"])[:-1] + "+00:00").timestamp() <= after


async def test_an_order_to_write_waits_for_nothing_and_writes_nothing_twice(said: Said) -> None:
    said.notes.write()
    said.notes.line("one")
    said.notes.write()
    assert len(said.lines) == 1
    said.notes.line("two")
    said.notes.write()
    said.notes.write()
    await asyncio.sleep(2 * LATER_S)  # the times that were set for both have passed
    assert len(said.lines) == 2


@pytest.mark.parametrize("level", ["", "DEBUG"])
async def test_a_detail_is_for_who_looks_for_it(tmp_path: Path, level: str) -> None:
    structlog.reset_defaults()
    said = Said(tmp_path, level)
    said.notes.detail("taken out", names=["A"])
    said.notes.line("start")
    said.notes.write()
    events = [event["event"] for event in await said.events()]
    shown = [line.split("]")[1].split()[0] for line in said.lines]
    said.files.close()
    structlog.reset_defaults()
    assert events == (["taken out", "start"] if level else ["start"])
    assert shown == (["taken", "start"] if level else ["start"])
