"""Drill: the store is back when all have fenced but no lease is gone. Its other faults are in the catalogue."""

from __future__ import annotations

import signal

import pytest
from drills.etcd import Etcd
from drills.job import LEASE_S, Job
from drills.lab import Host
from drills.sight import boottime, until

pytestmark = pytest.mark.drill


def test_stopped_until_all_have_fenced(job: Job, etcd: Etcd, hosts: list[Host]) -> None:
    """Every node fences itself while its lease still lives, and goes on under that lease. No node is to blame."""
    h1, h2, _ = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    etcd.members["e1"].signal(signal.SIGSTOP)
    until(lambda: job.beats()[-1].at < boottime() - 0.3, "all ranks are silent")
    etcd.members["e1"].signal(signal.SIGCONT)
    assert boottime() < at + LEASE_S * 0.8, "too slow: the leases may be gone"
    job.check_recovery(at, job.wait_round(2, h1, h2), 1.0)
    job.check_failure(0, "rdzv_lost", None, "rendezvous", *hosts)
    job.check_fenced(1, h1, at)
    job.check_fenced(1, h2, at)
    job.finish(*hosts)
    job.check_one_world()
    job.check_nothing_left()
