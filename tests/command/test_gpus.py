"""What the real command makes of its node's GPUs, with the real pynvml above a driver that does what it is told."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Node, Place
from command.outcome import Expected, check, keep_job
from command.processes import alive, children, read, until
from fake_nvml.driver import FakeDriver, uuid

from remuster.agent.gpu_start import driver_here

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def no_kernel_log(place: Place) -> None:
    """Take the one source away that not every user may read, and that would say so."""
    place.env["PET_KERNEL_LOG"] = "none"


WAITS = """
import os, signal, sys
from pathlib import Path
me = Path(sys.argv[1]) / f"{os.environ['REMUSTER_ROUND']}-{os.environ['RANK']}"
me.touch()
if os.environ['REMUSTER_ROUND'] != '1':
    sys.exit(0)
signal.pause()
"""
# A program whose GPU is gone: it ends by itself when it is told to.
FAILS = """
import os, sys, time
from pathlib import Path
me = Path(sys.argv[1]) / f"1-{os.environ['RANK']}"
me.touch()
while not (Path(sys.argv[1]) / 'fail').exists():
    time.sleep(0.01)
if os.environ['RANK'] == '1':
    raise RuntimeError('CUDA error: an illegal memory access was encountered')
time.sleep(60)
"""


def watcher(node: Node) -> int:
    """Return the pid of the process that reads the driver, once it has its name; 0 before."""
    kids = children(node.agent)
    return next((pid for pid in kids if read(pid, "comm") == b"gpu-watcher\n" and alive(pid)), 0)


def facts(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    (evidence,) = record["evidence"]
    return [fact for fact in evidence["facts"] if fact["is"] == kind]


def listening(place: Place, node: Node, ranks: int) -> None:
    """Wait until the first round's ranks run, and their GPUs are listened to: the process has opened the driver."""
    until(lambda: len(list(place.desk.glob("1-*"))) == ranks, "the ranks run", show=node.say)
    pid = until(lambda: watcher(node), "the driver is read", show=node.say)
    until(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) > 1, "it waits for events", show=node.say)


@pytest.mark.parametrize(
    ("lines", "xid", "recovery", "cls"),
    [
        (("xid 1 79", "lost 1"), 79, 0, "gpu_lost"),
        pytest.param(("xid 1 48",), 48, 0, "gpu_ecc", marks=pytest.mark.drill),
        pytest.param(("set 1 field230 2", "xid 1 154"), 154, 2, "gpu_driver_hang", marks=pytest.mark.drill),
    ],
    ids=["79", "48", "154"],
)
def test_a_gpu_that_is_of_no_use_ends_the_round_while_its_rank_waits(
    place: Place, driver: FakeDriver, lines: tuple[str, ...], xid: int, recovery: int, cls: str
) -> None:
    """Red when the alarm is not raised: the ranks would wait for ever."""
    keep_job(place)
    node = place.command(
        *("--nproc-per-node", "2", "--max-restarts", "1", place.script("t.py", WAITS), place.desk), env=driver.env
    )
    listening(place, node, 2)
    driver.tell(*lines)
    code = node.exit_code()
    first, *rest = node.records()
    if recovery or "lost 1" in lines:  # the node's own check finds it so, and no other node is there
        assert code == 75, node.say()
        assert "the node check after round 1 has failed: GPU 1" in node.err
        assert not rest
    else:
        assert code == 0, node.say()
        assert [record["state"] for record in rest] == ["done"]
    (early,) = facts(first, "early")
    (gpu,) = facts(first, "gpu")
    assert early["rank"] == 1
    assert "GPU 1, which rank 1 uses, " in early["why"]
    assert (gpu["uuid"], gpu["ranks"], [code for code, _ in gpu["xids"]]) == (uuid(1), [1], [xid])
    assert (gpu["recovery"], gpu["lost"]) == (recovery, xid == 79)
    assert gpu["xids"][0][1] - 0.002 <= early["at_s"] < gpu["xids"][0][1] + 5
    check(place, Expected(cls, 1, "nvml", "retried", "hardware", "aside"))


@pytest.mark.parametrize(("xid", "cls"), [(94, "gpu_ecc_contained"), (31, "gpu_app_fault"), (45, "gpu_app_fault")])
def test_an_xid_that_its_program_ends_of_is_in_the_record(place: Place, driver: FakeDriver, xid: int, cls: str) -> None:
    """What rank 1 wrote of its end says the rest; 45 only follows from that."""
    keep_job(place)
    node = place.command("--nproc-per-node", "2", place.script("t.py", FAILS), place.desk, env=driver.env)
    listening(place, node, 2)
    driver.tell(f"xid 1 {xid}", "set 1 ecc_volatile_uncorrected 1", "xid 7 13")
    until(lambda: len(driver.delivered()) == 2, "both are heard")
    (place.desk / "fail").touch()
    node.exit_code()
    record = check(place, Expected(cls, 1, "last lines" if xid == 45 else "nvml", first=(1,)))
    assert facts(record, "early") == []
    ours, other = facts(record, "gpu")
    assert (ours["ranks"], [code for code, _ in ours["xids"]]) == ([1], [xid])
    assert ours["counters"] == [["ecc_uncorrected", 1]]
    assert (other["number"], other["ranks"]) == (7, [])
    assert "no evidence from" not in node.err


@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_a_driver_that_fails_holds_nothing_up(place: Place, driver: FakeDriver, how: str) -> None:
    """Its calls hang, or its process is killed: the failure is judged, and what is lacking is said, once."""
    node = place.command("--nproc-per-node", "2", place.script("t.py", FAILS), place.desk, env=driver.env)
    listening(place, node, 2)
    if how == "hangs":
        driver.tell("hang * 600")
    else:
        driver.tell("fail nvmlInitWithFlags 9")
        os.kill(watcher(node), signal.SIGKILL)
    (place.desk / "fail").touch()
    assert node.exit_code(20) == 1, node.say()
    (record,) = node.records()
    assert record["verdict"]["rank"] == 1
    assert facts(record, "lacked")
    assert all(fact["source"] == "nvml" for fact in facts(record, "lacked"))
    assert node.err.count("no evidence from nvml") == len(facts(record, "lacked"))


@pytest.mark.skipif(driver_here({}), reason="this machine has NVIDIA's driver")
@pytest.mark.parametrize("visible", [None, "0,1"])
def test_b34_without_a_driver_failures_are_judged_and_one_line_says_so_where_gpus_are_named(
    place: Place, visible: str | None
) -> None:
    place.env.pop("CUDA_VISIBLE_DEVICES", None)
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    script = place.script("t.py", "raise KeyError('x')\n")
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script, env=env)
    assert node.exit_code() == 1, node.say()
    for record in node.records():
        assert record["verdict"]["family"] == "user"
        (lacked,) = facts(record, "lacked")
        assert lacked["source"] == "nvml"
        assert lacked["why"].startswith("this node has no NVIDIA driver")
    assert len(node.records()) == 2
    # one line (no driver; look at nvidia-smi), and what the report says is lacked
    assert node.err.lower().count("nvidia") == (0 if visible is None else 4)
    assert json.dumps(node.events()).count("no evidence from nvml") == (0 if visible is None else 1)


def test_nothing_of_it_is_left_whatever_is_killed(place: Place, driver: FakeDriver) -> None:
    """Also while the driver hangs: ``exit_code`` looks at what is left."""
    node = place.command("--nproc-per-node", "2", place.script("t.py", WAITS), place.desk, env=driver.env)
    listening(place, node, 2)
    driver.tell("hang * 600")
    node.kill("agent")
    node.exit_code()
