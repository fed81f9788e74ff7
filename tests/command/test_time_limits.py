"""Slurm ends the job: a time limit, a preemption, `scancel`, with a real program named scontrol on PATH, or none.

Tests that are named after a row of the project's list of scenarios begin with its name. Each docstring says what was
broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command.cluster import STEADY, Node, Place
from command.processes import boottime, until
from fake_slurm import put_program

pytestmark = pytest.mark.process

JOB = (
    "JobId=812 JobName=train UserId=me(1) JobState={state} Reason={reason} Requeue=1 Restarts={restarts} BatchFlag=1 "
    "TimeLimit=01:00:00 StartTime=1000 EndTime={end} PreemptTime={preempt} NodeList=node1 Command=/a b.sh"
)
USUAL = {"state": "RUNNING", "reason": "None", "restarts": 2, "end": 9000, "preempt": "None"}
CONFIG = "Configuration data as of 5000\nKillWait                = 20 sec"
SLURM = {"SLURM_JOB_ID": "812", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "2"}
GRACE = ("--shutdown-timeout", "30")


def started(place: Place, answer: str | None, *flags: str) -> Node:
    """Start a job under a Slurm whose scontrol is the shell script ``answer``, or missing; its ranks are up."""
    path = place.folder / "bin"
    path.mkdir()
    if answer is not None:
        put_program(path, f'echo "$@" >> {place.folder}/asked\n{answer}')
    node = place.command(*GRACE, *flags, STEADY, place.desk, env={**SLURM, "PATH": str(path)})
    place.wait_round(1, 1)
    return node


def says(**job: object) -> str:
    return f'case "$*" in *config) echo "{CONFIG}";; *) echo "{JOB.format(**(USUAL | job))}";; esac'


def send(node: Node, *signals: signal.Signals) -> None:
    """Signal the command as Slurm does: it, and nobody who stands for its other processes here."""
    for number in signals:
        node.process.send_signal(number)


HANGS = "sleep 600 & wait"
PREEMPTED = says(preempt=5000, end=5030)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (None, 143, "Slurm cannot be asked about this signal: scontrol could not be started: No such file"),
        ("echo JobState= ; echo '\\000\\377'", 143, "scontrol prints nothing that is job 812"),
        (says(state="COMPLETING", end=5000), 143, "this node was asked to leave, by SIGTERM"),
        (PREEMPTED, 75, "by SIGTERM: Slurm preempts the job"),
        (says(state="COMPLETING", reason="TimeLimit", end=5000), 75, "the job's time limit is over"),
        (says(state="COMPLETING", restarts=3), 75, "Slurm requeues the job"),
    ],
    ids=["none", "garbage", "scancel", "preempted", "time limit", "requeued"],
)
def test_b54_cont_and_term_from_slurm(place: Place, answer: str | None, code: int, words: str) -> None:
    """Red when ``_leave`` does not wait for the answer, and when ``ending`` takes a scancel for a preemption."""
    node = started(place, answer)
    asked = boottime()
    send(node, signal.SIGCONT, signal.SIGTERM)
    assert node.exit_code() == code, node.say()
    assert words in node.err, node.say()
    assert boottime() - asked < 15, "nobody is waited for"
    assert "restart" not in node.err
    (record,) = node.records()
    assert (record["spent"], record["charged_to"]) == ({}, None)


def test_b54_a_second_term_and_a_scontrol_that_hangs(place: Place) -> None:
    """Red when the question holds up the stop, and when it has no bound."""
    node = started(place, HANGS)
    asked = boottime()
    send(node, signal.SIGCONT, signal.SIGTERM)
    send(node, signal.SIGTERM)
    assert node.exit_code() == 143, node.say()
    assert 4.5 < boottime() - asked < 20
    assert "scontrol gave no answer within 5 s and was killed" in node.err


def test_b54_the_restart_count_names_the_launch_and_is_not_charged(place: Place) -> None:
    """Red when the launch is named by the job's id alone."""
    node = started(place, None)
    place.order("done")
    assert node.exit_code() == 0, node.say()
    (record,) = node.records()
    assert (record["run_id"], record["launch"], record["round"]) == ("812", "812.2", 1)


def test_a_notice_says_what_is_left_and_ranks_that_stay_are_ended_in_time(place: Place) -> None:
    """Red when ``in_time`` ends nobody."""
    node = started(place, says(end=5012))
    asked = boottime()
    send(node, signal.SIGUSR1)
    assert node.exit_code() == 75, node.say()
    assert 2 < boottime() - asked < 12 + 5, "a part of the time is the ranks' own"
    assert "the job's time limit is near: 1" in node.err, "12 s, or what a slow answer leaves of them"
    assert " s are left to save and leave" in node.err
    assert "this node was asked to leave: the job's time limit is near" in node.err


def test_a_requeue_is_asked_for_last_of_all_by_the_one_that_led(place: Place) -> None:
    """Red when it is asked for before the record is there, and when a scancel is answered by one."""
    here = f'[ "$1" = requeue ] && ls {place.folder}/nodes/0/logs/*/attempts > {place.folder}/then\n'
    node = started(place, here + PREEMPTED, "--requeue")
    send(node, signal.SIGTERM)
    assert node.exit_code() == 75, node.say()
    assert (place.folder / "asked").read_text().splitlines()[-1] == "requeue 812"
    assert (place.folder / "then").read_text().split() == ["attempt-000.json"], node.say()
    assert "job 812 is requeued: scontrol requeue 812" in node.err


def test_without_scontrol_a_line_says_how_to_requeue(place: Place) -> None:
    """Red when a missing scontrol is an error of the job."""
    node = started(place, None, "--requeue")
    send(node, signal.SIGUSR2)
    until(lambda: "Slurm cannot be asked about this signal" in node.err, "the notice is heard", show=node.say)
    place.order("done")
    assert node.exit_code() == 75, node.say()
    assert "job 812 could not be requeued: scontrol could not be started: No such file or directory" in node.err
    assert "; on a login node: scontrol requeue 812" in node.err


LOOKS = """
import os, sys, time
from pathlib import Path
from remuster import stop_requested
desk, rank = Path(sys.argv[1]), os.environ["RANK"]
stop_requested()
(desk / f"up-{rank}").write_text(str(os.getpid()))
while not stop_requested() or (desk / "fails").exists():
    if rank == "1" and (desk / "fails").exists() and (desk / "up-0").exists():
        sys.exit(3)
    time.sleep(0.01)
time.sleep(0.3)
(desk / f"saved-{rank}").write_text("")
"""


def looking(place: Place) -> Node:
    (place.folder / "bin").mkdir()
    env = {**SLURM, "PATH": str(place.folder / "bin")}
    node = place.command(*GRACE, "--nproc-per-node", "2", place.script("t.py", LOOKS), place.desk, env=env)
    until(lambda: all((place.desk / f"up-{rank}").exists() for rank in (0, 1)), "ranks look", show=place.say)
    return node


def test_slurms_own_term_does_not_end_a_rank_that_looks(place: Place) -> None:
    """Red when ``worker/notice.py`` leaves SIGTERM as it is."""
    node = looking(place)
    for rank in (0, 1):
        os.kill(int((place.desk / f"up-{rank}").read_text()), signal.SIGTERM)
    send(node, signal.SIGTERM)
    assert node.exit_code() == 143, node.say()
    assert {path.name for path in place.desk.glob("saved-*")} == {"saved-0", "saved-1"}


def test_a_rank_that_looks_is_still_ended_at_once_after_a_failure(place: Place) -> None:
    """Red when ``Crew.terminate`` kills nobody who stays: the grace would be waited for."""
    node = looking(place)
    began = boottime()
    place.order("fails")
    assert node.exit_code() == 3, node.say()
    assert boottime() - began < 15
    assert node.records()[0]["exit_codes"] == {"0": -9, "1": 3}


def test_notices_are_of_the_ranks_alone_when_told_so(place: Place) -> None:
    """Red when ``none`` is no value."""
    node = started(place, says(end=5012), "--notice-signal", "none")
    send(node, signal.SIGUSR1, signal.SIGUSR2)
    place.order("done")
    assert node.exit_code() == 0, node.say()
    assert not Path(place.folder / "asked").exists()
