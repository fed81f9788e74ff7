"""Drill: the disk of the log directory is full on one host."""

from __future__ import annotations

import signal

import pytest
from drills.job import AT_ONCE, Job
from drills.lab import Host
from drills.sight import boottime

pytestmark = pytest.mark.drill


def test_full_log_directory(job: Job, hosts: list[Host]) -> None:
    """Nothing is blocked: what cannot be kept is said, and a restart of the ranks needs no room."""
    h1, h2, h3 = hosts
    logs = job.lab.directory / "h2-logs"
    h2.sh(f"mkdir -m 700 {logs}; mount -t tmpfs -o size=256k,mode=700 tmpfs {logs}")
    job.start_with_spare(*hosts)
    h2.sh(f"dd if=/dev/zero of={logs}/fill bs=4k 2>/dev/null || true")
    job.steady(1, h1, h2, for_s=1.0)
    (rank,) = job.commands["h1"].ranks
    at = boottime()
    rank.signal(signal.SIGKILL)
    job.check_recovery(at, job.wait_round(2, h1, h2), AT_ONCE)
    job.check_failure(0, "killed_unknown", "h1", "unknown", h1, h3)
    job.finish(h1, h2, h3)
    assert "No space left on device" in job.commands["h2"].said()
    job.check_one_world()
    job.check_nothing_left()
