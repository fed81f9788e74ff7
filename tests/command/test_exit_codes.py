"""What the command returns, and that nothing of it is left, on one node: README's table and the signals."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from command.cluster import STEADY, Place
from command.processes import until

pytestmark = pytest.mark.process

ENDS = {
    "exit-42": ("sys.exit(42)", 42),
    "as-usage": ("sys.exit(2)", 2),
    "raises": ("raise KeyError('lr')", 1),
    "segfault": ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", 137),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_root_ranks_own_code_is_the_commands(place: Place, end: str) -> None:
    how, code = ENDS[end]
    script = place.script("t.py", f"import os, signal, sys\nif os.environ['RANK'] == '1': {how}\n")
    node = place.command("--nproc-per-node", "2", script)
    assert node.exit_code() == code, node.say()
    (record,) = node.records()
    assert (record["state"], record["verdict"]["rank"]) == ("failed", 1)
    assert place.left_files() == []


@pytest.mark.parametrize("status", [69, 70, 75])
def test_a_code_that_means_something_to_schedulers_becomes_1_and_is_named(place: Place, status: int) -> None:
    node = place.command(place.script("t.py", f"import sys; sys.exit({status})"))
    assert node.exit_code() == 1, node.say()
    assert f"exit status {status}" in node.err
    assert f"exitcode  : {status} " in node.err


def test_all_ranks_end_well(place: Place) -> None:
    node = place.command("--nproc-per-node", "3", place.script("t.py", "print('here')"))
    assert node.exit_code() == 0, node.say()
    assert node.out.splitlines() == [b"here"] * 3
    assert node.records()[0]["state"] == "done"
    assert "FAILED" not in node.err
    assert place.left_files() == []


def test_a_restart_that_helps_ends_with_0(place: Place) -> None:
    script = place.script("t.py", "import os, sys; sys.exit(3 * (os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))")
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script)
    assert node.exit_code() == 0, node.say()
    assert [record["state"] for record in node.records()] == ["retried", "done"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_command_stops_the_job(place: Place, signum: signal.Signals) -> None:
    node = place.command("--nproc-per-node", "2", STEADY, place.desk)
    place.wait_round(1, 2)
    node.process.send_signal(signum)
    assert node.exit_code() == 128 + signum, node.say()
    assert {path.name for path in (place.desk / "round-1").glob("term-*")} == {"term-0", "term-1"}
    assert place.left_files() == []


STANDS = {
    "at once": lambda node: True,
    "the agent is there": lambda node: node.agent,
    "the guardian is there": lambda node: node.guardian,
}


@pytest.mark.parametrize("when", STANDS)
def test_a_signal_before_ranks_start(place: Place, when: str) -> None:
    """A shell shows 143 too when the kernel ends an interpreter that is too young to have an opinion."""
    node = place.command("--nproc-per-node", "2", STEADY, place.desk)
    until(lambda: STANDS[when](node), when, show=place.say)
    node.process.send_signal(signal.SIGTERM)
    code = node.exit_code()
    assert (128 - code if code < 0 else code) == 143, node.say()
    assert place.left_files() == []


def test_usage_is_2_and_makes_nothing(place: Place) -> None:
    node = place.command("--nnodes", "0", place.script("t.py", ""))
    assert node.exit_code() == 2
    assert not Path(node.log_dir).exists()
