"""What `scontrol` says, and that a `scontrol` that is missing, hangs, fails or babbles is no error: real programs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from fake_slurm import put_program

from remuster.agent.scontrol import Unknown, ask_job, run_scontrol
from remuster.agent.slurm_job import SlurmJob, parse_job

CONFIG = """Configuration data as of 1796042062
AccountingStorageBackupHost = (null)
BOOT_TIME               = 1796041946
KillWait                = 20 sec
"""
LINE = (
    "JobId={id} JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0 Account=(null) "
    "JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts={restarts} BatchFlag={batch} Reboot=0 "
    "ExitCode=0:0 RunTime=00:01:04 TimeLimit={limit} TimeMin=N/A SubmitTime=1796041971 StartTime=1796041972 "
    "EndTime={end} Deadline=N/A PreemptEligibleTime=1796041972 PreemptTime={preempt} SuspendTime=None Partition=main "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=node[1-3] BatchHost=node1 NumNodes=3 Command=/home/a b.sh Power= \n"
)


def line(**fields: object) -> str:
    usual: dict[str, object] = {"id": 7, "name": "train", "state": "RUNNING", "reason": "None", "restarts": 0}
    usual |= {"batch": 1, "limit": "00:05:00", "end": 1796042100, "preempt": "None"}
    return LINE.format(**(usual | fields))


RUNNING = SlurmJob("RUNNING", "", 38.0, 0, "node[1-3]", False, True, 20.0, "node1")


@pytest.mark.parametrize(
    ("said", "config", "job"),
    [
        (line(), CONFIG, RUNNING),
        (line(name="a b JobState=FAILED EndTime=0"), CONFIG, RUNNING),
        (line(), "", RUNNING._replace(left_s=None, kill_wait_s=30.0)),
        (line(), "slurm_load_ctl_conf error: Unable to contact", RUNNING._replace(left_s=None, kill_wait_s=30.0)),
        (line(limit="UNLIMITED", end="Unknown"), CONFIG, RUNNING._replace(left_s=None)),
        (line(end="2026-11-30T12:33:56"), CONFIG, RUNNING._replace(left_s=None)),  # another time format was insisted on
        (line(end=1796042060), CONFIG, RUNNING._replace(left_s=-2.0)),
        (line(restarts=2, batch=0), CONFIG, RUNNING._replace(restarts=2, may_requeue=False, batch_host="")),
        (
            line(preempt=1796042050, end=1796042080),
            CONFIG,
            RUNNING._replace(left_s=18.0, preempted=True),
        ),
        (
            line(state="COMPLETING", reason="TimeLimit"),
            CONFIG,
            RUNNING._replace(state="COMPLETING", reason="TimeLimit"),
        ),
        (line(id=6, state="FAILED") + line() + line(id=8, state="FAILED"), CONFIG, RUNNING),  # tasks of an array
        (line(id=77), CONFIG, None),
        ("", CONFIG, None),
        ("JobId=7", CONFIG, None),
        ("\0\xff JobId=7 = =x JobState", CONFIG, None),
        ("{'JobId': 7}\n" * 3, CONFIG, None),
    ],
)
def test_what_it_says_of_a_job(said: str, config: str, job: SlurmJob | None) -> None:
    assert parse_job("7", said, config) == job


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder where programs are looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def ask(within_s: float = 10.0) -> SlurmJob | Unknown:
    spared: list[tuple[int, ...]] = []
    found = asyncio.run(ask_job("7", spared.append, within_s=within_s))
    assert not spared or spared[-1] == ()
    return found


def answers(path: Path) -> str:
    (path / "job").write_text(line())
    (path / "config").write_text(CONFIG)
    return f'case "$*" in "-o show job 7") cat {path}/job;; "show config") cat {path}/config;; *) exit 9;; esac'


def test_it_is_asked_in_seconds_and_plain_words(path: Path) -> None:
    put_program(path, f'[ "$LC_ALL$SLURM_TIME_FORMAT" = C%s ] || exit 8\n{answers(path)}')
    assert ask() == RUNNING


def test_no_scontrol(path: Path) -> None:
    assert ask() == Unknown("scontrol could not be started: No such file or directory")


def test_one_that_hangs_is_not_waited_for(path: Path) -> None:
    put_program(path, "sleep 600 & wait")
    begun = time.monotonic()
    assert ask(0.3) == Unknown("scontrol gave no answer within 0.3 s and was killed")
    assert time.monotonic() - begun < 5


def test_one_that_fails_is_quoted(path: Path) -> None:
    put_program(path, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert ask() == Unknown("scontrol ended with 1: slurm_load_jobs error: Invalid job id specified")


def test_one_that_babbles_is_cut(path: Path) -> None:
    put_program(path, "exec yes")
    said = ask()
    assert isinstance(said, Unknown)
    assert "printed more than" in said.why


def test_one_that_was_hit_by_the_signal_of_all_is_asked_again(path: Path) -> None:
    """Slurm signals every process of a step: what is started in that moment, too."""
    put_program(path, f'mkdir {path}/"$2" 2>/dev/null && kill -TERM $$\n{answers(path)}')
    assert ask() == RUNNING


def test_one_that_is_always_hit(path: Path) -> None:
    put_program(path, "kill -TERM $$")
    said = asyncio.run(run_scontrol(("ping",), lambda pids: None))
    assert said == Unknown("scontrol ended with -15: it does not say why")
    assert os.path.exists(path / "scontrol")


def test_a_notice_to_all_processes_of_a_step_hits_no_child(path: Path) -> None:
    """Red when ``bounded_child`` does not block it: the program is run twice, and a resume hook would have failed."""
    put_program(path, f"echo run >> {path}/runs\nkill -USR1 $$\nkill -USR2 $$\necho yes")
    assert asyncio.run(run_scontrol(("ping",), lambda pids: None)) == "yes\n"
    assert (path / "runs").read_text() == "run\n"
