"""The cluster itself: it is up soon, its nodes are machines, and Slurm does with its jobs what centres know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drills.lab import Lab
from drills.sight import boottime, until
from slurm.cluster import Cluster, Setup

pytestmark = pytest.mark.drill


def test_a_step_runs_on_hosts_of_their_own_with_their_gpus(new_cluster: Callable[[Setup], Cluster]) -> None:
    began = boottime()
    cluster = new_cluster(Setup(nodes=3, gpus=(2, 1)))
    took = boottime() - began
    assert took < 10.0  # 0.3 s on a quiet machine
    said = cluster.srun("-N3", "--gres=gpu:1", "-l", "sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES'")
    assert sorted(said.split("\n")[:-1]) == [line for i in range(3) for line in (f"{i}: 0", f"{i}: node{i + 1}")]
    assert cluster.srun("-w", "node1", "--gres=gpu:2", "sh -c 'echo $CUDA_VISIBLE_DEVICES'") == "0,1\n"
    assert cluster.sh("command -v remuster") != ""
    assert "remuster" in cluster.srun("-N1", "remuster --version")


def test_a_job_runs_is_cancelled_and_nothing_of_it_stays(cluster: Cluster) -> None:
    job = cluster.sbatch("srun sleep 1000", "-N4")
    until(lambda: all(cluster.processes(name) for name in cluster.nodes), "tasks on all nodes")
    assert job.nodes() == ["node1", "node2", "node3", "node4"]
    job.cancel()
    job.wait_for("CANCELLED")
    until(lambda: not job.processes(), lambda: f"nothing is left: {job.processes()}")
    over = cluster.sbatch("exit 3", "-N1")
    assert over.wait_for("FAILED")["ExitCode"] == "3:0"


def test_a_job_goes_on_without_a_node_that_lost_power(cluster: Cluster) -> None:
    job = cluster.sbatch("srun --no-kill sh -c 'echo $SLURMD_NODENAME; exec sleep 1000'", "-N2", "--no-kill")
    until(lambda: "node2" in job.output(), "tasks on both nodes")
    cluster.crash("node2")
    until(lambda: job.nodes() == ["node1"], lambda: f"node2 is taken from it: {job.show()}", 40.0)
    assert job.state() == "RUNNING"
    cluster.boot("node2")
    cluster.wait_idle("node2")


def test_what_a_slurmd_has_started_outlives_it(cluster: Cluster) -> None:
    """Without --no-kill the job is cancelled, and the task there still lives."""
    job = cluster.sbatch("srun sh -c 'echo here; exec sleep 1000'", "-N2", "--no-requeue")
    until(lambda: job.output().count("here") == 2, "tasks on both nodes")
    cluster.kill_slurmd("node2")
    job.wait_for("NODE_FAIL", timeout_s=40.0)
    until(lambda: not cluster.processes("node1"), "the healthy node's task ends")
    assert any("sleep" in p.title for p in cluster.processes("node2"))


def test_a_job_is_preempted_and_comes_back(new_cluster: Callable[[Setup], Cluster]) -> None:
    """One that goes on in its grace is requeued after it; one that SIGTERM ends is over, as its script says."""
    cluster = new_cluster(Setup(nodes=2, grace_s=1))
    deaf = "sh -c \"trap '' TERM; sleep 1000\""
    job = cluster.sbatch(f"echo run $SLURM_RESTART_COUNT; srun {deaf}", "-N1", "--requeue", "--exclusive")
    ended = cluster.sbatch("srun sleep 1000", "-N1", "--requeue", "--exclusive")
    until(lambda: all(any("sleep" in p.title for p in cluster.processes(n)) for n in cluster.nodes), "both run")
    urgent = cluster.preempt("-N2")
    ended.wait_for("FAILED")
    job.wait_for("PENDING")
    urgent.wait_for("RUNNING")
    urgent.cancel()
    job.start_now()
    assert job.wait_for("RUNNING")["Restarts"] == "1"
    until(lambda: "run 1" in job.output(), "the second run has begun")


def test_two_clusters_at_once_do_not_meet(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Lab(tmp_path / "other")
    try:
        one, two = Cluster(lab, Setup(nodes=1)), Cluster(other, Setup(nodes=1))
        jobs = [cluster.sbatch("hostname; sleep 1000", "-N1") for cluster in (one, two)]
        for job in jobs:
            job.wait_for("RUNNING")
        assert jobs[0].id != jobs[1].id
        jobs[0].cancel()
        jobs[0].wait_for("CANCELLED")
        assert jobs[1].state() == "RUNNING"
    finally:
        other.close()
    other.check_gone()
