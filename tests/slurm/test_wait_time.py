"""srun ends a whole step soon after its first task: what sites set as WaitTime and KillOnBadExit (scenario B53)."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from drills.sight import Process, until
from slurm.cluster import Cluster, Setup
from slurm.training import KEEP, Training

pytestmark = pytest.mark.drill


def rank_of(cluster: Cluster, node: str) -> Process:
    (found,) = [p for p in cluster.processes(node) if " -u " in p.title and "train.py" in p.title]
    return found


def test_b53_agents_leave_together_and_srun_kills_nobody(new_cluster: Callable[[Setup], Cluster]) -> None:
    """The rank that fails ends the job: each agent has its own code, and none is killed by srun for being late."""
    cluster = new_cluster(Setup(nodes=3, more=("WaitTime=5", "KillOnBadExit=1")))
    training = Training(cluster, 100_000, restarts=0)
    line = training.remuster("--nnodes 3")
    job = cluster.sbatch(f"srun --kill-on-bad-exit=0 {line}; echo srun ended with $?", "-N3")
    training.wait_round(1, 3)
    rank_of(cluster, "node2").signal(signal.SIGSEGV)
    job.wait_for("COMPLETED")  # its last command is echo
    assert job.output().count("Exited with exit code 139") == 3, job.output()[-3000:]
    assert "srun ended with 139" in job.output()
    assert ": Killed" not in job.output()
    until(lambda: not job.processes(), lambda: f"nothing is left: {job.processes()}")


def test_b53_a_killed_agent_is_not_taken_for_one_that_ran_out_of_memory(
    new_cluster: Callable[[Setup], Cluster],
) -> None:
    """The others go on without it as long as they need: --wait=0, whatever the site says."""
    cluster = new_cluster(Setup(more=("WaitTime=2",)))
    training = Training(cluster, 150)
    line = training.remuster("--nnodes 3")
    job = cluster.sbatch(f"srun --wait=0 {KEEP} {line}", "-N4", "--no-kill")
    members = training.wait_round(1, 3)
    training.wait_saved()
    node = max(members - {"node1"})
    guardian = next(p for p in cluster.processes(node) if p.title == "rank-guardian")
    agent = next(p for p in cluster.processes(node) if guardian.pid in [c.pid for c in p.children])
    agent.signal(signal.SIGKILL)
    assert training.wait_round(2, 3) == set(cluster.nodes) - {node}
    verdict = training.record(0)["verdict"]
    assert (verdict["class"], verdict["node"]) == ("killed_unknown", node), verdict
    assert "memory" not in verdict["sentence"]
    until(lambda: not job.ours(node), lambda: f"nothing is left there: {job.ours(node)}")
    assert job.wait_for("FAILED", timeout_s=60.0)["ExitCode"] == "137:0"
    training.check_final()
