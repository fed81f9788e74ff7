"""The file thread against a real hang: opening a FIFO that nobody writes blocks for ever, as a dead NFS server does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuster.agent.files import MAX_HUNG, FilesHung, FileThread


def alive() -> int:
    return sum(t.name == "files-under-test" for t in threading.enumerate())


def let_go(path: Path) -> None:
    """Be the server that comes back: whoever hangs on opening ``path`` goes on."""
    deadline = time.monotonic() + 10
    while alive():
        assert time.monotonic() < deadline, "threads hang on"
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        time.sleep(0.002)


@pytest.fixture
def files() -> Iterator[FileThread]:
    thread = FileThread("files-under-test")
    yield thread
    thread.close()


@pytest.fixture
def fifo(tmp_path: Path, files: FileThread) -> Iterator[Path]:
    """A path whose opening hangs."""
    path = tmp_path / "hung"
    os.mkfifo(path)
    yield path
    files.close()
    let_go(path)


def read(path: Path) -> bytes:
    return path.read_bytes()


async def test_results_and_errors_come_back_in_order(files: FileThread, tmp_path: Path) -> None:
    seen: list[int] = []
    for i in range(50):
        files.post(seen.append, i)
    assert await files.run(len, "abc") == 3
    assert seen == list(range(50))
    with pytest.raises(FileNotFoundError):
        await files.run(read, tmp_path / "absent")
    with pytest.raises(TimeoutError, match="own"):
        await files.run(_raise, TimeoutError("its own"))


def _raise(error: BaseException) -> None:
    raise error


async def test_a_hung_operation_stops_neither_the_loop_nor_later_operations(files: FileThread, fifo: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.ensure_future(tick())
    hung = asyncio.ensure_future(files.run(read, fifo, timeout_s=0.2))
    await asyncio.sleep(0)
    queued = asyncio.ensure_future(files.run(len, "abcd", timeout_s=5))
    with pytest.raises(TimeoutError, match=r"read: no answer from the file system within 0\.2 s"):
        await hung
    assert await queued == 4  # it waited behind the hung one, and was taken over
    ticker.cancel()
    assert ticks >= 5


async def test_one_that_nobody_waits_for_is_given_up_too(files: FileThread, fifo: Path) -> None:
    assert files.post(read, fifo, timeout_s=0.05)
    with pytest.raises(TimeoutError):
        await files.run(len, "", timeout_s=0.2)
    assert await files.run(len, "ab", timeout_s=5) == 2


async def test_hung_threads_are_bounded(files: FileThread, fifo: Path) -> None:
    for _ in range(MAX_HUNG):
        with pytest.raises(TimeoutError):
            await files.run(read, fifo, timeout_s=0.05)
    with pytest.raises(FilesHung, match="file operations hang already"):
        await files.run(len, "abc")
    assert not files.post(len, "abc")
    assert alive() == MAX_HUNG
    let_go(fifo)
    assert await files.run(len, "abc") == 3


async def test_operations_queued_behind_the_last_thread_are_told(files: FileThread, fifo: Path) -> None:
    for _ in range(MAX_HUNG - 1):
        with pytest.raises(TimeoutError):
            await files.run(read, fifo, timeout_s=0.05)
    last = asyncio.ensure_future(files.run(read, fifo, timeout_s=0.05))
    await asyncio.sleep(0)
    queued = asyncio.ensure_future(files.run(len, "abc", timeout_s=30))
    with pytest.raises(FilesHung):
        await queued
    with pytest.raises(TimeoutError):
        await last


def test_a_hung_thread_does_not_keep_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hung")
    code = """
import asyncio, sys
from pathlib import Path
from remuster.agent.files import FileThread
async def main():
    try:
        await FileThread().run(Path(sys.argv[1]).read_bytes, timeout_s=0.1)
    except TimeoutError:
        print("timed out")
asyncio.run(main())
"""
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "hung")], capture_output=True, timeout=30, check=True
    )
    assert out.stdout == b"timed out\n"
