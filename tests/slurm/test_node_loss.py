"""A node is lost inside the allocation: the job goes on with the spare or shrinks, and Slurm requeues nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drills.etcd import Etcd
from drills.sight import until
from slurm.cluster import Cluster, Setup
from slurm.training import KEEP, Training

pytestmark = pytest.mark.drill

ALL = {"node1", "node2", "node3", "node4"}


def test_a_spare_takes_the_place_of_a_node_that_lost_power(cluster: Cluster) -> None:
    training = Training(cluster, 100)
    line = training.remuster("--nnodes 3")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N4", "--no-kill", "--requeue")
    members = training.wait_round(1, 3)
    training.wait_saved(2)
    lost = max(members - {"node1"})
    at = cluster.crash(lost)
    assert training.wait_round(2, 3) == ALL - {lost}
    training.check_soon(2, at)
    shown = job.wait_for("COMPLETED", timeout_s=60.0)
    assert shown["Restarts"] == "0"
    assert training.record(0)["verdict"]["class"] == "node_lost"
    training.check_final()


def test_the_job_shrinks_where_there_is_no_spare(new_cluster: Callable[[Setup], Cluster]) -> None:
    cluster = new_cluster(Setup(nodes=3))
    training = Training(cluster, 100)
    line = training.remuster("--nnodes 2:3")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N3", "--no-kill", "--requeue")
    training.wait_round(1, 3)
    training.wait_saved(2)
    at = cluster.crash("node2")
    assert training.wait_round(2, 2) == {"node1", "node3"}
    training.check_soon(2, at)
    assert job.wait_for("COMPLETED", timeout_s=60.0)["Restarts"] == "0"
    training.check_final()


def test_the_first_node_of_the_job_is_lost(cluster: Cluster) -> None:
    """With the batch script and srun, where the store is elsewhere: the others go on without them, to the end.

    Slurm then does not see that nothing of the job runs any more, and holds its nodes until its time limit.
    """
    etcd = Etcd(cluster.lab, cluster.lab.host("e1"))
    training = Training(cluster, 100)
    line = training.remuster(f"--rdzv-backend etcd --rdzv-endpoint {etcd.endpoint} --nnodes 3")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N4", "--no-kill", "--requeue")
    training.wait_round(1, 3)
    training.wait_saved(2)
    at = cluster.crash("node1")
    n = 2 if "node1" in training.rounds()[1] else 1
    assert training.wait_round(n, 3) == ALL - {"node1"}
    if n == 2:
        training.check_soon(2, at)
    until((training.out / "final").exists, "the training ends", 60.0)
    until(lambda: not job.ours(), lambda: f"all ends: {job.ours()}")
    assert job.show()["Restarts"] == "0"
    training.check_final()
