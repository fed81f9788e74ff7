"""Drill: a spare takes the place of a host that loses its power. The other faults of hosts are in the catalogue."""

from __future__ import annotations

import pytest
from drills.job import SILENT, Job
from drills.lab import Host
from drills.sight import boottime

pytestmark = pytest.mark.drill


def test_power_loss(job: Job, hosts: list[Host]) -> None:
    """No FIN, no RST: the lease alone tells. The host comes back as another machine, and stands by."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    h2.crash()
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    h2.boot()
    job.start(h2)
    job.wait_joined_again(h2)
    job.steady(2, h1, h3, for_s=0.5)
    job.finish(h1, h2, h3)
    job.check_one_world()
    job.check_nothing_left()
