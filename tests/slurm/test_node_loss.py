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
    assert training.begun(2) >= 10
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
    assert training.begun(2) >= 10
    assert job.wait_for("COMPLETED", timeout_s=60.0)["Restarts"] == "0"
    training.check_final()


def test_the_first_node_of_the_job_is_lost(cluster: Cluster) -> None:
    """With the batch script and srun, where the store is elsewhere: the others go on without them, to the end.

    Slurm does not see by itself that nothing of the job runs any more, and would hold its nodes until its time limit;
    test_nothing_to_type.py has what remuster does about that.
    """
    etcd = Etcd(cluster.lab, cluster.lab.host("e1"))
    training = Training(cluster, 100)
    line = training.remuster(f"--rdzv-backend etcd --rdzv-endpoint {etcd.endpoint} --nnodes 3")
    line = f"sh -c 'test $SLURMD_NODENAME = node4 && sleep 2; exec {line}'"  # so that it is the spare
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N4", "--no-kill", "--requeue")
    training.wait_round(1, 3)
    training.wait_saved(2)
    training.wait_agents(4)
    at = cluster.crash("node1")
    assert training.wait_round(2, 3) == ALL - {"node1"}
    training.check_soon(2, at)
    assert training.begun(2) >= 10
    until((training.out / "final").exists, "the training ends", 60.0)
    until(lambda: not job.ours(), lambda: f"all ends: {job.ours()}")
    assert job.show()["Restarts"] == "0"
    training.check_final()
