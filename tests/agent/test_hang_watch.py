"""The watch on a real page, with real processes: it raises the alarm once, and says how silent ranks were."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command.processes import alive, until

from remuster.agent import node_words as words
from remuster.agent.beats import Beats
from remuster.agent.hang_watch import HangWatch, Means
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun, RankHere
from remuster.agent.traces import sample
from remuster.health.observed import Silence, Slow
from remuster.rendezvous.records import Round
from remuster.worker.beat import Heart, page_bytes

SLEEP = "import time; time.sleep(600)"
SPIN = "while True: pass"
SPIN_BELOW = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
MOVE = "import time\nwhile True: open('/dev/zero', 'rb').read(1 << 22); time.sleep(0.01)"


class Scene:
    """Processes in place of ranks, their page and their logs, and what the watch has posted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page = Beats(1, 4)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.posted: list[words.Event] = []
        self.computing: dict[int, bool] = {}
        self.answer_s = 0.0
        self.asked = 0
        self.began = boottime()

    def rank(self, program: str = SLEEP) -> RankHere:
        local = len(self.processes)
        folder = self.folder / str(local)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", program])
        self.processes.append(process)
        return RankHere(10 + local, local, process.pid, folder, {})

    def heart(self, local: int) -> Heart:
        import mmap

        fd = os.open(self.page.address(local).rpartition(":")[0], os.O_RDWR)
        memory = memoryview(mmap.mmap(fd, 0))
        os.close(fd)
        return Heart(memory, len(memory) // page_bytes(1), local)

    def watch(self, given_s: float | None) -> HangWatch:
        return HangWatch(given_s, Means(self.page.read, self.posted.append, self.gpus))

    async def gpus(self) -> dict[int, bool]:
        self.asked += 1
        await asyncio.sleep(self.answer_s)
        return self.computing

    def alarms(self) -> list[words.Alarmed]:
        return [event for event in self.posted if isinstance(event, words.Alarmed)]

    def close(self) -> None:
        for process in self.processes:
            for pid in (process.pid, *children(process.pid)):
                os.kill(pid, signal.SIGKILL)
            process.wait()
        self.page.close()


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] if alive(pid) else []


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


async def wait_for(condition: Callable[[], object], within_s: float = 20.0) -> None:
    end = boottime() + within_s
    while not condition():
        assert boottime() < end
        await asyncio.sleep(0.02)


def test_ranks_that_beat_are_left_alone_until_they_stop(scene: Scene) -> None:
    async def story() -> None:
        watch, ranks = scene.watch(1.0), [scene.rank(), scene.rank()]
        hearts = [scene.heart(0), scene.heart(1)]
        watch.begin(Begun(Round(1), scene.began, tuple(ranks)))
        for step in range(22):
            for heart in hearts:
                heart.beat(step)
            await asyncio.sleep(0.05)
        assert not scene.posted
        hearts[0].beat(22)
        stopped = boottime()
        await wait_for(scene.alarms)
        (alarm,) = scene.alarms()
        assert 0.9 <= alarm.at - stopped <= 3.0
        assert (alarm.round, alarm.why.rank) == (1, 11)
        assert alarm.why.why.startswith("rank 11, behind the others, has said no step after 21 for ")
        await watch.inspect()
        found = await watch.facts()
        assert [(fact.rank, fact.step, fact.by) for fact in found if isinstance(fact, Silence)] == [
            (11, 21, "heartbeat"),
            (10, 22, "heartbeat"),
        ]
        await watch.close()
        assert len(scene.posted) == 1
        assert not scene.asked, "steps tell more than GPUs"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("programs", "idle"),
    [((SLEEP, SPIN), 10), ((SPIN_BELOW, SPIN), 0), ((SLEEP, MOVE), 0)],
)
def test_ranks_that_say_no_steps(scene: Scene, programs: tuple[str, ...], idle: int) -> None:
    """One that idles while another spins in a collective is a hang; not when all work, or data moves."""

    async def story() -> None:
        watch, ranks = scene.watch(1.0), [scene.rank(program) for program in programs]
        watch.begin(Begun(Round(1), boottime(), tuple(ranks)))
        if idle:
            await wait_for(scene.alarms)
            assert scene.alarms()[0].why.rank == idle
            await watch.inspect()
            silent = [fact for fact in await watch.facts() if isinstance(fact, Silence)]
            assert {fact.by for fact in silent} == {"output"}
            assert idle in {fact.rank for fact in silent}
        else:
            await asyncio.sleep(1.9)  # nearly twice what is allowed
            assert not scene.posted
        await watch.close()

    asyncio.run(story())


@pytest.mark.parametrize("stopped_s", [3.0])
def test_ranks_that_were_stopped_with_their_agent_are_not_taken_for_hung(scene: Scene, stopped_s: float) -> None:
    """Red when only looks that are ten seconds late are noticed. The loop stands still as a stopped process does."""

    async def story() -> None:
        watch, rank, heart = scene.watch(2.0), scene.rank(), scene.heart(0)
        watch.begin(Begun(Round(1), scene.began, (rank,)))
        for step in range(10):
            heart.beat(step)
            await asyncio.sleep(0.05)
        time.sleep(stopped_s)
        await asyncio.sleep(0.3)  # the next step is not done at once
        heart.beat(10)
        assert not scene.posted
        stopped = boottime()
        await wait_for(scene.alarms)
        assert 1.9 <= scene.alarms()[0].at - stopped <= 6.0
        await watch.close()

    asyncio.run(story())


BEATS = """
import remuster, time
for step in range({most}):
    remuster.heartbeat(step)
    print(flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a time namespace")
@pytest.mark.parametrize(("away", "most", "hangs"), [(-1, 1 << 40, False), (1, 3, True)], ids=["behind", "ahead"])
def test_steps_by_another_clock_are_no_steps(scene: Scene, away: int, most: int, hangs: bool) -> None:
    """Red when they are believed: behind, a rank is taken for hung whatever it says; ahead, never."""
    away_s = away * min(5000, int(boottime() / 2))  # no clock can be before the machine's start
    env = {**os.environ, "REMUSTER_BEATS": scene.page.address(0), "REMUSTER_ROUND": "1"}
    program = (sys.executable, "-c", BEATS.format(most=most))
    inside = ["unshare", "--time", "--boottime", str(away_s), "--fork", "--kill-child", *program]

    async def story() -> None:
        with subprocess.Popen(inside, env=env, stdout=subprocess.DEVNULL) as process:
            await wait_for(scene.page.read)
            assert abs(scene.page.read()[0].last_s - boottime() - away_s) < min(60, abs(away_s) / 2)
            watch, rank = scene.watch(1.0), RankHere(10, 0, process.pid, scene.folder, {})
            watch.begin(Begun(Round(1), scene.began, (rank,)))
            if hangs:
                await wait_for(scene.alarms)
                assert "no rank of this node has written anything" in scene.alarms()[0].why.why
            else:
                await asyncio.sleep(1.9)
                assert not scene.posted
            await watch.close()
            process.kill()

    asyncio.run(story())


def test_output_is_a_sign_of_work(scene: Scene) -> None:
    async def story() -> None:
        watch, rank = scene.watch(1.0), scene.rank()
        watch.begin(Begun(Round(1), boottime(), (rank,)))
        for _ in range(15):
            with (rank.directory / "stderr.log").open("a") as file:
                file.write("x")
            await asyncio.sleep(0.1)
        assert not scene.posted
        await wait_for(scene.alarms)
        await watch.close()

    asyncio.run(story())


def test_a_rank_whose_gpu_computes_is_left_alone_until_that_ends(scene: Scene) -> None:
    async def story() -> None:
        watch, rank = scene.watch(1.0), scene.rank()
        scene.computing = {rank.rank: True}
        watch.begin(Begun(Round(1), boottime(), (rank,)))
        await asyncio.sleep(1.9)  # nearly twice what is allowed
        assert not scene.posted
        scene.computing = {rank.rank: False}
        await wait_for(scene.alarms)
        assert "its rank used neither processor nor GPU" in scene.alarms()[0].why.why
        await watch.close()

    asyncio.run(story())


def test_a_driver_that_never_answers_puts_no_alarm_off(scene: Scene) -> None:
    """Red when it is asked after the rest was looked at, which is too old to judge by then."""

    async def story() -> None:
        watch, rank = scene.watch(1.0), scene.rank()
        scene.answer_s = 1.0
        began = boottime()
        watch.begin(Begun(Round(1), began, (rank,)))
        await wait_for(scene.alarms)
        assert scene.alarms()[0].at - began < 8.0
        assert "its rank used no processor" in scene.alarms()[0].why.why
        await watch.close()

    asyncio.run(story())


@pytest.mark.parametrize("given_s", [0.0, None])
def test_nothing_is_raised_when_nobody_wants_it(scene: Scene, given_s: float | None) -> None:
    async def story() -> None:
        watch, rank = scene.watch(given_s), scene.rank()
        scene.heart(0).beat(1)
        watch.begin(Begun(Round(1), scene.began - 200, (rank,)))
        await asyncio.sleep(0.3)
        await watch.inspect()
        assert await watch.facts() == ()
        assert not scene.posted
        await watch.close()

    asyncio.run(story())


def test_a_straggler_is_named(scene: Scene) -> None:
    async def story() -> None:
        watch, ranks = scene.watch(None), [scene.rank() for _ in range(3)]
        hearts = [scene.heart(local) for local in range(3)]
        watch.begin(Begun(Round(1), scene.began, tuple(ranks)))
        for tick in range(30):
            for local, heart in enumerate(hearts):
                if local != 1 or tick % 3 == 0:
                    heart.beat(tick)
            await asyncio.sleep(0.01)
        (slow,) = await watch.facts()
        assert isinstance(slow, Slow)
        assert slow.rank == 11
        assert 2 < slow.ratio < 4
        await watch.close()

    asyncio.run(story())


def test_a_sample_counts_a_ranks_whole_family_and_no_dead(scene: Scene) -> None:
    family, gone = scene.rank(SPIN_BELOW), scene.rank()
    os.kill(gone.pid, signal.SIGKILL)
    until(lambda: not alive(gone.pid), "it is dead")
    first = sample((family, gone))
    until(lambda: sample((family, gone)).cpu_s[10] > first.cpu_s[10] + 0.1, "its child works")
    assert set(first.cpu_s) == {10}
