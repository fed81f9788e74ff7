"""The watch over living ranks' output, with real files and its real thread: alarms, withdrawals, facts, holes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from remuster.agent import node_words as words
from remuster.agent.line_watch import MOST_OF_RANK, LineWatch
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun, RankHere
from remuster.health.evidence import Beat
from remuster.health.live import LIVE
from remuster.health.observed import Lacked, Sighting
from remuster.health.own_signatures import OwnSign, OwnSignatures
from remuster.health.signatures import table
from remuster.rendezvous.records import Round

TIMEOUT = (
    "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=808, OpType=ALLREDUCE) ran for 600020 milliseconds before timing out.\n"
)
QUOTED = f"an old log: {TIMEOUT}"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
KEEP_SIZE, PUNCH_HOLE = 1, 2


class Scene:
    """Two ranks' files, a watch, and what it posts."""

    def __init__(self, folder: Path, window_s: float | None = 10.0, own: OwnSignatures | None = None) -> None:
        self.events: list[words.Event] = []
        self.folder = folder
        for rank in (0, 1):
            (folder / str(rank)).mkdir()
            for name in ("stdout.log", "stderr.log"):
                (folder / str(rank) / name).touch()
        self.beats: dict[int, Beat] = {}
        self.watch = LineWatch(self.events.append, window_s, lambda: self.beats, own)

    def begin(self, n: int = 1) -> None:
        ranks = tuple(RankHere(rank, rank, 100 + rank, self.folder / str(rank), {}) for rank in (0, 1))
        self.watch.begin(Begun(Round(n), boottime(), ranks))

    def write(self, rank: int, name: str, text: str) -> None:
        with (self.folder / str(rank) / f"{name}.log").open("a") as file:
            file.write(text)

    async def until(self, met: Callable[[], bool]) -> None:
        until = time.monotonic() + 10
        while not met():
            assert time.monotonic() < until, self.events
            await asyncio.sleep(0.01)

    async def sightings(self) -> list[Sighting]:
        return [fact for fact in await self.watch.facts() if isinstance(fact, Sighting)]

    @property
    def watching(self) -> bool:
        return any(thread.name == "remuster-output" for thread in threading.enumerate())


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    yield made
    await made.watch.close()
    await made.until(lambda: not made.watching)


async def test_the_first_line_raises_the_alarm_and_stands_among_the_facts(scene: Scene) -> None:
    scene.begin(7)
    scene.write(1, "stdout", "step 1 loss 2.0\n")
    scene.write(1, "stderr", TIMEOUT * 3)
    await scene.until(lambda: bool(scene.events))
    (event,) = scene.events
    assert isinstance(event, words.Alarmed)
    assert (event.round, event.window_s) == (7, 10.0)
    assert (event.why.rank, event.why.sign) == (1, "nccl-timeout")
    assert event.why.why == f"rank 1 wrote: {TIMEOUT.strip()}"
    (seen,) = await scene.sightings()
    assert (seen.rank, seen.sign, seen.line) == (1, "nccl-timeout", TIMEOUT.strip())
    assert 0 <= seen.at_s <= event.why.at_s + 1


async def test_the_sites_lines_stand_among_the_facts_and_raise_no_alarm(tmp_path: Path) -> None:
    """Red when the thread's scanner is made without them; far above the last lines that are kept anyway."""
    sign = OwnSign("SITE-42:*gave up", "fs_hang", "the site's data reader")
    scene = Scene(tmp_path, own=OwnSignatures((sign,)))
    scene.begin()
    scene.write(1, "stdout", "SITE-42: reader gave up\n" + "and so on\n" * 3000)
    await scene.until(lambda: scene.watching)
    (seen,) = await scene.sightings()
    assert (seen.rank, seen.sign, seen.line) == (1, "site signature: SITE-42:*gave up", "SITE-42: reader gave up")
    assert not scene.events
    await scene.until(lambda: not scene.watching)


async def test_what_was_written_before_the_watch_and_what_has_no_end_is_seen(scene: Scene) -> None:
    scene.write(0, "stdout", QUOTED)
    scene.begin()
    scene.write(1, "stderr", "OSError: [Errno 28] No space left on device: '/shared/x'")
    await scene.until(lambda: scene.watching)
    seen = await scene.sightings()
    assert {(s.rank, s.sign) for s in seen} == {(0, "nccl-timeout"), (1, "disk-full")}
    assert not scene.events


async def test_two_lines_of_progress_after_it_withdraw_an_alarm_and_a_next_one_counts_again(scene: Scene) -> None:
    """Red when progress on the other stream is not counted, or when the scanner is not armed again."""
    scene.begin()
    scene.write(1, "stderr", TIMEOUT)
    await scene.until(lambda: len(scene.events) == 1)
    scene.write(0, "stdout", "step 8 loss 1.0\nstep 9 loss 1.0\nstep 10 loss 1.0\n")  # another's
    scene.write(1, "stdout", "step 8 loss 1.0\n 8/900 |##  | step 8\n")
    scene.write(0, "stderr", ECC)
    await scene.until(lambda: len(scene.events) == 2)
    assert isinstance(scene.events[1], words.Alarmed)
    scene.write(1, "stdout", "step 9 loss 1.0\n")
    await scene.until(lambda: len(scene.events) == 3)
    assert isinstance(scene.events[0], words.Alarmed)
    assert isinstance(scene.events[2], words.Withdrawn)
    assert scene.events[2].why == scene.events[0].why
    scene.write(1, "stderr", TIMEOUT)
    await scene.until(lambda: len(scene.events) == 4)
    assert isinstance(scene.events[3], words.Alarmed)


async def test_steps_that_are_said_after_it_withdraw_an_alarm_and_a_next_one_counts_again(tmp_path: Path) -> None:
    """A healthy rank may print an old log, and say its steps by ``heartbeat`` alone. Red when nobody asks the page."""
    scene = Scene(tmp_path, window_s=0.5)
    scene.beats = {0: Beat(3, 1.0, 2.0, times=5), 1: Beat(3, 1.0, 2.0, times=5)}
    scene.begin()
    for rank in (0, 1):
        scene.write(rank, "stderr", TIMEOUT)
    await scene.until(lambda: len(scene.events) == 2)
    scene.beats = {0: Beat(5, 1.0, 3.0, times=7), 1: Beat(3, 1.0, 3.0, times=9)}  # rank 1 says that it still saves
    await scene.until(lambda: len(scene.events) == 3)
    assert isinstance(scene.events[2], words.Withdrawn)
    assert scene.events[2].why.rank == 0
    scene.write(0, "stderr", TIMEOUT)
    await scene.until(lambda: len(scene.events) == 4)
    assert isinstance(scene.events[3], words.Alarmed)
    await asyncio.sleep(0.6)  # the time of all looks
    assert len(scene.events) == 4
    await scene.watch.close()


async def test_a_bar_that_moves_on_withdraws_an_alarm(scene: Scene) -> None:
    scene.begin()
    scene.write(1, "stderr", TIMEOUT)
    await scene.until(lambda: len(scene.events) == 1)
    for n in (7, 8, 9, 10):
        scene.write(1, "stderr", f"\rtrain:   {n}%|#         | {n}/100 [00:07<01:30,  1.00it/s]")
    await scene.until(lambda: len(scene.events) == 2)
    assert isinstance(scene.events[1], words.Withdrawn)


async def test_what_was_written_before_the_alarm_is_no_progress_after_it(scene: Scene) -> None:
    """Red when ``mark`` looks at what was read instead of what was written."""
    scene.write(1, "stderr", TIMEOUT)
    scene.write(1, "stdout", "x" * (3 << 20) + "\nstep 1\nstep 2\nstep 3\n")  # several turns of the reader
    scene.begin()
    await scene.until(lambda: bool(scene.events))
    await scene.sightings()
    assert len(scene.events) == 1


async def test_without_a_window_signs_are_evidence_only(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None)
    scene.begin()
    scene.write(1, "stderr", TIMEOUT)
    await scene.until(lambda: scene.watching)
    (seen,) = await scene.sightings()
    assert seen.sign == "nccl-timeout"
    assert not scene.events


async def test_holes_and_truncation_do_not_stop_it(scene: Scene) -> None:
    """Red when the reader stays at the end of what a file once held."""
    path = scene.folder / "0" / "stderr.log"
    scene.write(0, "stderr", "x" * (1 << 20) + "\n" + QUOTED)
    fd = os.open(path, os.O_WRONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_longlong
    if libc.fallocate(fd, KEEP_SIZE | PUNCH_HOLE, size(0), size(1 << 19)):
        pytest.skip(f"no holes can be punched in {path}: {os.strerror(ctypes.get_errno())}")
    os.close(fd)
    scene.begin()
    scene.write(1, "stderr", ECC)
    await scene.until(lambda: len(scene.events) == 1)
    os.truncate(path, 0)
    scene.write(0, "stderr", "short\n")
    scene.write(0, "stderr", TIMEOUT)
    await scene.until(lambda: len(scene.events) == 2)
    seen = await scene.sightings()
    assert {(s.rank, s.sign) for s in seen} == {(0, "nccl-timeout"), (1, "ecc")}


async def test_a_new_round_is_watched_and_the_old_one_is_let_go(scene: Scene) -> None:
    scene.begin(1)
    await scene.until(lambda: scene.watching)
    scene.begin(2)
    await scene.until(lambda: not scene.watching)  # the second begins a moment later
    await scene.until(lambda: scene.watching)
    scene.write(0, "stderr", TIMEOUT)
    await scene.until(lambda: bool(scene.events))
    assert [event.round for event in scene.events if isinstance(event, words.Alarmed)] == [2]


async def test_ranks_that_end_at_once_need_no_watch(scene: Scene) -> None:
    scene.begin()
    assert await scene.watch.facts() == ()
    assert await scene.watch.facts() == ()


async def test_a_file_that_cannot_be_read_is_named(scene: Scene) -> None:
    path = scene.folder / "0" / "stderr.log"
    path.unlink()
    path.mkdir()
    scene.begin()
    await scene.until(lambda: scene.watching)
    assert await scene.watch.facts() == (Lacked("output", f"{path} cannot be shown: Is a directory"),)


async def test_one_rank_cannot_fill_the_facts(scene: Scene) -> None:
    """Alarms come first: what is cut off is evidence."""
    every = {signature.name: signature.example for signature in table()}
    scene.write(0, "stdout", "".join(f"{every[live.sign]}\n" for live in LIVE))
    scene.write(1, "stdout", QUOTED + ECC)
    scene.begin()
    await scene.until(lambda: any(e.why.rank == 1 for e in scene.events if isinstance(e, words.Alarmed)))
    seen = await scene.sightings()
    assert sum(s.rank == 0 for s in seen) == MOST_OF_RANK
    assert {"ecc"} <= {s.sign for s in seen[:8] if s.rank == 1}
