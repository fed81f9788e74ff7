"""The node check's judgement: what is bad, what is a note, and that what is unknown lets pass."""

from __future__ import annotations

import pytest

from remuster.health import node_check as check
from remuster.health.node_check import Finding, GpuReading, PortReading, State

GIB = 1 << 30
FINE = GpuReading(0, "GPU-a", "0000:1b:00.0", total=80 * GIB)


@pytest.mark.parametrize(
    ("gpu", "state", "says"),
    [
        (FINE, State.OK, "answers"),
        (FINE._replace(recovery=0), State.OK, "answers"),
        (FINE._replace(lost=True), State.BAD, "reboot"),
        (FINE._replace(recovery=1), State.BAD, "a reset of the GPU"),
        (FINE._replace(recovery=2), State.BAD, "a reboot of the node"),
        (FINE._replace(recovery=9), State.BAD, "its recovery action 9"),
        (FINE._replace(remap_failed=True), State.BAD, "exchanged"),
        (FINE._replace(remap_pending=True), State.NOTE, "when it is idle"),
        (FINE._replace(holders=((77, 79 * GIB, "python"),)), State.BAD, "pid 77 (python) holds 79.0 GiB"),
        (FINE._replace(holders=((77, 40 * GIB, "python"),)), State.NOTE, "pid 77, 40.0 GiB"),
        (FINE._replace(error="Timeout"), State.UNKNOWN, "Timeout"),
        (FINE._replace(error="Timeout", recovery=1), State.BAD, "a reset of the GPU"),
    ],
)
def test_one_gpu(gpu: GpuReading, state: State, says: str) -> None:
    (finding,) = check.gpus([gpu])
    assert finding.state is state
    assert says in finding.text


@pytest.mark.parametrize(("wanted", "bad"), [(None, False), (0, False), (1, False), (2, True)])
def test_how_many_gpus(wanted: int | None, bad: bool) -> None:
    found = check.gpus([FINE, FINE._replace(number=1, lost=True)], wanted)
    assert any(f.what == "GPUs" for f in found) is bad


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (check.room("logs", "/x", 63 << 20, 1000), State.BAD),
        (check.room("logs", "/x", 65 << 20, 1000), State.OK),
        (check.room("logs", "/x", 65 << 20, 0), State.NOTE),
        (check.room("logs", "/x", 65 << 20, -1), State.OK),
        (check.shared_memory(64 << 20, 64 << 20), State.OK),
        (check.shared_memory(63 << 20, 63 << 20), State.NOTE),
        (check.shared_memory(8 * GIB, 1 << 20), State.NOTE),
        (check.clock(None), State.UNKNOWN),
        (check.clock(False), State.NOTE),
        (check.clock(True), State.OK),
        (check.fabric([PortReading("mlx5_0", 1, "ACTIVE", "LinkUp")])[0], State.OK),
        (check.fabric([PortReading("mlx5_0", 1, "ACTIVE_DEFER", "LinkUp")])[0], State.OK),
        (check.fabric([PortReading("mlx5_0", 1, "INIT", "LinkUp")])[0], State.BAD),
        (check.fabric([PortReading("mlx5_0", 1, "DOWN", "Disabled")])[0], State.NOTE),
        (check.fabric([PortReading("mlx5_0", 1, "", "")])[0], State.NOTE),
        (check.limits(256, -1, False)[0], State.NOTE),
        (check.limits(-1, 65536, False)[0], State.OK),
        (check.limits(4096, 65536, True)[0], State.NOTE),
        (check.limits(4096, -1, True)[0], State.OK),
    ],
)
def test_the_host(finding: Finding, state: State) -> None:
    assert finding.state is state


def test_what_follows() -> None:
    ok, note = Finding("a", "A", State.OK, ""), Finding("b", "B", State.NOTE, "small")
    unknown, bad = Finding("c", "C", State.UNKNOWN, "no answer"), Finding("d", "D", State.BAD, "broken")
    assert check.conclude([ok, note]) == (True, "1 checks passed, 1 worth a look")
    assert check.conclude([ok, unknown]) == (None, "nothing bad was found; C: no answer")
    assert check.conclude([unknown, bad, ok]) == (False, "D: broken")
    assert check.conclude([]).passed is True
