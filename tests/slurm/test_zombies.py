"""A slurmd dies and what it has started lives on: the agent there asks Slurm for itself, and leaves."""

from __future__ import annotations

import re

import pytest
from drills.etcd import Etcd
from drills.sight import boottime, until
from slurm.cluster import Cluster
from slurm.training import KEEP, LEASE_S, Training

from remuster.agent.slurm_watch import AGAIN_S, LEASES

pytestmark = pytest.mark.drill

SEEN_S = LEASES * LEASE_S + AGAIN_S + 2.0  # from Slurm's word until the agent has heard it twice


def test_a_node_that_slurm_has_taken_leaves_and_the_spare_takes_its_place(cluster: Cluster) -> None:
    """Red without the watch: the node trains on to the end, beside whatever Slurm puts there next."""
    training = Training(cluster, 600)
    line = training.remuster("--nnodes 3")
    job = cluster.sbatch(f"srun {KEEP} {line}", "-N4", "--no-kill", "--requeue")
    members = training.wait_round(1, 3)
    training.wait_saved(2)
    (spare,) = set(cluster.nodes) - members
    zombie = max(members - {"node1"})
    cluster.kill_slurmd(zombie)
    until(lambda: zombie not in job.nodes(), f"Slurm takes {zombie} from the job", 40.0)
    at = boottime()
    assert any("train.py" in p.title for p in cluster.processes(zombie))
    assert training.wait_round(2, 3) == members - {zombie} | {spare}
    assert training.first_sign(2) - at < SEEN_S + 1.0
    until(lambda: not job.ours(zombie), lambda: f"nothing of it is left on {zombie}: {job.ours(zombie)}", 5.0)
    verdict = training.record(0)["verdict"]
    assert verdict["sentence"] == f"{zombie} left: Slurm has taken {zombie} from job {job.id}"
    assert training.record(0)["charged_to"] is None
    assert job.wait_for("COMPLETED", timeout_s=60.0)["Restarts"] == "0"
    training.check_final()


def test_what_a_cancelled_job_has_left_on_a_dead_slurmds_node_ends_by_itself(cluster: Cluster) -> None:
    """Without --no-kill Slurm ends the job for a lost node, and nothing there: its store is up, it could wait on."""
    etcd = Etcd(cluster.lab, cluster.lab.host("e1"))
    training = Training(cluster, 100_000)
    line = training.remuster(f"--rdzv-backend etcd --rdzv-endpoint {etcd.endpoint} --nnodes 1:4")
    job = cluster.sbatch(f"srun --kill-on-bad-exit=0 {line}", "-N4", "--no-requeue")
    training.wait_round(1, 4)
    cluster.kill_slurmd("node3")
    job.wait_for("NODE_FAIL", timeout_s=40.0)
    at = boottime()
    until(lambda: not job.ours(), lambda: f"nothing is left: {job.ours()}", SEEN_S + 10.0)
    last = max(training.last_signs(n).get("node3", 0.0) for n in training.rounds())
    assert last - at < SEEN_S + 3.0
    said = "".join(path.read_text() for path in training.out.glob("logs/*/events.jsonl"))
    assert re.search(rf"this node leaves: Slurm says \w+ of job {job.id}", said)
