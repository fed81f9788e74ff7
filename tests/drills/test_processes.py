"""Drills: a process of the job is killed, one kind after the other."""

from __future__ import annotations

import signal

import pytest
from drills.job import AT_ONCE, SILENT, Job
from drills.lab import Host
from drills.sight import boottime, until

pytestmark = pytest.mark.drill


def test_rank_killed(job: Job, hosts: list[Host]) -> None:
    """All ranks stop, the same nodes go on, and the killed one is named."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    (rank,) = job.commands["h2"].ranks
    at = boottime()
    rank.signal(signal.SIGKILL)
    job.check_recovery(at, job.wait_round(2, h1, h2), AT_ONCE)
    record = job.check_failure(0, "killed_unknown", "h2", "unknown", *hosts)
    assert record["verdict"]["status"] == -9
    job.finish(h1, h2, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_agent_killed(job: Job, hosts: list[Host]) -> None:
    """Its ranks die with it; the spare takes its place when its lease has gone."""
    h1, _, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    job.commands["h2"].agent.signal(signal.SIGKILL)
    assert job.commands["h2"].waiter.wait(5.0) == 128 + signal.SIGKILL
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    job.finish(h1, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_guardian_killed(job: Job, hosts: list[Host]) -> None:
    """The ranks die with it, the agent starts another one, and the same nodes go on."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    (rank,) = job.commands["h2"].ranks
    at = boottime()
    job.commands["h2"].guardian.signal(signal.SIGKILL)
    job.check_recovery(at, job.wait_round(2, h1, h2), AT_ONCE)
    assert not rank.alive
    job.check_failure(0, "killed_unknown", "h2", "unknown", *hosts)
    job.finish(h1, h2, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_keeper_killed(job: Job, hosts: list[Host]) -> None:
    """The agent leaves in order, without a charge, and the spare takes its place at once."""
    h1, _, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    job.commands["h2"].keeper.signal(signal.SIGKILL)
    job.check_recovery(at, job.wait_round(2, h1, h3), AT_ONCE)
    job.check_failure(0, "leave", "h2", None, h1, h3)
    job.finish(h1, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_all_of_a_host_killed(job: Job, hosts: list[Host]) -> None:
    """Its kernel says goodbye for it, which proves nothing: its lease is waited for."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    at = boottime()
    h2.kill()
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
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


def test_agent_stopped(job: Job, hosts: list[Host]) -> None:
    """Its guardian fences in time; continued, the agent finds its lease gone and joins again as a spare."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    agent = job.commands["h2"].agent
    at = boottime()
    agent.signal(signal.SIGSTOP)
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_fenced(1, h2, at)
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    agent.signal(signal.SIGCONT)
    job.wait_joined_again(h2)
    job.steady(2, h1, h3, for_s=0.5)
    job.finish(h1, h2, h3)
    job.check_one_world()
    job.check_nothing_left()


def test_agent_and_guardian_stopped(job: Job, hosts: list[Host]) -> None:
    """The keeper fences; nobody is left to carry on there."""
    h1, h2, h3 = hosts
    job.start_with_spare(*hosts)
    agent, guardian = job.commands["h2"].agent, job.commands["h2"].guardian
    at = boottime()
    for process in (agent, guardian):
        process.signal(signal.SIGSTOP)
    job.check_recovery(at, job.wait_round(2, h1, h3), SILENT)
    job.check_fenced(1, h2, at)
    assert job.commands["h2"].waiter.wait(5.0) == 128 + signal.SIGKILL
    job.check_failure(0, "node_lost", "h2", "node", h1, h3)
    job.finish(h1, h3)
    job.check_one_world()
    job.check_nothing_left()
