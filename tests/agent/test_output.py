"""The console against real files, writers, pipes and a reader that stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from command.processes import until

from remuster.agent import blocks
from remuster.agent.console import FULL, Lane
from remuster.agent.inotify import OneShot
from remuster.agent.output import STDERR, STDOUT, Console, Source
from remuster.agent.splice import HOLD_S

THREADS = {"remuster-output", "remuster-stdout", "remuster-stderr"}


class Screen:
    """The far end of a console stream: a pipe, and a reader that can be stopped."""

    def __init__(self) -> None:
        self.reads, self.fd = os.pipe()
        self.seen = bytearray()
        self.changed = asyncio.Event()

    def start(self) -> None:
        os.set_blocking(self.reads, False)
        asyncio.get_running_loop().add_reader(self.reads, self._read)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self.reads)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.seen += os.read(self.reads, 1 << 20)
            self.changed.set()

    def read_rest(self) -> bytes:
        self._read_all()
        return bytes(self.seen)

    def _read_all(self) -> None:
        before = -1
        while before != len(self.seen):
            before = len(self.seen)
            self._read()

    async def until(self, what: bytes, timeout_s: float = 10) -> None:
        deadline = time.monotonic() + timeout_s
        while what not in self.seen:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), max(0.0, deadline - time.monotonic()))


@pytest.fixture
async def screens() -> AsyncIterator[tuple[Screen, Screen]]:
    pair = Screen(), Screen()
    for screen in pair:
        screen.start()
    yield pair
    for screen in pair:
        screen.stop()
    deadline = time.monotonic() + 10
    while any(t.name in THREADS for t in threading.enumerate()):  # none may be left, so each test closes its console
        assert time.monotonic() < deadline, "a thread of the console is left"
        for screen in pair:
            screen.read_rest()
        await asyncio.sleep(0.005)
    for screen in pair:
        os.close(screen.reads)
        os.close(screen.fd)


@pytest.fixture
def console(screens: tuple[Screen, Screen]) -> Iterator[Console]:
    made = Console(screens[0].fd, screens[1].fd)
    yield made
    made.close()


async def test_lines_appear_when_they_are_written(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    out, err = tmp_path / "stdout.log", tmp_path / "stderr.log"
    console.follow([Source(str(out)), Source(str(err), STDERR)])
    for i in range(5):
        with out.open("ab") as f:
            f.write(b"out %d\n" % i)
        await screens[0].until(b"out %d\n" % i)
        with err.open("ab") as f:
            f.write(b"err %d\n" % i)
        await screens[1].until(b"err %d\n" % i)
    assert screens[0].seen == b"".join(b"out %d\n" % i for i in range(5))
    assert await console.drain()


async def test_files_are_made_private(console: Console, screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    console.follow([Source(str(tmp_path / "out"))])
    assert await console.drain()
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


LAST_WORDS = """
import os, sys
line = b"x" * 60 + b" %d\\n"
for i in range(20000):
    os.write(1, line % i)
os.write(2, b"the end\\n")
os._exit(1)
"""


@pytest.mark.parametrize("part", range(5))
async def test_the_last_line_is_in_the_file_and_on_the_console_before_drain_returns(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path, part: int
) -> None:
    script = tmp_path / "code.py"
    script.write_text(LAST_WORDS)
    for repeat in range(10):
        out, err = tmp_path / f"{part}-{repeat}.out", tmp_path / f"{part}-{repeat}.err"
        with out.open("ab") as o, err.open("ab") as e:
            child = await asyncio.create_subprocess_exec(sys.executable, "-IS", str(script), stdout=o, stderr=e)
        console.follow([Source(str(out)), Source(str(err), STDERR)])
        assert await child.wait() == 1
        assert await console.drain()
        whole = out.read_bytes()
        assert whole.endswith(b"x 19999\n")
        assert screens[0].read_rest() == whole
        assert screens[1].read_rest() == b"the end\n"
        screens[0].seen.clear()
        screens[1].seen.clear()


async def test_drain_shows_what_nobody_has_looked_at_yet(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    for name in ("out", "err"):
        (tmp_path / name).write_bytes(os.urandom(5 * FULL))
    console.follow([Source(str(tmp_path / "out")), Source(str(tmp_path / "err"), STDERR)])
    assert await console.drain()
    assert screens[0].read_rest() == (tmp_path / "out").read_bytes()
    assert screens[1].read_rest() == (tmp_path / "err").read_bytes()


async def test_every_byte_of_a_single_rank_passes(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    path = tmp_path / "raw"
    console.follow([Source(str(path))])
    written = b""
    with path.open("ab", buffering=0) as f:
        for i in range(300):
            data = os.urandom(1 + i * 37 % 4000)
            f.write(data)
            written += data
            if i % 50 == 0:
                await screens[0].until(data)
    assert await console.drain()
    assert screens[0].read_rest() == written


async def test_ranks_are_not_spliced(console: Console, screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    code = (
        "import os,sys\nfor i in range(2000):\n for p in ('<'+sys.argv[1], ' %d' % i, '>\\n'): os.write(1, p.encode())"
    )
    paths = [tmp_path / str(r) for r in range(4)]
    children = []
    for r, path in enumerate(paths):
        with path.open("ab") as f:
            children.append(await asyncio.create_subprocess_exec(sys.executable, "-IS", "-c", code, str(r), stdout=f))
    console.follow([Source(str(p)) for p in paths])
    for child in children:
        await child.wait()
    assert await console.drain()
    lines = screens[0].read_rest().splitlines()
    for r in range(4):
        assert [line for line in lines if line.startswith(b"<%d" % r)] == [b"<%d %d>" % (r, i) for i in range(2000)]
    assert len(lines) == 8000


async def test_labels(console: Console, screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"one\ntwo")
    b.write_bytes(b"three\n")
    console.follow([Source(str(a), STDOUT, b"[default0]:"), Source(str(b), STDOUT, b"[default1]:")])
    assert await console.drain()
    assert sorted(screens[0].read_rest().splitlines()) == [b"[default0]:one", b"[default0]:two", b"[default1]:three"]


async def test_prompts_and_progress_bars_are_shown_without_a_line_end(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    console.follow([Source(str(a)), Source(str(b))])
    with a.open("ab", buffering=0) as f:
        for percent in range(0, 100, 20):
            f.write(b"\r%d %% \xe2\x96\x88\xe2" % percent)
            await screens[0].until(b"\r%d %% \xe2\x96\x88" % percent)
            f.write(b"\x96\x88")
            await screens[0].until(b"%d %% \xe2\x96\x88\xe2\x96\x88" % percent)  # and no character in two
    b.write_bytes(b"line of another\n")
    await screens[0].until(b"\nline of another\n")
    assert await console.drain()


def wake_ups() -> int:
    """How often the console's threads have gone to sleep so far: the kernel's own count."""
    count = 0
    for thread in threading.enumerate():
        if thread.name in THREADS:
            status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
            count += int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[0])
    return count


async def test_no_wake_up_while_nothing_is_written(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    paths = [tmp_path / str(i) for i in range(16)]
    console.follow([Source(str(p)) for p in paths])
    with paths[0].open("ab", buffering=0) as f:
        f.write(b"a line\nhalf a line")
        await screens[0].until(b"half a line")
        await asyncio.sleep(3 * HOLD_S)
        before = wake_ups()
        assert before > 0
        await asyncio.sleep(1)
        assert wake_ups() == before
        f.write(b", its rest\n")
        await screens[0].until(b", its rest\n")


async def test_a_stopped_reader_blocks_nobody_and_hears_what_it_missed(
    screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    out, err = screens
    console = Console(out.fd, err.fd, stall_s=0.2)
    path = tmp_path / "out"
    console.follow([Source(str(path)), Source(str(tmp_path / "err"), STDERR)])
    out.stop()
    total = 0
    with path.open("ab", buffering=0) as f:
        for i in range(8 * FULL // 100):
            total += f.write(b"%099d\n" % i)
        begun = time.monotonic()
        (tmp_path / "err").write_bytes(b"the other stream goes on\n")
        await err.until(b"the other stream goes on\n")
        while time.monotonic() - begun < 0.5:  # it has stopped for longer than a stall
            await asyncio.sleep(0.05)
        out.start()
        await out.until(b"bytes skipped on the console; the log file has them]\n")
        await out.until(b"%099d\n" % i)
        assert await console.drain()
    console.close()
    shown = out.read_rest()
    notice = re.search(rb"\[remuster: (\d+) bytes skipped on the console; the log file has them\]\n", shown)
    assert notice is not None
    assert int(notice[1]) > 4 * FULL
    assert len(shown) - len(notice[0]) + int(notice[1]) in (total, total + 1)  # + 1: it begins on a line of its own
    assert path.stat().st_size == total
    after = shown[notice.end() :]
    assert re.fullmatch(rb"(?:\d{99}\n)+", after)


async def test_a_slow_reader_sees_whole_lines(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    out, err = screens
    console = Console(out.fd, err.fd)
    line = b"%070d\n"  # does not divide a block
    for rank in range(2):
        (tmp_path / str(rank)).write_bytes(b"".join(line % i for i in range(3 * FULL // 70)))
    out.stop()
    console.follow([Source(str(tmp_path / str(rank))) for rank in range(2)])
    await asyncio.sleep(3 * HOLD_S)  # a part of a line is held, and its rest is in the file
    out.start()
    assert await console.drain()
    console.close()
    assert {len(found) for found in out.read_rest().splitlines()} == {70}


async def test_a_drain_lets_go_of_what_was_followed_before_the_call(
    screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    console = Console(screens[0].fd, screens[1].fd)
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        path.write_bytes(path.name.encode() + b" early\n")
    console.follow([Source(str(old))])
    drained = console.drain()  # as for a round that is over, while the next one's files are followed already
    console.follow([Source(str(new))])
    assert await drained
    with new.open("ab") as file:
        file.write(b"new late\n")
    assert await console.drain()
    console.close()
    assert sorted(screens[0].read_rest().splitlines()) == [b"new early", b"new late", b"old early"]


async def test_drain_gives_up_on_a_reader_that_stopped(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    out, _ = screens
    console = Console(out.fd, screens[1].fd, stall_s=0.2)
    out.stop()
    path = tmp_path / "out"
    path.write_bytes(b"#" * (3 * FULL))
    console.follow([Source(str(path))])
    begun = time.monotonic()
    assert not await console.drain()
    assert time.monotonic() - begun < 5
    out.start()
    assert await console.drain()  # the reader goes on
    console.say("the report\n", STDOUT)
    assert await console.drain()
    console.close()
    shown = out.read_rest()
    skipped = re.findall(rb"\[remuster: (\d+) bytes skipped", shown)
    assert len(skipped) == 1
    assert shown.count(b"#") + int(skipped[0]) == 3 * FULL
    assert shown.endswith(b"\nthe report\n")


async def test_what_the_agent_says_is_bounded(screens: tuple[Screen, Screen]) -> None:
    out, _ = screens
    out.stop()
    rooms = 0

    def room() -> None:
        nonlocal rooms
        rooms += 1

    lane = Lane(out.fd, "remuster-stdout", room)
    for _ in range(64):
        lane.say(b"z" * (FULL // 8 - 1) + b"\n")
    assert not lane.has_room(1)
    out.start()
    deadline = time.monotonic() + 10
    while not lane.has_room(1):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert rooms == 1
    lane.say(b"the end\n")
    lane.close()
    await out.until(b"the end\n")
    skipped = re.findall(rb"\[remuster: (\d+) bytes skipped", bytes(out.seen))
    assert out.seen.count(b"z\n") * (FULL // 8) + int(skipped[0]) == 64 * (FULL // 8)
    assert out.seen.count(b"z") < 3 * FULL


async def test_a_reader_that_left_is_no_error(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    console = Console(writes, screens[1].fd)
    path = tmp_path / "out"
    path.write_bytes(b"w" * (3 * FULL))
    console.follow([Source(str(path))])
    assert await console.drain()
    console.close()
    os.close(writes)


async def test_a_shared_non_blocking_descriptor_is_written_whole_and_left_as_it_is(
    screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    out, err = screens
    os.set_blocking(out.fd, False)
    console = Console(out.fd, err.fd)
    path = tmp_path / "out"
    path.write_bytes(os.urandom(3 * FULL))
    console.follow([Source(str(path))])
    assert await console.drain()
    console.close()
    assert out.read_rest() == path.read_bytes()
    assert (os.get_blocking(out.fd), os.get_blocking(err.fd)) == (False, True)


async def test_one_pipe_for_both_streams_keeps_lines_whole(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    both = screens[0]
    console = Console(both.fd, both.fd)
    out, err = tmp_path / "out", tmp_path / "err"
    console.follow([Source(str(out)), Source(str(err), STDERR)])
    with out.open("ab", buffering=0) as o, err.open("ab", buffering=0) as e:
        for i in range(500):
            o.write(b"out ")
            e.write(b"err ")
            o.write(b"%d\n" % i)
            e.write(b"%d\n" % i)
    assert await console.drain()
    console.close()
    expected = sorted([b"out %d" % i for i in range(500)] + [b"err %d" % i for i in range(500)])
    assert sorted(both.read_rest().splitlines()) == expected


async def test_a_file_that_cannot_be_opened_is_said(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    console.follow([Source(str(tmp_path / "absent" / "out"))])
    await screens[0].until(b"absent/out cannot be shown: No such file or directory]\n")


async def test_a_hung_log_directory_stops_neither_the_loop_nor_the_report(
    screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    console = Console(screens[0].fd, screens[1].fd, stall_s=0.2)
    fifo = tmp_path / "hung"
    os.mkfifo(fifo)
    console.follow([Source(str(fifo))])  # the reading thread hangs in open, as on a dead file server
    begun = time.monotonic()
    assert not await console.drain()
    console.say("the report\n")
    await screens[1].until(b"the report\n")
    assert time.monotonic() - begun < 5
    os.close(os.open(fifo, os.O_WRONLY))
    console.close()


def no_inotify() -> OneShot:
    raise OSError(errno.EMFILE, "inotify_init1")


class NoMoreWatches(OneShot):
    def arm(self, path: str) -> int:
        raise OSError(errno.ENOSPC, "inotify_add_watch", path)


@pytest.mark.parametrize("watching", [no_inotify, NoMoreWatches])
async def test_without_inotify_it_ticks(
    screens: tuple[Screen, Screen], tmp_path: Path, watching: Callable[[], OneShot]
) -> None:
    console = Console(screens[0].fd, screens[1].fd, watching=watching)
    path = tmp_path / "out"
    console.follow([Source(str(path))])
    for i in range(3):
        with path.open("ab") as f:
            f.write(b"line %d\n" % i)
        await screens[0].until(b"line %d\n" % i)
    assert await console.drain()
    console.close()


class WrittenMeanwhile(OneShot):
    """A rank that writes after the last look at its file and before the watch stands."""

    written = 0

    def arm(self, path: str) -> int:
        if self.written < 3:
            self.written += 1
            with open(path, "ab") as f:
                f.write(b"%d\n" % self.written)
        return super().arm(path)


async def test_what_is_written_before_the_watch_stands_is_seen(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    console = Console(screens[0].fd, screens[1].fd, watching=WrittenMeanwhile)
    console.follow([Source(str(tmp_path / "out"))])
    await screens[0].until(b"1\n")
    console.close()


@pytest.mark.parametrize("end", [131072, 1 << 20])
async def test_a_hole_in_a_log_is_counted_and_not_shown(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path, end: int
) -> None:
    """Red when ``_read`` feeds what it reads of a hole, and when it goes on within it."""
    log = tmp_path / "log"
    log.write_bytes(b"head\n" + b"x" * (65536 - 6) + b"\n" + b"y" * (end - 65536 - 1) + b"\nzeros \0 of its own\n")
    with log.open("rb+") as file:
        blocks.punch(file.fileno(), 65536, end)
    console.follow([Source(str(log))])
    assert await console.drain()
    lines = screens[0].read_rest().split(b"\n")
    assert lines[0] == b"head"
    assert lines[1] == b"x" * (65536 - 6)
    assert lines[2] == b"[remuster: %d bytes skipped: the log has given them up]" % (end - 65536)
    assert b"zeros \0 of its own" in lines
    assert lines.count(b"y" * 9) == 0


async def test_a_reader_that_lags_meets_a_hole_that_grows(
    console: Console, screens: tuple[Screen, Screen], tmp_path: Path
) -> None:
    """The console stands still in the middle of what is punched out meanwhile."""
    log = tmp_path / "log"
    screens[0].stop()
    console.follow([Source(str(log))])
    line = b"%063d\n"
    with log.open("ab", buffering=0) as file:
        file.write(b"".join(line % i for i in range(4 * FULL // 64)))
        await asyncio.to_thread(until, lambda: console._follower.moved >= FULL, "the console is full")
    with log.open("rb+") as file:
        for end in (2 * FULL, 3 * FULL):
            blocks.punch(file.fileno(), 65536, end)
    screens[0].start()
    assert await console.drain()
    shown = screens[0].read_rest()
    assert b"\0" not in shown
    (said,) = re.findall(rb"\[remuster: (\d+) bytes skipped: the log has given them up\]\n", shown)
    own = b"[remuster: %s bytes skipped: the log has given them up]\n" % said
    assert len(shown) - len(own) + int(said) == 4 * FULL
    assert shown.endswith(line % (4 * FULL // 64 - 1))
