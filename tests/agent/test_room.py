"""The room of logs on real file systems: a full one, one that knows no fallocate, one with a quota's errors."""

from __future__ import annotations

import asyncio
import io
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from command.processes import until
from small_disk import fill, small_disk

from remuster.agent import room_plan
from remuster.agent.room import Room
from remuster.agent.room_plan import RESERVE

M = 1 << 20
MARK = re.compile(rb"\n\[remuster: (\d+) bytes are missing here: ([^\]]+)\] *\n")
PACE_S = 0.01  # between two writes of a rank
LINE = b"%015d\n"


def lines(first: int, count: int) -> bytes:
    return b"".join(LINE % number for number in range(first, first + count))


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


async def come(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(until, condition, what, 10.0)


async def write_until(file: io.FileIO, condition: Callable[[], object]) -> None:
    """Write as a rank does until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        assert file.write(bytes(16 * 1024)) == 16 * 1024
        await asyncio.sleep(PACE_S)
    raise AssertionError("no room was made")


def test_head_and_tail_are_byte_exact(tmp_path: Path) -> None:
    """Red when the mark is written before the blocks are aligned, and when ``mark`` counts without itself."""

    async def go() -> None:
        said: list[str] = []
        room, log = Room(tmp_path, 2 * M, said.append), tmp_path / "stdout.log"
        whole = b""
        await room.keep([str(log)])
        with log.open("ab", buffering=0) as file:
            for part in range(40):
                new = lines(part * M // 64, M // 64)
                whole += new
                file.write(new)
                await asyncio.sleep(PACE_S)
            new = lines(10 * M // 16, 3 * M // 16)
            whole += new
            file.write(new)
        await room.close()  # looks once more
        assert log.stat().st_size == len(whole)
        assert allocated(log) <= 2 * M
        kept = log.read_bytes()
        (mark,) = MARK.finditer(kept)
        assert mark[2] == b"the log had reached its limit"
        hole_end = mark.start() + int(mark[1])
        assert kept[: mark.start()] == whole[: mark.start()]
        assert mark.start() > 200_000
        assert set(kept[mark.end() : hole_end]) == {0}
        assert kept[hole_end:] == whole[hole_end:]
        assert len(whole) - hole_end > M // 2
        assert said == []

    asyncio.run(go())


def test_a_reserve_is_ahead_of_the_end_and_given_back(tmp_path: Path) -> None:
    """Red when ``_let_go`` does not give back, and when blocks are reserved with the file's end moved."""

    async def go() -> None:
        room, one, two = Room(tmp_path, 0, print), tmp_path / "one", tmp_path / "two"
        await room.keep([str(one), str(two)])
        assert [allocated(path) for path in (one, two)] == [RESERVE, RESERVE]
        assert one.stat().st_size == 0
        assert one.stat().st_mode & 0o777 == 0o600
        with one.open("ab", buffering=0) as file:
            file.write(bytes(RESERVE * 3 // 4))
            await come(lambda: allocated(one) >= RESERVE * 7 // 4, "more is reserved when half is used up")
        three = tmp_path / "three"
        await room.keep([str(three)])
        assert allocated(one) == RESERVE * 3 // 4
        assert allocated(two) == 0
        assert allocated(three) == RESERVE
        await room.close()
        assert allocated(three) == 0
        assert one.read_bytes() == bytes(RESERVE * 3 // 4)

    asyncio.run(go())


def test_a_file_system_without_fallocate_is_left_alone(tmp_path: Path) -> None:
    async def go(disk: Path, limit: int) -> list[str]:
        said: list[str] = []
        room, log = Room(disk, limit, said.append), disk / "log"
        await room.keep([str(log)])
        log.write_bytes(lines(0, M // 8))
        await room.close()
        await asyncio.sleep(0)  # what was said comes over the loop
        assert log.read_bytes() == lines(0, M // 8)
        return said

    with small_disk(tmp_path / "disk", "ramfs") as disk:
        assert asyncio.run(go(disk, 0)) == []
        (said,) = asyncio.run(go(disk, M))
        assert said.startswith(f"logs grow beyond --log-limit: the file system of {disk} cannot give back")


KINDS = ["tmpfs", pytest.param("ext4", marks=pytest.mark.drill)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_goes_on_where_the_disk_is_full(tmp_path: Path, kind: str) -> None:
    """Red without the reserve, and when only logs with more than ``PLENTY`` make room (no ``dire``)."""

    async def go(disk: Path) -> None:
        said: list[str] = []
        room, log = Room(disk, 0, said.append), disk / "log"
        await room.keep([str(log)])
        with log.open("ab", buffering=0) as file:
            fill(disk)
            whole = b""
            for part in range(150):  # 6 MB, 4 MB a second
                new = lines(part * 2560, 2560)
                assert file.write(new) == len(new)
                whole += new
                await asyncio.sleep(PACE_S)
        await room.close()
        kept = log.read_bytes()
        (mark,) = MARK.finditer(kept)
        hole_end = mark.start() + int(mark[1])
        assert mark[2] == b"the disk was full"
        assert kept[: mark.start()] == whole[: mark.start()]
        assert kept[hole_end:] == whole[hole_end:]
        assert len(kept) - hole_end >= room_plan.DIRE.tail
        (line,) = said
        assert line.startswith(f"the disk under {disk} is full: ranks go on")

    with small_disk(tmp_path / "disk", kind) as disk:
        asyncio.run(go(disk))


def test_earlier_attempts_make_room_only_when_nothing_else_does(tmp_path: Path) -> None:
    async def go(disk: Path) -> None:
        room, old, new = Room(disk, 0, lambda _: None), disk / "old", disk / "new"
        old.write_bytes(bytes(20 * M))
        await room.keep([str(old)])
        new.write_bytes(bytes(20 * M))
        await room.keep([str(new)])
        fill(disk)
        with new.open("ab", buffering=0) as file:
            await write_until(file, lambda: allocated(new) < 14 * M)
            assert allocated(old) == 20 * M
            fill(disk)
            await write_until(file, lambda: allocated(old) < 14 * M)
        await room.close()

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(go(disk))


def test_nothing_is_done_while_nothing_is_written(tmp_path: Path) -> None:
    """Red when a log stays awake: its thread then runs fifty times a second for ever."""

    async def go() -> None:
        room, log = Room(tmp_path, 0, print), tmp_path / "log"
        await room.keep([str(log)])

        def switches() -> int:
            (thread,) = (thread for thread in threading.enumerate() if thread.name == "remuster-room")
            status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
            return int(status.split("voluntary_ctxt_switches:")[1].split()[0])

        counts = [-1, switches()]
        while counts[-1] != counts[-2]:
            assert len(counts) < 25, "it never rests"
            await asyncio.sleep(0.2)
            counts.append(switches())
        await room.close()

    asyncio.run(go())


def test_a_log_that_is_no_file_any_more_is_left_alone(tmp_path: Path) -> None:
    async def go() -> None:
        room, fifo, link, gone = Room(tmp_path, M, print), tmp_path / "fifo", tmp_path / "link", tmp_path / "x" / "y"
        target = tmp_path / "target"
        target.write_bytes(bytes(5 * M))
        os.mkfifo(fifo)
        link.symlink_to(target)
        await room.keep([str(fifo), str(link), str(gone)])
        await room.close()
        assert allocated(target) == 5 * M

    asyncio.run(go())
