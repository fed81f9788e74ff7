"""A job is cancelled: everything of it goes, on every node, and what is left behind says who asked."""

from __future__ import annotations

import pytest
from drills.sight import until
from slurm.cluster import BatchJob, Cluster
from slurm.training import KEEP, Training

pytestmark = pytest.mark.drill

STORE_S = 30.0  # 2 leases, and more, in which a store waits for agents that were killed


def started(cluster: Cluster) -> tuple[Training, BatchJob]:
    """Return a training with a spare node that has published, and its job; its batch script outlives SIGTERM."""
    training = Training(cluster, 100_000)
    line = training.remuster("--nnodes 3")
    script = f"trap '' TERM; srun {KEEP} {line}; echo srun ended with $?"
    job = cluster.sbatch(script, "-N4", "--no-kill", "--requeue")
    training.wait_round(1, 3)
    training.wait_saved()
    return training, job


def test_a_cancelled_job_is_left_by_all_nodes_and_says_who_asked(cluster: Cluster) -> None:
    """Slurm sends SIGTERM to every process of the step, and SIGKILL two seconds later."""
    training, job = started(cluster)
    job.cancel()
    job.wait_for("CANCELLED")
    until(lambda: not job.processes(), lambda: f"nothing is left: {job.processes()}")
    assert job.output().count("Exited with exit code 143") == 4, job.output()[-3000:]
    assert "srun ended with 143" in job.output()
    verdict = training.record(0)["verdict"]
    assert verdict["class"] == "leave"
    assert "was asked to leave by signal 15 (SIGTERM)" in verdict["sentence"]
    training.check_one_world()
    cluster.wait_idle(*cluster.nodes)


def test_of_a_step_that_is_killed_at_once_nothing_is_left(cluster: Cluster) -> None:
    """``scancel JOB.STEP``, or the end of its batch script, is SIGKILL for all of it; only the store has a grace."""
    _, job = started(cluster)
    cluster.sh(f"scancel {job.id}.0")
    job.wait_for("COMPLETED")
    assert "srun ended with 137" in job.output()
    until(lambda: all("store" in p.title for p in job.ours()), lambda: f"only the store is left: {job.ours()}")
    until(lambda: not job.processes(), lambda: f"nothing is left: {job.processes()}", STORE_S)
