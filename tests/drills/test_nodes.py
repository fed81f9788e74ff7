"""Drills: a host loses its power or its network."""

from __future__ import annotations

import pytest
from drills.job import LEASE_S, SILENT, Job
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


def test_power_loss_of_the_leader(job: Job, hosts: list[Host]) -> None:
    """Leading is no place to be lost from: another one leads and sees it."""
    job.nnodes = "2:3"
    job.start(*hosts)
    job.wait_round(1, *hosts)
    leader = job.leader()
    left = [host for host in hosts if host is not leader]
    at = boottime()
    leader.crash()
    job.check_recovery(at, job.wait_round(2, *left), SILENT)
    job.check_failure(0, "node_lost", leader.name, "node", *left)
    assert job.leader() in left
    job.finish(*left)
    job.check_one_world()
    job.check_nothing_left()


def test_cut_off_beyond_the_lease(job: Job, hosts: list[Host]) -> None:
    """Its ranks are dead before the others go on; healed, it joins again and stands by."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    h2.cut()
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_fenced(1, h2, at)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    h2.heal()
    job.wait_joined_again(h2)
    job.steady(2, h1, h3, for_s=0.5)
    job.finish(h1, h2, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_cut_off_within_the_lease(job: Job, hosts: list[Host]) -> None:
    """Nothing happens, nothing is charged."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    h2.cut()
    job.steady(1, h1, h2, for_s=LEASE_S / 6)
    h2.heal()
    job.steady(1, h1, h2, for_s=LEASE_S)
    job.check_unharmed()
    job.finish(h1, h2, h3)
    job.check_nothing_left()


def test_frozen_beyond_the_lease(job: Job, hosts: list[Host]) -> None:
    """No fence can run on a host that stands still; thawed, its ranks are dead in a moment."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    h2.freeze()
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    at = boottime()
    h2.thaw()
    job.wait_joined_again(h2)
    job.steady(2, h1, h3, for_s=0.5)
    job.finish(h1, h2, h3)
    job.check_one_world(thawed=(h2, at))
    job.check_nothing_left()
