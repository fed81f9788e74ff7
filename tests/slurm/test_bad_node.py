"""A node that is blamed is drained by the command that the site gives, and the job goes on without it."""

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
