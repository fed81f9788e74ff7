"""Ranks without a deadline, as under ``--on-store-loss=hold``: only a death ends them, never the time.

That every death of keeper, agent or guardian still does is shown by the kill matrix, whose leases have no end either.
"""

import signal
import time

import pytest

pytestmark = pytest.mark.process

FENCE_S = 1.5  # of the lease that had an end


@pytest.fixture
def held(node):
    """A node whose lease had an end and has none any more: the keeper's timer must have been disarmed, too."""
    one = node(answer_s=0.5)
    one.lease(1, FENCE_S)
    one.tell("renew", 1, float("inf"), 0.1)
    one.ranks = set(one.plant(hop=False))
    return one


def test_ranks_of_a_stopped_agent_live_on_and_it_finds_them_as_they_were(held, until):
    held.kill("agent", signum=signal.SIGSTOP)
    end = time.monotonic() + FENCE_S + 1.0
    until(lambda: time.monotonic() > end or not all(map(held.alive, held.ranks)), "a fence's time has passed")
    assert all(map(held.alive, held.ranks))
    held.kill("agent", signum=signal.SIGCONT)
    held.tell("kill", 1)
    assert held.wait("RanksEmpty")["survivors"] == []
    assert (held.heard("NodeFenced"), held.heard("GuardianGone")) == ([], [])


def test_an_agent_that_is_killed_while_it_stands_still_takes_its_ranks_along(held, oracle, until):
    held.kill("agent", signum=signal.SIGSTOP)
    held.kill("agent")
    until(lambda: not oracle.pids(), "all gone")
    assert held.exit_code() == 137


def test_a_guardian_that_stands_still_is_replaced_all_the_same(held):
    held.kill("guardian", signum=signal.SIGSTOP)
    gone = held.wait("GuardianGone")
    assert (gone["round"], gone["survivors"]) == (1, [])
    held.start(["true"], n=2)
    held.wait("RankExited", round=2, status=0)


def test_a_new_incarnation_inherits_nothing_of_what_was_held(held):
    held.tell("renew", 2, float("inf"), 60.0)
    fenced = held.wait("NodeFenced")
    assert (fenced["inc"], fenced["round"], fenced["survivors"]) == (1, 1, [])
