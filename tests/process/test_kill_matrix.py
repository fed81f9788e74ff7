"""Keeper, agent and guardian are killed or stopped, one or two of them in any order: no rank lives on."""

import itertools
import os
import signal
import time

import pytest

pytestmark = pytest.mark.process

THREE = ("keeper", "agent", "guardian")
CASES = [(one,) for one in THREE] + list(itertools.permutations(THREE, 2))
REPETITIONS = int(os.environ.get("KILL_MATRIX_REPETITIONS", "2"))


@pytest.fixture
def report(capsys):
    """Print a line that shows also when the test passes."""

    def show(text):
        with capsys.disabled():
            print(f"\n  {text}", end="")

    return show


def kill_and_measure(one, who):
    began = time.monotonic()
    for name in who:
        one.kill(name)
        time.sleep(0.001)  # one after the other, as the case says; not a wait for anything
    return began


@pytest.mark.parametrize("held", [False, True], ids=["sweep", "cgroup"])
@pytest.mark.parametrize("who", CASES, ids=["-".join(c) for c in CASES])
def test_one_or_two_of_three_are_killed(node, oracle, report, until, who, held):
    times = []
    for i in range(REPETITIONS):
        one = node()
        if held:
            one.tell("hold", f"run-{os.getpid()}-{i}", "here")
            if not one.wait("GuardianReady")["cgroup"]:
                pytest.skip("no cgroup can be made here")
        one.lease()
        one.plant()
        began = kill_and_measure(one, who)
        if who == ("guardian",):  # the others go on, with another guardian
            gone = one.wait("GuardianGone")
            assert (gone["round"], gone["survivors"]) == (1, [])
            times.append(time.monotonic() - began)
            one.start(["true"], n=2)  # the new guardian has its own name by then
            one.wait("RankExited", round=2, status=0)
            assert one.strangers() == set()
            one.tell("quit")
            assert one.exit_code() == 0
        else:
            until(lambda: not oracle.pids(), f"{who} killed: {oracle.pids()} are alive")
            times.append(time.monotonic() - began)
            code = one.exit_code()
            assert code == (-signal.SIGKILL if "keeper" in who else 137)
        until(lambda: not oracle.pids(), "all gone")
        if held:
            assert oracle.left_folders() == []
    report(f"{'cgroup' if held else 'sweep '} {'-'.join(who):18s} {REPETITIONS} x, ms to empty: {_ms(times)}")


def _ms(times):
    return ", ".join(f"{1000 * t:.0f}" for t in times)


FENCE_S = 2.0


@pytest.fixture
def renewing(node):
    one = node(answer_s=0.5)
    one.tell("renew", 1, FENCE_S, 0.2)
    one.plant()
    return one


def test_a_stopped_agent_is_fenced_and_told_when_it_goes_on(renewing, report, until):
    began = time.monotonic()
    renewing.kill("agent", signum=signal.SIGSTOP)
    until(lambda: not renewing.strangers(), "the ranks are fenced")
    took = time.monotonic() - began
    assert took < FENCE_S + 2.0
    assert renewing.strangers() == set()
    renewing.kill("agent", signum=signal.SIGCONT)
    fenced = renewing.wait("NodeFenced")
    assert (fenced["inc"], fenced["round"], fenced["survivors"]) == (1, 1, [])
    assert len(renewing.heard("GuardianGone")) == 0
    report(f"STOP agent, fence {FENCE_S:g} s: empty after {1000 * took:.0f} ms")


def test_a_stopped_guardian_is_replaced_before_the_deadline(renewing, report):
    began = time.monotonic()
    renewing.kill("guardian", signum=signal.SIGSTOP)
    gone = renewing.wait("GuardianGone")
    took = time.monotonic() - began
    assert gone["survivors"] == []
    assert took < FENCE_S
    renewing.start(["true"], n=2)
    renewing.wait("RankExited", round=2, status=0)
    assert renewing.strangers() == set()
    report(f"STOP guardian, fence {FENCE_S:g} s: empty after {1000 * took:.0f} ms")


def test_agent_and_guardian_stopped_are_fenced_by_the_keeper(renewing, oracle, report, until):
    began = time.monotonic()
    renewing.kill("agent", "guardian", signum=signal.SIGSTOP)
    until(lambda: not oracle.pids(), "the keeper fences")
    took = time.monotonic() - began
    assert took < FENCE_S + 2.0
    assert renewing.exit_code() == 137
    report(f"STOP agent + guardian, fence {FENCE_S:g} s: empty after {1000 * took:.0f} ms")


def test_a_stopped_guardian_and_an_agent_that_hangs_are_fenced_by_the_keeper(renewing, until):
    renewing.tell("hang", 5)
    renewing.kill("guardian", signum=signal.SIGSTOP)
    until(lambda: not renewing.strangers(), "the keeper fences", FENCE_S + 2.0)
    gone = renewing.wait("GuardianGone")  # said when the agent is back
    assert (gone["round"], gone["survivors"]) == (1, [])


@pytest.mark.parametrize("stopped", ["agent", "guardian"])
def test_one_stopped_and_the_other_killed(renewing, oracle, until, stopped):
    renewing.kill(stopped, signum=signal.SIGSTOP)
    renewing.kill("guardian" if stopped == "agent" else "agent")
    until(lambda: not oracle.pids(), "nobody is left")
    assert renewing.exit_code() == 137


def test_a_store_outage_fences_the_ranks_and_leaves_agent_guardian_and_spared_children_alone(node, until):
    one = node()
    one.tell("child", ["sleep", "30"])
    child = one.wait("Child")["pid"]
    one.lease(for_s=0.6)
    one.plant(hop=False)
    one.wait("NodeFenced", round=1)
    time.sleep(0.3)  # the keeper's own deadline passes: it must find nothing to do, which shows in nothing
    assert one.strangers() == {child}
    one.tell("ack", 1)
    one.lease(for_s=30)
    one.start(["true"], n=2)
    one.wait("RankExited", round=2, status=0)
    one.kill("guardian")
    one.wait("GuardianGone")
    one.start(["true"], n=3)
    one.wait("RankExited", round=3, status=0)
    assert one.strangers() == {child}
