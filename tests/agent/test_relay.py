"""Ranks' relay in one process: bytes against files, the size, the end, and the threads that are left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remuster.agent.relay import Relay

THREAD = "remuster-relay"


@pytest.fixture
def stream() -> Iterator[int]:
    """Our own terminal."""
    ours, stream = os.openpty()
    yield stream
    os.close(ours)
    os.close(stream)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
async def relay(said: list[str]) -> AsyncIterator[Relay]:
    made = Relay(said.append, lambda: None, lends_stdin=False)
    yield made
    await made.settle(close=True)
    made.close()
    while any(thread.name == THREAD for thread in threading.enumerate()):
        await asyncio.sleep(0.005)


def as_rank(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_NOCTTY)


async def test_what_was_written_is_in_the_file_when_it_is_settled(relay: Relay, stream: int, tmp_path: Path) -> None:
    """Red when ``settle`` does not read: now and then the bell is heard before the last bytes are."""
    names = [relay.open(stream, str(tmp_path / str(i))) for i in range(4)]
    fds = [as_rank(name) for name in names]
    written = [b""] * 4
    for i in range(500):
        data = b"%d\n\xff\r\x03\x04" % i * (1 + i % 90)
        for rank, fd in enumerate(fds):
            assert os.write(fd, data) == len(data)
            written[rank] += data
        await relay.settle()
        assert all((tmp_path / str(rank)).stat().st_size == len(written[rank]) for rank in range(4)), i
    for fd in fds:
        os.close(fd)
    await relay.settle(close=True)
    assert [(tmp_path / str(rank)).read_bytes() for rank in range(4)] == written


async def test_a_rank_that_writes_without_end_holds_up_no_settling(relay: Relay, stream: int, tmp_path: Path) -> None:
    fd = as_rank(relay.open(stream, str(tmp_path / "log")))

    def write() -> None:
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"z" * 4096)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(5):
        await asyncio.wait_for(relay.settle(), 2)
    assert (tmp_path / "log").stat().st_size > 0
    await relay.settle(close=True)  # hung up: the writer ends
    await asyncio.to_thread(writer.join, 10)
    os.close(fd)


async def test_no_terminal_for_a_stream_that_is_none(relay: Relay, tmp_path: Path) -> None:
    with (tmp_path / "kept").open("wb") as file:
        assert relay.open(file.fileno(), "/the/log") == "/the/log"


async def test_no_terminal_to_be_had_is_said_once(relay: Relay, stream: int, tmp_path: Path, said: list[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    log = str(tmp_path / "log")
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))  # the agent needs most of them for other things
    try:
        opened = [relay.open(stream, log) for _ in range(10)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [name.startswith("/dev/pts/") for name in opened] == [True] * 8 + [False] * 2
    assert opened[8:] == [log] * 2
    assert len(said) == 1
    assert said[0].startswith("not every rank sees a terminal: Too many open files")
