"""The time limit of a job: it saves, is verified, requeued, and goes on at the right step, as often as that takes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from drills.sight import until
from slurm.cluster import BatchJob, Cluster, Setup
from slurm.training import ENDS, GOES_ON, KEEP, VERIFIED, Training

pytestmark = [pytest.mark.drill, pytest.mark.timeout(420)]

WARNED = re.compile(r"the job's time limit is near: (\d+) s are left")
A_LIMIT_S = 100.0  # a minute, and half of one in which Slurm does not look


def came_back(job: BatchJob, restarts: int) -> None:
    """Wait until the job has been requeued so often and runs again."""
    until(lambda: job.show()["Restarts"] == str(restarts), lambda: f"{job.show()}\n{job.output()[-4000:]}", A_LIMIT_S)
    job.wait_for("PENDING")
    job.start_now()
    job.wait_for("RUNNING")


def test_what_is_warned_saves_is_requeued_and_goes_on_twice(new_cluster: Callable[[Setup], Cluster]) -> None:
    """Ranks that look at ``stop_requested()`` leave by themselves: no step is done twice."""
    cluster = new_cluster(Setup(nodes=2, kill_wait_s=20))
    training = Training(cluster, 700, 150)
    line = training.remuster("--nnodes 2", "--requeue")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N2", "--no-kill", "--requeue", "--time=1", "--signal=USR1@5")
    came_back(job, 1)
    came_back(job, 2)
    cluster.sh(f"scontrol update JobId={job.id} TimeLimit=10")
    assert job.wait_for("COMPLETED", timeout_s=120.0)["Restarts"] == "2"
    said = job.output()
    assert len(WARNED.findall(said)) == 4, "by each node, in each of the two launches"
    assert all(0 < int(left) <= 60 for left in WARNED.findall(said))
    ended = [int(step) for step in ENDS.findall(said)]
    assert len(ended) == 3
    assert ended[-1] == 700
    assert [int(step) for step in VERIFIED.findall(said)] == ended[:2]
    assert [int(step) for step in GOES_ON.findall(said)] == ended[:2]
    assert training.record(0)["verdict"]["class"] == "notice"
    training.check_final()


def test_the_limit_itself_ends_with_75_and_the_job_goes_on(new_cluster: Callable[[Setup], Cluster]) -> None:
    """Nobody has warned, and SIGTERM meets the ranks, too: those that look save all the same, within KillWait."""
    cluster = new_cluster(Setup(nodes=2, kill_wait_s=20))
    training = Training(cluster, 700, 150)
    line = training.remuster("--nnodes 2", "--requeue")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N2", "--no-kill", "--requeue", "--time=1")
    came_back(job, 1)
    cluster.sh(f"scontrol update JobId={job.id} TimeLimit=10")
    assert job.wait_for("COMPLETED", timeout_s=150.0)["Restarts"] == "1"
    said = job.output()
    assert said.count("the job's time limit is over") >= 2, said[-3000:]
    (verified,), (on,), (ended, last) = VERIFIED.findall(said), GOES_ON.findall(said), ENDS.findall(said)
    assert verified == on == ended
    assert last == "700"
    assert training.record(0)["charged_to"] is None
    training.check_final()
