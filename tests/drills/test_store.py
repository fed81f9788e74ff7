"""Drills: the store, of one member, stands still for a while."""

from __future__ import annotations

import signal

import pytest
from drills.etcd import Etcd
from drills.job import LEASE_S, Job
from drills.lab import Host
from drills.sight import boottime, until

pytestmark = pytest.mark.drill


def test_stopped_within_the_lease(job: Job, etcd: Etcd, hosts: list[Host]) -> None:
    """Nothing happens, nothing is charged."""
    job.start_with_spare(*hosts)
    etcd.members["e1"].signal(signal.SIGSTOP)
    job.steady(1, *hosts[:2], for_s=LEASE_S / 6)
    etcd.members["e1"].signal(signal.SIGCONT)
    job.steady(1, *hosts[:2], for_s=LEASE_S)
    job.check_unharmed()
    job.finish(*hosts)
    job.check_nothing_left()


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


def test_stopped_beyond_the_lease(job: Job, etcd: Etcd, hosts: list[Host]) -> None:
    """Every node fences itself, and all go on together when the store is back. No node is to blame."""
    h1, h2, _ = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    etcd.members["e1"].signal(signal.SIGSTOP)
    job.wait_silence(LEASE_S * 1.5)
    job.check_fenced(1, h1, at)
    job.check_fenced(1, h2, at)
    at = boottime()
    etcd.members["e1"].signal(signal.SIGCONT)
    members = job.wait_later_round(1, 2)
    job.check_recovery(at, members, 1.0)
    job.check_failure(0, "rdzv_lost", None, "rendezvous", *hosts)
    job.finish(*hosts)
    job.check_one_world()
    job.check_nothing_left()
