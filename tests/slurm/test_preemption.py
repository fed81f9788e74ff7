"""A job of a higher priority takes the nodes: the lower one saves, gives them up at once, and comes back by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drills.sight import boottime, until
from slurm.cluster import Cluster, Setup
from slurm.training import ENDS, GOES_ON, KEEP, VERIFIED, Training

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]


@pytest.mark.parametrize("more", [(), ("SlurmctldParameters=preempt_send_user_signal",)], ids=["SIGTERM", "SIGUSR1"])
def test_a_preempted_job_comes_back_and_ends_as_if_nothing_had_been(
    new_cluster: Callable[[Setup], Cluster], more: tuple[str, ...]
) -> None:
    """Slurm requeues nothing that ends by itself in its grace; remuster does."""
    cluster = new_cluster(Setup(nodes=2, grace_s=30, kill_wait_s=20, more=more))
    training = Training(cluster, 400)
    line = training.remuster("--nnodes 2", "--requeue")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N2", "--no-kill", "--requeue", "--exclusive", "--signal=USR1@5")
    training.wait_round(1, 2)
    training.wait_saved(2)
    asked = boottime()
    urgent = cluster.preempt("-N2")
    urgent.wait_for("RUNNING", timeout_s=29.0)
    assert boottime() - asked < 25, "the grace is not waited for"
    until(lambda: job.show()["Restarts"] == "1", lambda: f"{job.show()}\n{job.output()[-4000:]}")
    job.wait_for("PENDING")
    urgent.cancel()
    job.start_now()
    assert job.wait_for("COMPLETED", timeout_s=120.0)["Restarts"] == "1"
    said = job.output()
    assert "Slurm preempts the job" in said, said[-3000:]
    assert ("was given notice of a stop, and every rank exited 0" in said) == bool(more)
    (verified,), (on,), (ended, last) = VERIFIED.findall(said), GOES_ON.findall(said), ENDS.findall(said)
    assert verified == on == ended, "what was done before SIGTERM came is not done again"
    assert last == "400"
    assert training.record(0)["charged_to"] is None
    training.check_final()
