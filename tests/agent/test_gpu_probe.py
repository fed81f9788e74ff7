"""What the node check finds of GPUs: its own child over the real pynvml, below which the tests' driver stands."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import FakeDriver, uuid

from remuster.agent import gpu_probe, node_check
from remuster.agent.node_check import Wish, check_node, unspared
from remuster.health.node_check import Finding, State

GIB = 1 << 30


@pytest.fixture
def gpus(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The driver, seen by whatever this process starts."""
    for name, value in driver.env.items():
        monkeypatch.setenv(name, value)
    return driver


@pytest.fixture
def job() -> Iterator[int]:
    """The pid of a job's own process: what belongs to others is told apart from what is below it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def look(wish: Wish) -> dict[str, Finding]:
    found = asyncio.run(check_node(wish, node_check.Looking(unspared, lambda _: None)))
    return {finding.what.partition(" (")[0]: finding for finding in found if finding.check == "gpu"}


@pytest.mark.parametrize(
    ("lines", "state", "says"),
    [
        ((), State.OK, "answers"),
        (("lost 3",), State.BAD, "it is lost to the node; reboot the node"),
        (("set 3 field230 1",), State.BAD, "its driver asks for a reset of the GPU"),
        (("set 3 field230 6",), State.BAD, "its driver asks for a reset of the GPU's bus"),
        (("set 3 field230 99",), State.BAD, "its driver asks for its recovery action 99"),
        (("set 3 remap_failed 1",), State.BAD, "the GPU is to be exchanged"),
        (("set 3 remap_pending 1",), State.NOTE, "reset the GPU when it is idle"),
        (("fail nvmlDeviceGetRemappedRows 999",), State.UNKNOWN, "remapped rows: "),
        (("fail nvmlDeviceGetRemappedRows 3",), State.OK, "answers"),  # this one has none
        (("fail nvmlDeviceGetMemoryInfo 999",), State.OK, "answers"),
    ],
)
def test_one_gpu(gpus: FakeDriver, tmp_path: Path, lines: tuple[str, ...], state: State, says: str) -> None:
    gpus.tell(*lines)
    found = look(Wish(tmp_path, {}))
    assert len(found) == 8
    assert found["GPU 3"].state is state, found["GPU 3"]
    assert says in found["GPU 3"].text
    if not any(line.startswith("fail") for line in lines):
        assert found["GPU 2"].state is State.OK


def test_who_holds_the_memory_is_named_and_the_jobs_own_does_not_count(
    gpus: FakeDriver, tmp_path: Path, job: int
) -> None:
    gpus.tell(f"set * memory_total {GIB}", f"proc 1 {os.getpid()}", f"proc 2 {job}")
    found = look(Wish(tmp_path, {}, own=job))
    assert found["GPU 1"].state is State.BAD
    assert f"pid {os.getpid()} (" in found["GPU 1"].text
    assert found["GPU 2"].state is State.OK


def test_others_that_leave_room_are_a_note(gpus: FakeDriver, tmp_path: Path, job: int) -> None:
    gpus.tell(f"proc 1 {os.getpid()}")
    assert look(Wish(tmp_path, {}, own=job))["GPU 1"].state is State.NOTE


def test_memory_of_those_that_have_gone_is_waited_for_but_not_for_ever(
    gpus: FakeDriver, tmp_path: Path, job: int
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    gpus.tell(f"set * memory_total {GIB}", f"proc 1 {gone.pid}")

    async def leaves() -> dict[str, Finding]:
        looking = asyncio.ensure_future(check_node(Wish(tmp_path, {}, own=job), node_check.Looking(unspared, print)))
        await asyncio.sleep(gpu_probe.PAUSE_S)  # whenever it looks, it looks again until this is gone
        gpus.tell(f"endproc 1 {gone.pid}")
        return {f.what.partition(" (")[0]: f for f in await looking if f.check == "gpu"}

    assert asyncio.run(leaves())["GPU 1"].state is State.OK
    gpus.tell(f"proc 1 {gone.pid}")
    assert look(Wish(tmp_path, {}, own=job))["GPU 1"].state is State.BAD


@pytest.mark.parametrize(
    ("visible", "seen"),
    [("1", ["GPU 1"]), (f"{uuid(5)},0", ["GPU 0", "GPU 5"]), ("", [])],
    ids=["number", "uuid", "none"],
)
def test_only_what_the_ranks_would_see_counts(gpus: FakeDriver, tmp_path: Path, visible: str, seen: list[str]) -> None:
    gpus.tell("lost 3")
    found = look(Wish(tmp_path, {"CUDA_VISIBLE_DEVICES": visible}))
    assert sorted(found) == seen
    assert all(finding.state is State.OK for finding in found.values())


def test_fewer_than_there_must_be(gpus: FakeDriver, tmp_path: Path) -> None:
    gpus.tell("lost 3")
    assert look(Wish(tmp_path, {}, gpus=8))["GPUs"].state is State.BAD
    assert "GPUs" not in look(Wish(tmp_path, {}, gpus=7))


@pytest.mark.parametrize("line", ["hang * 60", "fail nvmlInitWithFlags 9"], ids=["hangs", "refuses"])
def test_a_driver_that_does_not_answer_lets_pass(
    gpus: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(node_check, "PROBE_S", 1.0)
    gpus.tell(line)
    (finding,) = look(Wish(tmp_path, {})).values()
    assert finding.state is State.UNKNOWN
    if line.startswith("fail"):
        assert look(Wish(tmp_path, {}, gpus=1))["GPU driver"].state is State.BAD, "unless GPUs must be there"
