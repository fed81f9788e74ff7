"""What sites have Slurm do to a step: kill the others when one task has ended, at once or after a while.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.cluster import COMMAND, Cluster, Node, Place
from command.processes import signal_all, until

pytestmark = pytest.mark.process

WAIT_S = 5.0  # srun --wait; WaitTime


def terminate_from_its_last_line_on(node: Node) -> None:
    """Send SIGTERM to every process of the node's, again and again, from when its agent has said how it ends."""
    until(lambda: node.events("exit"), "the agent says how it ends", show=node.say)
    while node.process.poll() is None:
        signal_all(node.pids(), signal.SIGTERM)


@pytest.mark.parametrize(("ends", "code"), [("5", 5), ("0", 0)])
def test_b53_an_exit_code_that_is_decided_stays(place: Place, ends: str, code: int) -> None:
    """Red without ``Signals.close``: KillOnBadExit made 143 of it (seen with Slurm 22.05), and 143 is no 75 either."""
    for _ in range(2):
        node = place.command(place.script("t.py", f"import sys; sys.exit({ends})"))
        terminate_from_its_last_line_on(node)
        assert node.exit_code() == code, node.say()


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_b53_agents_leave_together(cluster: Cluster, ends: str) -> None:
    """Red when a node whose ranks are done leaves before the job is: WaitTime would kill the others."""
    nodes = [cluster.steady(number, "--nnodes", "2") for number in (2, 3)]
    cluster.wait_round(1, 4)
    if ends == "well":
        for rank in ("exit-0", "exit-1"):  # all of one node's
            cluster.order(rank, 1, "0")
        until(lambda: any(not node.ranks() for node in nodes), "one node's ranks are done", show=cluster.say)
        assert [node.process.poll() for node in nodes] == [None, None], "its agent waits for the others"
        cluster.order("done")
    else:
        cluster.order("exit-1", 1, "7")
    until(lambda: any(node.process.poll() is not None for node in nodes), "one has ended", show=cluster.say)
    kill_at = time.monotonic() + WAIT_S
    while time.monotonic() < kill_at and any(node.process.poll() is None for node in nodes):
        time.sleep(0.02)
    for node in nodes:
        signal_all(node.pids(), signal.SIGKILL)
    assert [node.exit_code() for node in nodes] == ([0, 0] if ends == "well" else [7, 7]), cluster.say()


def test_b53_a_step_that_slurm_killed_on_a_node_is_no_memory_kill(cluster: Cluster) -> None:
    """Red when a lost node or a SIGKILL is taken for the memory killer's work (``causes_node``)."""
    nodes = [cluster.steady(number, "--nnodes", "1:2", "--max-restarts", "3") for number in (2, 3)]
    cluster.wait_round(1, 4)
    killed = next(node for node in nodes if node is not cluster.leader())
    killed.power_off()  # as slurmstepd: every process of the step on this node, its keeper too
    cluster.wait_round(2, 2)
    cluster.order("done")
    (left,) = (node for node in nodes if node is not killed)
    assert left.exit_code() == 0, cluster.say()
    verdict = cluster.records()[1]["verdict"]
    assert verdict["class"] == "node_lost"
    assert "oom" not in json.dumps(verdict).lower()
    assert "memory" not in json.dumps(verdict).lower()


# --- cgroups, CPUs and devices ----------------------------------------------------------------------------------------
CONTROLLERS = ("unified", "freezer", "memory", "cpuset")  # Slurm's, as far as this machine has them
TELL = """
import json, os, sys
cgroups = dict(line.split(":", 2)[1:] for line in open("/proc/self/cgroup").read().split("\\n")[:-1])
seen = {"cgroups": cgroups, "cpus": sorted(os.sched_getaffinity(0)), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
open(sys.argv[1] + os.environ["RANK"], "w").write(json.dumps(seen))
"""


@pytest.fixture
def step() -> Iterator[list[Path]]:
    """Make the cgroups of a step, as proctrack/cgroup and task/cgroup do: one task of one step of one job."""
    name = f"slurm-{uuid.uuid4().hex[:8]}"
    mounts = [Path("/sys/fs/cgroup", each) for each in CONTROLLERS]
    mounts = [mount for mount in mounts if os.access(mount / "cgroup.procs", os.W_OK)]
    if not mounts:
        pytest.skip("needs root and cgroup v1 or hybrid mounts")
    made: list[Path] = []
    for mount in mounts:
        for folder in (mount / name, mount / name / "job_7", mount / name / "job_7" / "step_0"):
            folder.mkdir()
            made.append(folder)
            if mount.name == "cpuset":
                (folder / "cpuset.mems").write_text((mount / "cpuset.mems").read_text())
                (folder / "cpuset.cpus").write_text(str(max(os.sched_getaffinity(0))))
    yield [folder for folder in made if folder.name == "step_0"]
    for folder in reversed(made):
        until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), f"{folder} is empty")  # type: ignore[misc]
        folder.rmdir()


def test_ranks_stay_within_the_cgroups_cpus_and_devices_of_their_task(place: Place, step: list[Path]) -> None:
    """Red when ``cgroup.create`` makes the guardian's at the mount and not in its own: scancel would miss the ranks."""
    enter = "".join(f"echo $$ > {folder}/cgroup.procs; " for folder in step)
    folder = place.folder / "nodes" / "0"
    args = ("--log-dir", folder / "logs", "--nproc-per-node", "2", place.script("t.py", TELL), place.desk / "rank-")
    program = ("sh", "-c", enter + 'exec "$0" "$@"', str(COMMAND))
    env = place.env | {"CUDA_VISIBLE_DEVICES": "2,5"}
    node = Node(folder, [os.fspath(arg) for arg in args], env, place.folder, program=program)
    place.nodes.append(node)
    assert node.exit_code() == 0, node.say()
    for rank in (0, 1):
        seen = json.loads((place.desk / f"rank-{rank}").read_text())
        assert seen["gpus"] == "2,5"
        for folder in step:
            mount = folder.parents[2]
            path = seen["cgroups"]["" if mount.name == "unified" else mount.name]
            within = f"/{folder.relative_to(mount)}"
            assert path == within or path.startswith(f"{within}/remuster-"), path
            if mount.name == "cpuset":
                assert seen["cpus"] == [max(os.sched_getaffinity(0))]
