"""Drills: a store of three members loses one."""

from __future__ import annotations

import signal

import pytest
from drills.etcd import Etcd
from drills.job import LEASE_S, Job
from drills.lab import Host, Lab

pytestmark = pytest.mark.drill


@pytest.fixture
def etcd(lab: Lab, hosts: list[Host]) -> Etcd:
    """Three members on hosts of their own, instead of one."""
    return Etcd(lab, lab.host("e1", "e2", "e3"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_leading_member(job: Job, etcd: Etcd, hosts: list[Host], number: int) -> None:
    """The job goes on without a charge, whichever member its agents talk to."""
    job.start_with_spare(*hosts)
    etcd.members[etcd.leader().name].signal(number)
    job.steady(1, *hosts[:2], for_s=LEASE_S * 1.5)
    job.check_unharmed()
    job.finish(*hosts)
    job.check_nothing_left()
