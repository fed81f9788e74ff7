"""Drill: real training loses a host while all ranks are inside a collective."""

from __future__ import annotations

import importlib.util

import pytest
from drills.job import HERE, LEASE_S, SILENT, Job
from drills.lab import Host
from drills.sight import boottime

pytestmark = pytest.mark.drill

START_S = 20.0  # torch's import and process group, on two busy cores


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install -r requirements/train.txt"
)
def test_ddp_after_a_power_loss(job: Job, hosts: list[Host]) -> None:
    """The survivor is not left in the collective that its lost peer will never join."""
    h1, h2, h3 = hosts
    job.script = HERE / "ddp.py"
    job.start_with_spare(*hosts)
    at = boottime()
    h2.crash()
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT + START_S / LEASE_S)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    job.finish(h1, h3)
    job.check_one_world()
    job.check_nothing_left()
