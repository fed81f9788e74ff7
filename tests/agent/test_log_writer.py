"""The writer of what came through terminals: against files that take no more, and one that hangs."""

from __future__ import annotations

import os
import re
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuster.agent.log_writer import LogWriter

MISSING = re.compile(rb"\n\[remuster: (\d+) bytes are missing here: the log could not take them\]\n")
ROOM = 1 << 20


def settled(writer: LogWriter, *, let_go: bool = False, timeout_s: float = 10) -> bool:
    done = threading.Event()
    writer.settle(done.set, let_go=let_go)
    return done.wait(timeout_s)


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file of this process grow beyond ``ROOM``: as on a full disk, and it can be given back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def more_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)


def test_bytes_are_kept_in_a_private_file(tmp_path: Path) -> None:
    said: list[str] = []
    writer, path = LogWriter(said.append), tmp_path / "log"
    parts = [os.urandom(1 + i) for i in range(200)]
    for part in parts:
        writer.put(str(path), part)
    assert settled(writer, let_go=True)
    assert path.read_bytes() == b"".join(parts)
    assert path.stat().st_mode & 0o777 == 0o600
    assert said == []


def test_a_mark_stands_where_a_full_disk_took_nothing(small_files: None, tmp_path: Path) -> None:
    said: list[str] = []
    writer, path = LogWriter(said.append), tmp_path / "log"
    head, lost, tail = b"h" * (ROOM - 100), b"l" * 5000, b"the disk has room again\n"
    for part in (head, lost, lost):
        writer.put(str(path), part)
    assert settled(writer)
    more_room()
    writer.put(str(path), tail)
    assert settled(writer, let_go=True)
    written = path.read_bytes()
    (mark,) = MISSING.finditer(written)
    assert written[: mark.start()] == head + b"l" * 100
    assert int(mark[1]) == 2 * len(lost) - 100
    assert written[mark.end() :] == tail
    assert len(said) == 1
    assert f"{path} takes no more: File too large" in said[0]


def test_a_gap_at_the_end_is_marked_too(small_files: None, tmp_path: Path) -> None:
    writer, path = LogWriter(lambda _: None), tmp_path / "log"
    writer.put(str(path), b"h" * (ROOM + 7))
    assert settled(writer)
    more_room()
    assert settled(writer, let_go=True)
    written = path.read_bytes()
    assert [int(mark[1]) for mark in MISSING.finditer(written)] == [7]


def test_a_file_system_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """A pipe that nobody reads stands for it: what waits is bounded, what does not fit is counted."""
    said: list[str] = []
    writer, fifo = LogWriter(said.append, waiting=100_000, patience_s=0.5), tmp_path / "hung"
    os.mkfifo(fifo)
    begun = time.monotonic()
    for _ in range(50):
        writer.put(str(fifo), b"x" * 9999 + b"\n")
    assert 0.5 < time.monotonic() - begun < 2  # once, not for every line
    assert not settled(writer, timeout_s=0.2)
    assert len(said) == 1
    assert said[0].endswith("its file system hangs")
    written: list[bytes] = []
    reader = threading.Thread(target=lambda: written.append(fifo.read_bytes()))
    reader.start()  # it answers again
    assert settled(writer)
    writer.put(str(fifo), b"the end\n")
    assert settled(writer, let_go=True)
    reader.join()
    (mark,) = MISSING.finditer(written[0])
    assert written[0][: mark.start()].count(b"\n") == (500_000 - int(mark[1])) // 10_000
    assert written[0][mark.end() :] == b"the end\n"


def test_a_slow_disk_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """Red when ``put`` does not wait."""
    said: list[str] = []
    writer, fifo = LogWriter(said.append, waiting=100_000), tmp_path / "slow"
    os.mkfifo(fifo)
    written: list[bytes] = []

    def read() -> None:
        with fifo.open("rb", buffering=0) as reads:
            while data := reads.read(50_000):
                written.append(data)
                time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    lines = [b"%09999d\n" % i for i in range(200)]
    for line in lines:
        writer.put(str(fifo), line)
    assert settled(writer, let_go=True)
    reader.join()
    assert b"".join(written) == b"".join(lines)
    assert said == []
