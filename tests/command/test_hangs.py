"""A rank that hangs, in the real command: the round is ended for it, and the record says who was silent and where."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from command.cluster import Cluster, Place
from command.outcome import Expected, check, keep_job
from command.processes import alive, until
from fake_nvml.driver import FakeDriver

pytestmark = pytest.mark.process

# Ranks that wait for one another in each step, through files; one of them goes elsewhere after some steps.
TRAIN = """
import os, sys, time
import remuster
from pathlib import Path
desk, lost, pipe = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
rank, world, n = os.environ["RANK"], int(os.environ["WORLD_SIZE"]), os.environ["REMUSTER_ROUND"]

def all_reduce(step):
    (desk / f"{n}-{step}-{rank}").touch()
    while len(list(desk.glob(f"{n}-{step}-*"))) < world:
        time.sleep(0.005)

def load_a_sample():
    open(pipe).read()  # nobody writes into it

for step in range(10):
    if step == 5 and rank == lost and n == "1":
        load_a_sample()
    all_reduce(step)
    if "SAYS_NO_STEP" not in os.environ:
        remuster.heartbeat(step + 1)
"""


def facts(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the facts of one kind that all nodes gave."""
    return [fact for node in record["evidence"] for fact in node["facts"] if fact["is"] == kind]


def script(place: Place, lost: int) -> tuple[Any, ...]:
    """Return the script and its arguments; rank ``lost`` hangs after five steps of the first round."""
    pipe = place.folder / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    return place.script("train.py", TRAIN), str(place.desk), str(lost), str(pipe)


def test_a_rank_that_hangs_ends_the_round_and_stands_in_the_record(place: Place) -> None:
    keep_job(place)
    node = place.command("--nproc-per-node", "3", "--hang-timeout", "1", *script(place, 1))
    assert node.exit_code() == 75, node.say()
    record = check(place, Expected("rank_hang", 1, "stacks"))
    silent = {fact["rank"]: fact for fact in facts(record, "silence")}
    assert set(silent) == {0, 1, 2}
    assert {fact["step"] for fact in silent.values()} == {5}
    assert {(fact["allowed_s"], fact["by"]) for fact in silent.values()} == {(1.0, "heartbeat")}
    assert max(fact["silent_s"] for fact in silent.values()) >= 1
    (early,) = facts(record, "early")
    assert early["why"].startswith("the ranks of this node have said no step after 5 for ")
    stacks = {fact["rank"]: fact for fact in facts(record, "stack")}
    assert {fact["by"] for fact in stacks.values()} <= {"faulthandler", "py-spy"}
    assert stacks[1]["frames"][0].endswith(" load_a_sample")
    assert all(any(frame.endswith(" all_reduce") for frame in stacks[rank]["frames"]) for rank in (0, 2))


def test_the_job_goes_on_after_a_hang(place: Place) -> None:
    keep_job(place)
    args = ("--nproc-per-node", "2", "--hang-timeout", "1", "--max-restarts", "1")
    node = place.command(*args, *script(place, 0))
    assert node.exit_code() == 0, node.say()
    assert [record["state"] for record in node.records()] == ["retried", "done"]
    check(place, Expected("rank_hang", 0, "stacks", "retried", "hang"))


def test_ranks_that_say_no_steps(place: Place) -> None:
    env = {"SAYS_NO_STEP": "1"}
    node = place.command("--nproc-per-node", "2", "--hang-timeout", "2", *script(place, 1), env=env)
    assert node.exit_code() == 75, node.say()
    (record,) = node.records()
    (early,) = facts(record, "early")
    assert early["why"].endswith("used no processor; 2 s are allowed (--hang-timeout)")
    assert {fact["rank"] for fact in facts(record, "stack")} == {0, 1}
    assert record["verdict"]["family"] == "hang", record["verdict"]


SLEEP = "import sys, time; open(f'{sys.argv[1]}/runs', 'w').close(); time.sleep(600)"


@pytest.mark.drill  # for its length
def test_a_rank_that_sleeps_while_its_gpu_computes_is_left_alone(place: Place, driver: FakeDriver) -> None:
    driver.tell("set 0 use 90")
    node = place.command("--hang-timeout", "2", place.script("t.py", SLEEP), place.desk, env=driver.env)
    until((place.desk / "runs").exists, "it runs", show=node.say)
    (pid,) = node.ranks().values()
    time.sleep(10)  # five times what is allowed
    assert alive(pid), node.say()
    driver.tell("set 0 use 0")
    assert node.exit_code() == 75, node.say()
    (record,) = node.records()
    (early,) = facts(record, "early")
    assert early["why"].endswith("its rank used neither processor nor GPU; 2 s are allowed (--hang-timeout)")
    assert early["at_s"] > 10
    assert facts(record, "lacked") == []


def test_off_is_off(place: Place) -> None:
    node = place.command("--nproc-per-node", "2", "--hang-timeout", "off", *script(place, 1))
    until(lambda: len(list(place.desk.glob("1-5-*"))) == 1, "it hangs", show=node.say)
    stacks = {pid: alive(pid) for pid in node.ranks().values()}
    assert len(stacks) == 2
    node.kill("keeper", signal.SIGTERM)
    assert node.exit_code() == 128 + signal.SIGTERM, node.say()
    assert not node.events("stopping") or "alarm" not in str(node.events("stopping"))


def test_on_two_nodes_the_first_alarm_ends_the_round_and_both_look(cluster: Cluster) -> None:
    args = ("--nnodes", "2", "--nproc-per-node", "2", "--hang-timeout", "2")
    nodes = [cluster.start(number, *args, *script(cluster, 3)) for number in (2, 3)]
    assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
    record = check(cluster, Expected("rank_hang", 3, "stacks"))
    assert {fact["rank"] for fact in facts(record, "silence")} == {0, 1, 2, 3}
    stacks = {fact["rank"]: fact["frames"] for fact in facts(record, "stack")}
    assert set(stacks) == {0, 1, 2, 3}
    (lost,) = (rank for rank, frames in stacks.items() if frames[0].endswith(" load_a_sample"))
    assert lost == 3


# Rank 1 never enters the third all_reduce; it writes torch's flight recorder down when the launcher's signal comes.
TORCH = """
import datetime, os, signal, sys, time
import remuster
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

def dump(*_):
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"], "wb") as file:
        file.write(_dump_fr_trace())
    os._exit(0)

def elsewhere():
    while True:
        time.sleep(0.1)

def train():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(sys.argv[1])))
    for step in range(5):
        if step == 2 and dist.get_rank() == 1:
            if float(sys.argv[1]) > 100:
                signal.signal(signal.SIGTERM, dump)
            elsewhere()
        dist.all_reduce(torch.ones(4))
        remuster.heartbeat(step + 1)

train()
"""


def torch_job(place: Place, source: str, first: tuple[int, ...], timeout_s: float, *args: str) -> dict[str, Any]:
    pytest.importorskip("torch")
    keep_job(place)
    env = {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_TEMP_FILE": f"{place.desk}/rank_"}
    node = place.command("--nproc-per-node", "3", *args, place.script("t.py", TORCH), str(timeout_s), env=env)
    assert node.exit_code(60.0) == 75, node.say()
    return check(place, Expected("rank_hang", 1, source, first=first))


@pytest.mark.drill
def test_a_rank_that_never_enters_a_collective_is_named_by_its_stack(place: Place) -> None:
    record = torch_job(place, "stacks", (), 600, "--hang-timeout", "3")
    stacks = {fact["rank"]: " ".join(fact["frames"]) for fact in facts(record, "stack")}
    assert {rank: "all_reduce" in frames for rank, frames in stacks.items()} == {0: True, 1: False, 2: True}
    assert " elsewhere" in stacks[1]
    (position,) = facts(record, "position")  # of the one that could still run a handler
    assert (position["rank"], position["group"], position["enqueued"]) == (1, "0(default_pg)", 2)


@pytest.mark.drill
def test_a_rank_that_others_have_waited_for_until_they_timed_out_is_named(place: Place) -> None:
    """The others' timeout comes before what is computed from the steps."""
    torch_job(place, "last lines", (0, 2), 3)


STOPPED = """
import os, signal, time
import remuster
for step in range(5):
    remuster.heartbeat(step + 1)
if os.environ["RANK"] == "1":
    signal.raise_signal(signal.SIGSTOP)  # as one in uninterruptible sleep: no SIGTERM reaches it
time.sleep(600)
"""


@pytest.mark.drill  # for its length
def test_what_a_node_saw_of_ranks_that_used_all_their_grace_is_judged(cluster: Cluster) -> None:
    """Red when the leader judges a lease after the alarm: stacks, statuses, bundle come when the last rank has died."""
    args = ("--nproc-per-node", "2", "--hang-timeout", "1", "--shutdown-timeout", "9", cluster.script("t.py", STOPPED))
    node = cluster.start(2, *args)
    assert node.exit_code() == 75, node.say()
    (record,) = node.records()
    assert {fact["rank"] for fact in facts(record, "stack")} == {0, 1}
    assert {fact["rank"]: fact["status"] for fact in facts(record, "exit")} == {0: -signal.SIGTERM, 1: -signal.SIGKILL}
    assert record["bundles"]
    assert record["verdict"]["family"] == "hang", record["verdict"]
