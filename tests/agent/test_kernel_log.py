"""The kernel log from real files and pipes: what is kept, of which time, and which lines raise the alarm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from command.processes import until

from remuster.agent import node_words as words
from remuster.agent.kernel_log import KernelLog
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun
from remuster.health.evidence import Fact
from remuster.health.observed import KernelLine, Lacked
from remuster.rendezvous.records import Round

XID = "NVRM: Xid (PCI:0000:3b:00): %d, pid=7, name=python, %s\n"
HARD, SOFT = XID % (79, "GPU has fallen off the bus."), XID % (31, "MMU Fault")
NOISE = "br0: port 4(v4.0) entered disabled state\n"

Reader = Callable[..., AbstractAsyncContextManager[tuple[KernelLog, list[words.Event]]]]


@asynccontextmanager
async def reading(path: Path, gpus: Path = Path("/nowhere")) -> AsyncIterator[tuple[KernelLog, list[words.Event]]]:
    posted: list[words.Event] = []
    log = KernelLog(str(path), posted.append, gpus)
    log.begin(Begun(Round(1), boottime(), ()))
    try:
        yield log, posted
    finally:
        await log.close()


async def come(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(until, condition, what, 10.0)


async def opened(log: KernelLog) -> None:
    """Wait until it reads: a round's facts come after that."""
    assert await log.facts() == ()


@pytest.fixture(params=["file", "pipe"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / "kern.log"
    if request.param == "pipe":
        os.mkfifo(made)
    else:
        made.touch()
    return made


def write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


async def test_a_hard_line_raises_the_alarm_at_once_and_soft_ones_are_kept(path: Path) -> None:
    async with reading(path) as (log, posted):
        await opened(log)
        write(path, NOISE + SOFT + "Nov 30 03:48:33 h kernel: " + HARD[:20])
        write(path, HARD[20:])
        await come(lambda: posted, "the alarm")
        (alarm,) = posted
        assert isinstance(alarm, words.Alarmed)
        assert (alarm.round, alarm.why.rank) == (1, -1)
        assert "XID 79 (fallen off the bus) of GPU 0000:3b:00 while ranks ran" in alarm.why.why
        facts = await log.facts()
        assert [fact.text + "\n" for fact in facts if isinstance(fact, KernelLine)] == [SOFT, HARD]
        assert all(0 <= fact.at_s < 10 for fact in facts if isinstance(fact, KernelLine))
        assert await log.facts() == (), "a line is handed up once"


async def test_what_is_written_before_the_facts_are_asked_for_is_among_them(path: Path) -> None:
    async with reading(path) as (log, _):
        await opened(log)
        write(path, SOFT)
        (fact,) = await log.facts()
        assert isinstance(fact, KernelLine)


async def test_lines_between_two_rounds_are_the_next_ones_and_no_alarm(path: Path) -> None:
    async with reading(path) as (log, posted):
        await opened(log)
        write(path, HARD)
        await come(lambda: posted, "the line is read")
        log.begin(Begun(Round(2), boottime(), ()))
        (fact,) = await log.facts()
        assert isinstance(fact, KernelLine)
        assert fact.at_s < 0
        log.begin(Begun(Round(3), boottime() + 100, ()))
        assert await log.facts() == ()


async def test_gpus_of_others_are_left_out(path: Path, tmp_path: Path) -> None:
    for name in ("0000:1a:00.0", "0000:1b:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    async with reading(path, tmp_path / "gpus") as (log, posted):
        await opened(log)
        ours = HARD.replace("3b", "1B")
        write(path, HARD + ours)
        await come(lambda: posted, "the alarm")
        assert [fact.text + "\n" for fact in await log.facts() if isinstance(fact, KernelLine)] == [ours]
        assert len(posted) == 1


async def test_the_last_minute_of_a_file_counts(tmp_path: Path) -> None:
    path, now = tmp_path / "kern.log", boottime()
    path.write_text("".join(f"[{now - ago:12.6f}] {XID % (31, ago)}" for ago in (100, 61, 50, 5)) + SOFT)
    async with reading(path) as (log, posted):
        facts = await log.facts()
        assert [round(fact.at_s) for fact in facts if isinstance(fact, KernelLine)] == [-50, -5]
        assert posted == []


async def test_a_rotated_file_is_followed(tmp_path: Path) -> None:
    """Red when the watch is for writes alone."""
    path = tmp_path / "kern.log"
    path.touch()
    async with reading(path) as (log, posted):
        await opened(log)
        path.rename(tmp_path / "kern.log.1")
        path.write_text("")
        write(path, HARD)
        await come(lambda: posted, "the alarm")


async def test_a_file_emptied_in_its_place_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text(NOISE * 10)
    async with reading(path) as (log, posted):
        await opened(log)
        path.write_text(HARD)
        await come(lambda: posted, "the alarm")


async def test_a_file_emptied_and_filled_again_to_its_old_length_is_read_from_its_start(tmp_path: Path) -> None:
    """Red when only its size tells that it was emptied."""
    path = tmp_path / "kern.log"
    path.write_text(XID % (31, "GPU has fallen off the bus."))
    async with reading(path) as (log, posted):
        await opened(log)
        assert len(HARD) == path.stat().st_size
        path.write_text(HARD)
        await come(lambda: posted, "the alarm")


@pytest.mark.parametrize("what", ["pipe", "folder"])
async def test_what_takes_the_files_place_holds_nobody_up_and_a_file_there_is_read_again(
    what: str, tmp_path: Path
) -> None:
    """Red when it is opened as a file is, which waits for a pipe's writer; or when the first error ends all."""
    path = tmp_path / "kern.log"
    path.touch()
    async with reading(path) as (log, posted):
        await opened(log)
        write(path, SOFT)
        path.rename(tmp_path / "kern.log.1")
        os.mkfifo(path) if what == "pipe" else path.mkdir()
        write(tmp_path / "kern.log.1", NOISE)
        facts: list[Fact] = []
        while not any(isinstance(fact, Lacked) for fact in facts):
            facts += await log.facts()
            await asyncio.sleep(0.01)
        assert [type(fact) for fact in facts] == [KernelLine, Lacked]
        path.rename(tmp_path / "other")
        path.write_text(HARD)
        await come(lambda: posted, "the alarm")


async def test_a_flood_does_not_hold_up_the_loop(path: Path) -> None:
    """Red when a reader goes on as long as there is something: the longest turn is then that of the whole flood."""
    async with reading(path) as (log, posted):
        await opened(log)
        flood = asyncio.gather(asyncio.to_thread(lambda: [write(path, NOISE * 100) for _ in range(300)]))
        longest, last = 0.0, boottime()
        while not flood.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, boottime() - last), boottime()
        await asyncio.to_thread(write, path, HARD)  # a full pipe takes it when the loop has read again
        await come(lambda: posted, "the alarm")
        assert longest < 0.25


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "cannot be read: No such file or directory; give --kernel-log FILE, or none"),
        ("/dev/null", "it is neither the kernel's device, nor a file, nor a named pipe"),
    ],
)
async def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, why: str) -> None:
    async with reading(tmp_path / name) as (log, _):
        (fact,) = await log.facts()
        assert isinstance(fact, Lacked)
        assert fact.source == "kernel log"
        assert why in fact.why


async def test_a_log_that_comes_later_is_read_from_the_next_round_on(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    async with reading(path) as (log, _):
        assert [type(fact) for fact in await log.facts()] == [Lacked]
        path.touch()
        log.begin(Begun(Round(2), boottime(), ()))
        await opened(log)


async def test_without_permission_it_says_what_to_do() -> None:
    """The kernel looks for CAP_SYSLOG among the effective capabilities, of which another user has none."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        async with reading(Path("/dev/kmsg")) as (log, _):
            found = await log.facts()
    finally:
        os.seteuid(mine)
    if Path("/proc/sys/kernel/dmesg_restrict").read_text() == "1\n":
        assert [type(fact) for fact in found] == [Lacked]
    assert all("needs CAP_SYSLOG; run as root" in fact.why for fact in found if isinstance(fact, Lacked))


async def test_lines_that_come_while_the_watch_is_set_are_seen(tmp_path: Path) -> None:
    """A race that these lines may or may not meet: it was found by reading, not by this test."""
    path = tmp_path / "kern.log"
    path.touch()
    async with reading(path) as (log, posted):
        await opened(log)
        for n in range(60):
            await asyncio.to_thread(write, path, HARD)
            await come(lambda n=n: len(posted) > n, f"alarm {n}")
            await log.facts()
