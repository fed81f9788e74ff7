"""Whatever a rank has started, and whoever of keeper, agent and guardian is killed: nothing of the job lives on."""

from __future__ import annotations

import os
import signal

import pytest
from command.cluster import STEADY, Place
from command.processes import until

pytestmark = pytest.mark.process

BEARS = """
import os, sys, time
def stay():
    for fd in (0, 1, 2): os.close(fd)
    time.sleep(90); os._exit(0)
if os.fork() == 0:  # a loader's child
    stay()
if os.fork() == 0:  # with a session of its own
    os.setsid(); stay()
if os.fork() == 0:  # a daemon, by the book
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir('/'); stay()
{end}
"""


@pytest.mark.parametrize(("end", "code"), [("sys.exit(0)", 0), ("sys.exit(4)", 4)])
def test_what_a_rank_leaves_goes_with_it(place: Place, end: str, code: int) -> None:
    node = place.command("--nproc-per-node", "2", place.script("t.py", BEARS.format(end=end)))
    assert node.exit_code() == code, node.say()  # and checks that nothing is left
    assert place.left_files() == []


def test_a_restart_starts_on_an_empty_node(place: Place) -> None:
    end = "sys.exit(4 * (os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))"
    look = (
        "import glob\n"
        "me = os.environ['REMUSTER_RUN_ID']\n"
        "old = [p for p in glob.glob('/proc/[0-9]*/environ') if f'REMUSTER_RUN_ID={me}'.encode() in read(p)\n"
        "       and b'REMUSTER_ROUND=1\\0' in read(p)]\n"
        "if os.environ['REMUSTER_ROUND'] == '2' and old: sys.exit(99)\n"
    )
    read = "import os, sys\ndef read(p):\n    try: return open(p, 'rb').read()\n    except OSError: return b''\n" + look
    script = place.script("t.py", read + BEARS.format(end=end))
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script)
    assert node.exit_code() == 0, node.say()


@pytest.mark.parametrize("who", ["keeper", "agent"])
def test_keeper_or_agent_is_killed(place: Place, who: str) -> None:
    node = place.command("--nproc-per-node", "2", STEADY, place.desk)
    place.wait_round(1, 2)
    node.kill(who)
    assert node.exit_code() == (-signal.SIGKILL if who == "keeper" else 137), node.say()


def test_the_guardian_is_killed_and_the_round_restarts_within_the_budget(place: Place) -> None:
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", STEADY, place.desk)
    first = place.wait_round(1, 2)
    node.kill("guardian")
    second = place.wait_round(2, 2)
    assert not {said["pid"] for said in first.values()} & {said["pid"] for said in second.values()}
    place.order("done")
    assert node.exit_code() == 0, node.say()
    assert [record["state"] for record in node.records()] == ["retried", "done"]
    assert "guardian" in node.records()[0]["verdict"]["sentence"]


def test_the_guardian_is_killed_without_a_budget(place: Place) -> None:
    node = place.command("--nproc-per-node", "2", STEADY, place.desk)
    place.wait_round(1, 2)
    node.kill("guardian")
    assert node.exit_code() == 137, node.say()


def test_all_three_are_killed_and_the_next_start_sweeps(place: Place) -> None:
    node = place.command("--nproc-per-node", "2", "--rdzv-id", "same", STEADY, place.desk)
    place.wait_round(1, 2)
    ranks = list(node.ranks().values())
    keeper, agent, guardian = node.keeper, node.agent, node.guardian
    for pid in (keeper, agent, guardian):
        os.kill(pid, signal.SIGSTOP)
    for pid in (keeper, agent, guardian):
        os.kill(pid, signal.SIGKILL)
    node.process.wait(10)
    other = place.command("--rdzv-id", "same", place.script("t.py", ""))
    assert other.exit_code() == 0, other.say()
    until(lambda: not node.pids(), f"the strays {ranks} are swept", show=place.say)
