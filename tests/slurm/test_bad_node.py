"""A node that is blamed: drained by the command that the site gives, and not given to the requeued job again."""

from __future__ import annotations

import pytest
from drills.job import HERE
from drills.sight import until
from slurm.cluster import Cluster

pytestmark = pytest.mark.drill

SITE = """
[site]
drain_command = ["scontrol", "update", "NodeName={host}", "State=DRAIN", "Reason={reason}"]
"""


def test_a_sick_node_is_drained_with_the_reason_while_the_job_goes_on(cluster: Cluster) -> None:
    alive, finish = cluster.directory / "alive", cluster.directory / "finish"
    kept, site = cluster.directory / "kept", cluster.directory / "site.toml"
    site.write_text(SITE)
    options = f"--nnodes 2:3 --max-restarts 3 --nproc-per-node 1 --config {site} --checkpoint-dir {kept}"
    line = f"srun --no-kill --kill-on-bad-exit=0 --wait=0 remuster {options} {HERE / 'sick.py'} {alive} {finish}"
    job = cluster.sbatch(line, "-N3", "--no-kill")
    until(lambda: "round 1 runs: nodes 3" in job.output(), job.output, 30.0)
    (cluster.directory / "alive.sick").write_text("node3")
    until(lambda: "round 2 runs: nodes 2" in job.output(), job.output, 60.0)
    until(lambda: cluster.node_state("node3").endswith("+DRAIN"), lambda: cluster.node_state("node3"), 30.0)
    shown = cluster.sh("scontrol -o show node node3")
    assert f"Reason=remuster {job.id}.0: gpu_ecc: " in shown
    assert job.state() == "RUNNING"
    until(lambda: "drain_command for node3~" in job.output(), job.output)
    assert job.output().count("drain_command") == 1
    finish.touch()
    job.wait_for("COMPLETED", timeout_s=60.0)
    assert '"host": "node3~' in (kept / ".remuster" / f"{job.id}.0" / "job.json").read_text()


def test_a_requeued_job_is_not_given_the_sick_node_again(cluster: Cluster) -> None:
    """Red when Slurm is told once alone: the requeue ends the first ``scontrol``; and when it is told before."""
    alive, finish, kept = (cluster.directory / name for name in ("alive", "finish", "kept"))
    line = f"remuster --requeue --nproc-per-node 1 --checkpoint-dir {kept} {HERE / 'sick.py'} {alive} {finish}"
    job = cluster.sbatch(f"srun --no-kill --kill-on-bad-exit=0 --wait=0 {line}", "-N2", "-x node2", "--requeue")
    until(lambda: "round 1 runs: nodes 2" in job.output(), job.output, 30.0)
    sick = job.nodes()[1]
    left = sorted({"node1", "node3", "node4"} - {sick})
    (cluster.directory / "alive.sick").write_text(sick)
    until(lambda: job.show()["Restarts"] == "1", job.output, 60.0)
    both = {f"node2,{sick}", f"node[2-{sick[-1]}]", f"node[2,{sick[-1]}]"}
    until(lambda: job.show()["ExcNodeList"] in both, lambda: f"{job.show()}\n{job.output()}")
    assert f"excluded from the requeue: {sick} (gpu_ecc), as 1 before" in job.output()
    job.wait_for("PENDING")
    job.start_now()
    job.wait_for("RUNNING", timeout_s=60.0)
    assert job.nodes() == left
    until(lambda: "goes on from its copy beside the checkpoints" in job.output(), job.output, 60.0)
    finish.touch()
    job.wait_for("COMPLETED", timeout_s=60.0)
