"""When the keeper starts a revoker, with what, and that it never waits long for it."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from remuster.agent.keeper import REVOKE_S

pytestmark = pytest.mark.process

# Stands for the interpreter: a guardian is one; a revoker leaves what it was given and who lives below the keeper.
SCRIPT = """#!/bin/sh
case "$*" in
*leaserevoker*)
    {{ cat {told}; echo "$*"; cat; echo; cat /proc/$PPID/task/$PPID/children; echo; env; }} > {told}.new 2> /dev/null
    mv {told}.new {told}
    {then};;
esac
exec {python} "$@"
"""
LETTER = '["a letter"]'


@pytest.fixture
def revoking(node, tmp_path):
    """Return a function that starts a node whose revoker is the script, and the file that it leaves."""

    def make(then="exit 0", letter=LETTER, **options):
        script, told = tmp_path / "python", tmp_path / "told"
        script.write_text(SCRIPT.format(told=told, then=then, python=sys.executable))
        script.chmod(0o700)
        return node(python=str(script), letter=letter, **options), told

    return make


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGABRT])
def test_it_is_started_once_nothing_else_is_left(revoking, oracle, signum):
    one, told = revoking()
    one.lease(4711, 60)
    one.plant(inc=4711)
    one.kill("guardian", signum=signal.SIGSTOP)  # it sweeps nothing: all that is below it lives until the keeper has
    one.kill("agent", signum=signum)
    assert one.exit_code() == 128 + signum
    program, letter, children, *env = told.read_text().splitlines()
    assert f"main(4711, {-signum}, " in program
    assert not any("leaserevoker" in line for line in env), "it was started twice"
    assert letter == LETTER
    assert LETTER not in program
    assert len(children.split()) == 1  # itself
    assert f"PROCESS_TEST_MARK={oracle.variable.partition('=')[2]}" in env
    assert oracle.pids() == set()


def test_it_is_started_too_when_the_agent_ends_in_another_way_with_its_lease(revoking):
    one, told = revoking()
    one.lease(7, 60)
    one.plant(hop=False, inc=7)
    one.tell("quit")
    assert one.exit_code() == 0
    assert "main(7, 0, " in told.read_text()


@pytest.mark.parametrize("case", ["no letter", "no lease", "given up", "fenced"])
def test_there_is_nothing_to_revoke(revoking, oracle, case):
    one, told = revoking(letter="" if case == "no letter" else LETTER)
    if case == "fenced":
        one.lease(7, 0.3)
        one.wait("NodeFenced")
    elif case != "no lease":
        one.lease(7, 60)
        one.plant(hop=False, inc=7)
    if case == "given up":
        one.tell("give up")
        one.wait("GivenUp")
    one.kill("agent")
    assert one.exit_code() == 137
    assert not told.exists()
    assert oracle.pids() == set()


def test_one_that_hangs_holds_nobody_up(revoking, oracle):
    one, told = revoking(then="exec sleep 60")
    one.lease(7, 60)
    one.plant(hop=False, inc=7)
    one.kill("agent")
    began = time.monotonic()
    assert one.exit_code() == 137
    assert REVOKE_S <= time.monotonic() - began < REVOKE_S + 2
    assert told.exists()
    assert "was not given up within" in one.stderr()
    assert oracle.pids() == set()


def test_one_that_cannot_be_started_is_said(revoking, oracle):
    one, told = revoking()
    one.lease(7, 60)
    one.plant(hop=False, inc=7)
    os.unlink(told.with_name("python"))
    one.kill("agent")
    assert one.exit_code() == 137
    assert "cannot be started: No such file or directory" in one.stderr()
    assert oracle.pids() == set()


def test_no_key_on_a_terminal_reaches_it(revoking, until):
    one, told = revoking(then="exec sleep 60")
    one.lease(7, 60)
    one.plant(hop=False, inc=7)
    one.kill("agent")
    until(told.exists, "it runs")
    (pid,) = Path(f"/proc/{one.keeper}/task/{one.keeper}/children").read_text().split()
    assert os.getpgid(int(pid)) == int(pid)
    os.kill(int(pid), signal.SIGKILL)
    assert one.exit_code() == 137


def test_the_real_one_says_that_it_found_no_store(node, oracle):
    letter = '["r", "/remuster/", "n", [["127.0.0.1", 1]], "", [null, null, null, null, null]]'
    one = node(letter=letter)
    one.lease(7, 60)
    one.plant(hop=False, inc=7)
    one.kill("agent")
    began = time.monotonic()
    assert one.exit_code() == 137
    assert time.monotonic() - began < REVOKE_S + 2
    assert "this node's dead agent was not given up: no answer from etcd at 127.0.0.1:1 in time" in one.stderr()
    assert oracle.pids() == set()
