"""The process that reads the driver and its source, with the real pynvml above a driver that does what it is told.

Each test says by itself what the driver did. What a GPU must not do is judged in tests/health.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio
from fake_nvml.driver import FakeDriver, mig_uuid, uuid

from remuster.agent import gpu_start, proc
from remuster.agent import node_words as words
from remuster.agent.gpu_watch import HARD_WINDOW_S, GpuWatch
from remuster.agent.linux import boottime
from remuster.agent.sources import Begun, RankHere
from remuster.health.observed import NO_DRIVER, Gpu, Lacked
from remuster.health.own_signatures import OwnSignatures
from remuster.rendezvous.records import Round

pytestmark = pytest.mark.process

ENV = {name: value for name, value in os.environ.items() if name not in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")}
PATIENCE_S = 20.0


async def until(condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"timed out: {what}"
        await asyncio.sleep(0.002)


class Scene:
    """A source with its process; ``begin`` starts a round of ranks that are this test's own process."""

    def __init__(
        self,
        driver: FakeDriver,
        wait_s: float = 10.0,
        environ: Mapping[str, str] = ENV,
        own: OwnSignatures | None = None,
    ) -> None:
        self.posted: list[words.Alarmed] = []
        self.driver = driver
        self.round = 0
        self._start = lambda: gpu_start.start({**environ, **driver.env}, wait_s)
        child = self._start()
        self.watch = GpuWatch(child, {**environ, **driver.env}, self._post, self._start, own)
        self.pid = child.pid if child is not None else 0

    def _post(self, event: words.Event) -> None:
        assert isinstance(event, words.Alarmed)
        self.posted.append(event)

    def begin(self, *envs: dict[str, str | None], pids: tuple[int, ...] = ()) -> None:
        self.round += 1
        given = pids or tuple(range(4_000_000, 4_000_000 + len(envs)))  # beyond any pid here
        ranks = tuple(RankHere(i, i, pid, Path("/"), env) for i, (env, pid) in enumerate(zip(envs, given, strict=True)))
        self.watch.begin(Begun(Round(self.round), boottime(), ranks))

    async def ready(self) -> None:
        """Wait until the process has looked at all GPUs, and so listens."""
        assert await self.watch._look(PATIENCE_S)

    async def gpus(self) -> tuple[dict[int, Gpu], list[str]]:
        found = await self.watch.facts()
        lacked = [fact.why for fact in found if isinstance(fact, Lacked)]
        return {fact.number: fact for fact in found if isinstance(fact, Gpu)}, lacked

    async def xid(self, *lines: str) -> None:
        """Have the driver report XIDs, and wait until the source knows of them."""
        before = len(self.watch._xids)
        self.driver.tell(*(f"xid {line}" for line in lines))
        await until(lambda: len(self.watch._xids) == before + len(lines), f"XIDs {lines}")

    async def alarm(self) -> words.Alarmed:
        await until(lambda: self.posted, "an alarm")
        return self.posted[0]


@pytest_asyncio.fixture
async def scene(driver: FakeDriver) -> AsyncIterator[Scene]:
    made = Scene(driver)
    yield made
    await made.watch.close()
    assert not proc.alive(made.pid)


EIGHT: tuple[dict[str, str | None], ...] = ({},) * 8


# --- what is seen -----------------------------------------------------------------------------------------------------
async def test_eight_gpus_are_found_and_each_is_its_ranks(scene: Scene) -> None:
    scene.driver.tell("set * ecc_volatile_uncorrected 3", "set * pcie_replay 9")
    await scene.ready()
    scene.begin(*EIGHT)
    for n in range(8):
        scene.driver.tell(f"set {n} ecc_volatile_uncorrected {3 + n}", f"set {n} remap_failed {int(n == 7)}")
    found, lacked = await scene.gpus()
    assert lacked == []
    assert {n: dict(gpu.counters) for n, gpu in found.items()} == {
        **{n: {"ecc_uncorrected": n} for n in range(1, 7)},
        7: {"ecc_uncorrected": 7, "row_remap_failed": 1},
    }
    assert found[5] == Gpu(uuid(5), "0000:6b:00.0", 5, (5,), (), (("ecc_uncorrected", 5),))


async def test_what_ranks_did_before_the_source_was_there_is_theirs(scene: Scene) -> None:
    """The first ranks start before it is loaded: what waits in the socket is from before and after that."""
    scene.driver.tell("set 2 ecc_volatile_uncorrected 3")
    await scene.ready()
    asyncio.get_running_loop().remove_reader(scene.watch._end)  # type: ignore[arg-type]
    began_s = boottime()
    scene.driver.tell("xid 2 94", "set 2 ecc_volatile_uncorrected 5")
    await until(scene.driver.delivered, "the process hears of it")
    scene.driver.tell("xid 2 94")
    await until(lambda: len(scene.driver.delivered()) == 2, "it has looked after the first")
    scene.watch.begin(Begun(Round(1), began_s, (RankHere(0, 0, 4_000_000, Path("/"), {}),)))
    found, _ = await scene.gpus()
    assert dict(found[2].counters) == {"ecc_uncorrected": 2}


async def test_counters_are_counted_anew_in_the_next_round(scene: Scene) -> None:
    await scene.ready()
    scene.begin(*EIGHT)
    scene.driver.tell("set 2 field52 40")
    await scene.xid("2 94")
    found, _ = await scene.gpus()
    assert dict(found[2].counters) == {"nvlink_replay": 40}
    assert [code for code, _ in found[2].xids] == [94]
    scene.begin(*EIGHT)
    assert await scene.gpus() == ({}, [])
    scene.begin(*EIGHT)
    scene.driver.tell("set 2 field52 41")
    found, _ = await scene.gpus()
    assert dict(found[2].counters) == {"nvlink_replay": 1}


async def test_a_gpu_that_was_slowed_while_ranks_ran_has_been(driver: FakeDriver) -> None:
    """Red when gauges are compared at the ends alone."""
    scene = Scene(driver, wait_s=0.05)
    await scene.ready()
    scene.begin(*EIGHT)
    driver.tell("set 1 clocks_reasons 0x48")
    await until(lambda: scene.watch._gauges.get(1, {}).get("slowed_by_heat"), "the process has looked by itself")
    driver.tell("set 1 clocks_reasons 0")
    found, _ = await scene.gpus()
    assert dict(found[1].counters) == {"slowed_by_hardware": 1, "slowed_by_heat": 1}
    await scene.watch.close()


async def test_events_from_before_the_process_are_not_known_and_those_from_before_the_ranks_are(
    driver: FakeDriver,
) -> None:
    driver.tell("xid 0 79")
    scene = Scene(driver)
    await scene.ready()
    await scene.xid("1 94")
    scene.begin(*EIGHT)
    found, _ = await scene.gpus()
    ((code, at_s),) = found[1].xids
    assert list(found) == [1]
    assert (code, at_s < 0) == (94, True)
    assert scene.posted == []
    await scene.watch.close()


# --- alarms -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [48, 79, 95, 119, 120])
async def test_an_xid_that_makes_a_gpu_useless_raises_the_alarm(scene: Scene, code: int) -> None:
    await scene.ready()
    scene.begin(*EIGHT)
    scene.driver.tell("xid 3 43", f"xid 3 {code}")
    alarm = await scene.alarm()
    assert (alarm.round, alarm.why.rank, alarm.window_s) == (1, 3, HARD_WINDOW_S)
    assert f"GPU 3, which rank 3 uses, has reported XID {code}" in alarm.why.why
    scene.driver.tell("xid 2 79")
    found, _ = await scene.gpus()
    assert [c for c, _ in found[3].xids] == [43, code]
    assert len(scene.posted) == 1, "the first alarm of a round counts"


async def test_no_alarm_is_raised_by_a_program_s_xid_nor_by_a_gpu_that_no_rank_uses(scene: Scene) -> None:
    await scene.ready()
    scene.begin({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": f"0,{uuid(5)}"})
    await scene.xid("0 31", "0 13", "0 45", "5 94", "7 79")
    found, _ = await scene.gpus()
    assert scene.posted == []
    assert {n: gpu.ranks for n, gpu in found.items()} == {0: (0,), 5: (1,), 7: ()}


async def test_an_alarm_is_raised_where_the_site_says_so(driver: FakeDriver) -> None:
    scene = Scene(driver, own=OwnSignatures(xids=((31, "gpu_lost"), (79, "ignore"))))
    await scene.ready()
    scene.begin(*EIGHT)
    await scene.xid("2 79", "3 31")
    alarm = await scene.alarm()
    assert "GPU 3, which rank 3 uses, has reported XID 31" in alarm.why.why
    await scene.watch.close()


async def test_what_the_driver_says_is_to_be_done_raises_the_alarm_when_it_is_new(scene: Scene) -> None:
    scene.driver.tell("set 6 field230 1")
    await scene.ready()
    scene.begin(*EIGHT)
    scene.driver.tell("event 6 0x8000 1", "set 4 field230 2", "event 4 0x8000 2", "xid 4 154")
    alarm = await scene.alarm()
    assert alarm.why.why == "GPU 4, which rank 4 uses, needs a reboot of the node, says its driver"
    found, _ = await scene.gpus()
    assert {n: gpu.recovery for n, gpu in found.items()} == {4: 2, 6: 1}


async def test_a_gpu_that_is_lost_without_a_word_is_found_and_the_others_are_heard_on(scene: Scene) -> None:
    """Red when the events are not registered anew: the wait for a set with a lost GPU fails at once, for ever."""
    await scene.ready()
    scene.begin(*EIGHT)
    scene.driver.tell("lost 2")
    alarm = await scene.alarm()
    assert alarm.why.why == "GPU 2, which rank 2 uses, is lost to its driver"
    for _ in range(50):  # those that come before it listens again are not known
        scene.driver.tell("xid 3 94")
        with contextlib.suppress(AssertionError):
            await until(lambda: scene.watch._xids, "an XID of another GPU", 0.1)
            break
    found, _ = await scene.gpus()
    assert (found[2].lost, found[3].xids[0][0]) == (True, 94)


async def test_a_gpu_that_was_lost_before_is_told_and_raises_no_alarm(driver: FakeDriver) -> None:
    driver.tell("lost 0")
    scene = Scene(driver)
    await scene.ready()
    scene.begin(*EIGHT)
    found, _ = await scene.gpus()
    assert (found[0].lost, scene.posted) == (True, [])
    await scene.watch.close()


# --- whose GPU --------------------------------------------------------------------------------------------------------
async def test_mig_devices_are_their_gpus(driver: FakeDriver) -> None:
    driver.tell("mig 1 3", "mig 3 1")
    scene = Scene(driver)
    await scene.ready()
    listed = ",".join((mig_uuid(3, 0), mig_uuid(1, 2), mig_uuid(1, 0)))
    scene.begin(*({"CUDA_VISIBLE_DEVICES": listed},) * 3)
    await scene.xid("1 94", "3 95")
    alarm = await scene.alarm()
    found, _ = await scene.gpus()
    assert (alarm.why.rank, found[1].ranks, found[3].ranks) == (0, (1, 2), (0,))
    await scene.watch.close()


async def test_the_processes_on_a_gpu_say_whose_it_is_before_the_environment_does(scene: Scene) -> None:
    """A rank is a shell, and the process on the GPU its child; another job's process is on GPU 0."""
    rank = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
    try:
        await until(lambda: proc.children(rank.pid), "the shell has a child")
        scene.driver.tell(f"proc 0 {os.getppid()}", f"proc 6 {proc.children(rank.pid)[0]}")
        await scene.ready()
        scene.begin({}, pids=(rank.pid,))
        await scene.watch.inspect()
        scene.driver.tell("xid 0 79", "xid 6 79")
        alarm = await scene.alarm()
        assert "GPU 6, which rank 0 uses" in alarm.why.why
        found, _ = await scene.gpus()
        assert {n: gpu.ranks for n, gpu in found.items()} == {0: (), 6: (0,)}
    finally:
        os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()


async def test_with_virtual_local_ranks_each_has_one_device(scene: Scene) -> None:
    await scene.ready()
    scene.begin(*({"CUDA_VISIBLE_DEVICES": str(n), "LOCAL_RANK": "0"} for n in (3, 4)))
    await scene.xid("4 94")
    found, _ = await scene.gpus()
    assert found[4].ranks == (1,)


# --- how busy they are ------------------------------------------------------------------------------------------------
async def test_the_ranks_whose_gpus_compute_are_told(scene: Scene) -> None:
    """Of a GPU that is divided the driver does not say it, nor of one that it has lost."""
    scene.driver.tell("set 1 use 90", "set 2 use 90", "mig 2 2", "lost 3")
    await scene.ready()
    assert await scene.watch.computing() == {}, "no ranks yet"
    scene.begin(*({},) * 4)
    assert await scene.watch.computing() == {0: False, 1: True}
    scene.driver.tell("set * use 0")
    assert await scene.watch.computing() == {0: False, 1: False}
    scene.driver.tell("fail nvmlDeviceGetUtilizationRates 3")
    assert await scene.watch.computing() == {}


async def test_a_driver_that_does_not_say_how_busy_gpus_are_is_waited_for_within_bounds(scene: Scene) -> None:
    """Red when the question is asked again while it waits, or when its end leaves somebody waiting."""
    await scene.ready()
    scene.begin(*EIGHT)
    scene.driver.tell("hang nvmlDeviceGetUtilizationRates 600")
    for _ in range(2):
        asked_s = time.monotonic()
        assert await scene.watch.computing() == {}
        assert 0.9 < time.monotonic() - asked_s < 3.0
    waiting = asyncio.create_task(scene.watch.computing())
    await asyncio.sleep(0)
    os.kill(scene.pid, signal.SIGKILL)
    assert await waiting == {}
    await until(lambda: scene.watch._child, "another one")
    scene.driver.tell("hang nvmlDeviceGetUtilizationRates 0")
    await scene.ready()
    assert await scene.watch.computing() == dict.fromkeys(range(8), False)


# --- a driver that fails ----------------------------------------------------------------------------------------------
async def test_a_driver_that_hangs_costs_its_answer_and_nothing_else(scene: Scene) -> None:
    """Red when the source waits without a bound, and when what was heard before is dropped."""
    await scene.ready()
    scene.begin(*EIGHT)
    await scene.xid("3 94")
    scene.driver.tell("hang * 600")
    asked_s, turns, stop = time.monotonic(), [time.monotonic()], asyncio.Event()

    async def turn() -> None:
        while not stop.is_set():
            await asyncio.sleep(0.01)
            turns.append(time.monotonic())

    turning = asyncio.create_task(turn())
    found, (why,) = await scene.gpus()
    scene.driver.tell("hang * 0")
    scene.begin(*EIGHT)  # before the end of the one that hangs is seen
    stop.set()
    await turning
    assert time.monotonic() - asked_s < 2.0
    assert max(b - a for a, b in pairwise(turns)) < 0.5, "the loop went on"
    assert [code for code, _ in found[3].xids] == [94]
    assert why.startswith("NVIDIA's driver has not answered within 1.2 s")
    await until(lambda: not proc.alive(scene.pid), "the process that hung is gone")
    await scene.ready()
    await scene.xid("3 94")
    found, lacked = await scene.gpus()
    assert (list(found), lacked) == ([3], []), "the next round has another one"


async def test_a_process_that_is_killed_is_started_again_once_in_a_round(scene: Scene) -> None:
    await scene.ready()
    scene.begin(*EIGHT)
    os.kill(scene.pid, signal.SIGKILL)
    await until(lambda: scene.watch._restarts and scene.watch._child, "another one")
    assert scene.watch._child is not None
    await scene.ready()
    scene.driver.tell("xid 1 79", "set 1 remap_uncorrected 1")
    assert (await scene.alarm()).why.rank == 1
    os.kill(scene.watch._child.pid, signal.SIGKILL)
    await until(lambda: scene.watch._child is None, "it is gone")
    found, lacked = await scene.gpus()
    assert [code for code, _ in found[1].xids] == [79]
    assert [why.partition("driver ")[2].partition(";")[0] for why in lacked] == [
        "was killed by signal 9",
        "was killed by signal 9",
        "is gone",
    ]
    scene.begin(*EIGHT)
    await scene.ready()
    assert await scene.gpus() == ({}, [])


async def test_a_wait_for_events_that_never_returns_is_named_and_the_counters_come(driver: FakeDriver) -> None:
    scene = Scene(driver, wait_s=0.05)
    await scene.ready()
    scene.begin(*EIGHT)
    driver.tell("stuck", "xid 1 79", "set 1 ecc_volatile_uncorrected 4")
    await asyncio.sleep(1.5)  # it must be late for longer than an answer may take
    found, (why,) = await scene.gpus()
    assert dict(found[1].counters) == {"ecc_uncorrected": 4}
    assert "has not returned from a wait for events" in why
    await scene.watch.close()


@pytest.mark.parametrize(
    ("function", "lost", "named"),
    [
        ("nvmlDeviceGetFieldValues", {"nvlink_replay"}, "recovery action and links"),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_uncorrected"}, "ECC counts"),
        ("nvmlDeviceGetRemappedRows", {"row_remap_failed"}, "remapped rows"),
        ("nvmlDeviceGetPcieReplayCounter", {"pcie_replay"}, "PCIe replays"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", {"slowed_by_power_brake"}, "clocks"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", set[str](), "processes"),
    ],
)
async def test_a_function_that_fails_takes_no_other_away(
    scene: Scene, function: str, lost: set[str], named: str
) -> None:
    changes = ("field52", "ecc_volatile_uncorrected", "remap_failed", "pcie_replay")
    await scene.ready()
    scene.begin(*EIGHT)
    scene.driver.tell(*(f"set 0 {key} 1" for key in changes), "set 0 clocks_reasons 0x80", f"fail {function} 999")
    found, (why,) = await scene.gpus()
    every = {"nvlink_replay", "ecc_uncorrected", "row_remap_failed", "pcie_replay", "slowed_by_power_brake"}
    assert {name for name, _ in found[0].counters} == every - lost
    assert f"GPU 0: {named}: Unknown Error" in why
    scene.begin(*EIGHT)
    scene.driver.tell(f"fail {function} 3")  # not supported by this GPU: nothing is lacking
    assert (await scene.gpus())[1] == []


@pytest.mark.parametrize(
    ("code", "words"), [(9, "Driver Not Loaded"), (18, "RM has detected an NVML/RM version mismatch")]
)
async def test_a_driver_that_cannot_be_used_is_named_once_and_not_asked_again(
    driver: FakeDriver, code: int, words: str
) -> None:
    driver.tell(f"fail nvmlInitWithFlags {code}")
    scene = Scene(driver)
    await until(lambda: scene.watch._child is None, "the process has given up")
    for _ in range(2):
        scene.begin(*EIGHT)
        found, (why,) = await scene.gpus()
        assert found == {}
        assert why.startswith(f"NVIDIA's driver cannot be asked ({words}")
    await scene.watch.close()


async def test_gpus_whose_events_cannot_be_had_are_named_and_read_all_the_same(driver: FakeDriver) -> None:
    driver.tell("fail nvmlDeviceRegisterEvents 4")
    scene = Scene(driver, wait_s=0.05)
    await scene.ready()
    scene.begin(*EIGHT)
    driver.tell("set 5 field230 1")
    assert (await scene.alarm()).why.rank == 5, "it looks by itself"
    _, lacked = await scene.gpus()
    assert "events of GPU 0: Insufficient Permissions cannot be had" in lacked
    await scene.watch.close()


async def test_a_gpu_that_may_not_be_opened_is_not_lost(driver: FakeDriver) -> None:
    driver.tell("fail nvmlDeviceGetHandleByIndex_v2 4")
    scene = Scene(driver)
    await scene.ready()
    scene.begin(*EIGHT)
    found, (why,) = await scene.gpus()
    assert found == {}
    assert "GPU 0: all of it: Insufficient Permissions" in why
    await scene.watch.close()


# --- no driver --------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(gpu_start.driver_here(ENV), reason="this machine has NVIDIA's driver")
async def test_b34_without_a_driver_that_is_no_news_unless_gpus_are_named() -> None:
    watch = GpuWatch(None, ENV, lambda _: None, lambda: None)
    for env, said in (({}, NO_DRIVER), ({"CUDA_VISIBLE_DEVICES": "0"}, None)):
        watch.begin(Begun(Round(1), boottime(), (RankHere(0, 0, 1, Path("/"), dict(env)),)))
        (fact,) = await watch.facts()
        assert isinstance(fact, Lacked)
        assert fact == (said or Lacked("nvml", f"{NO_DRIVER.why}, and the environment names GPUs: look at nvidia-smi"))
    await watch.inspect()
    await watch.close()
    assert gpu_start.start(ENV) is None


# --- the process ------------------------------------------------------------------------------------------------------
PARENT = """
import os, signal, sys
from remuster.agent import gpu_start
os.nice(7)
print(gpu_start.start(os.environ).pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("hang", [False, True])
def test_it_ends_with_the_agent_also_when_it_hangs(driver: FakeDriver, hang: bool) -> None:
    """Red without PR_SET_PDEATHSIG: a call that hangs sees no end of a socket."""
    if hang:
        driver.tell("hang * 600")
    with (
        subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**ENV, **driver.env}) as parent,
        contextlib.ExitStack() as ends,
    ):
        ends.callback(parent.kill)  # before ``with`` waits for it
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        end = time.monotonic() + PATIENCE_S
        while proc.name(pid) != "gpu-watcher":
            assert time.monotonic() < end
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, parent.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # as srun sends to all of a step
            os.kill(pid, number)
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(parent.pid), "no sweep of the agent's takes it"
        assert proc.alive(pid)
        parent.kill()
        while proc.alive(pid):
            assert time.monotonic() < end, "it outlives its agent"
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
