"""Drills: who takes the place of a dead agent. The other faults of processes are in the catalogue."""

from __future__ import annotations

import signal

import pytest
from drills.job import AT_ONCE, Job
from drills.lab import Host
from drills.sight import boottime, until

pytestmark = pytest.mark.drill


def test_agent_killed(job: Job, hosts: list[Host]) -> None:
    """Its ranks die with it; its keeper gives the lease up, and the spare takes its place at once."""
    h1, _, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    job.commands["h2"].agent.signal(signal.SIGKILL)
    assert job.commands["h2"].waiter.wait(5.0) == 128 + signal.SIGKILL
    job.check_recovery(at, job.wait_round(2, h1, h3), AT_ONCE)
    job.check_failure(0, "killed_unknown", "h2", "unknown", h1, h3)
    job.finish(h1, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_started_again_under_the_same_name(job: Job, hosts: list[Host]) -> None:
    """The machine itself may revoke the lease of its dead agent: nobody waits for it."""
    h1, h2, _ = hosts
    job.start(h1, h2)
    job.wait_round(1, h1, h2)
    at = boottime()
    h2.kill()
    job.start(h2)
    job.check_recovery(at, job.wait_round(2, h1, h2), AT_ONCE)
    job.check_failure(0, "node_lost", "h2", "node", h1)
    until(lambda: "revoking the old lease" in job.commands["h2"].said(), "the lease of the dead agent is revoked")
    job.finish(h1, h2)
    job.check_one_world()
    job.check_nothing_left()
