"""Who ends a Slurm job whose batch script died with its node: a table, and real programs in scontrol's place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_slurm import put_program

from remuster.agent.bereft import Seen, decide, end_job
from remuster.agent.slurm_job import SlurmJob
from remuster.agent.spec import SlurmStep

STEP = SlurmStep("812", "3", 0, 1)
RUNNING = SlurmJob("RUNNING", nodes="node[2-3]", may_requeue=True, batch_host="node1")
LEFT = frozenset({"node2", "node3"})
LOST = Seen(RUNNING, LEFT, frozenset({"3"}))
CANCEL, REQUEUE = ("scancel", "812"), ("scontrol", "requeue", "812")


@pytest.mark.parametrize(
    ("code", "seen", "command"),
    [
        (0, LOST, CANCEL),
        (1, LOST, CANCEL),
        (75, LOST, REQUEUE),
        (75, LOST._replace(job=RUNNING._replace(may_requeue=False)), CANCEL),
        (75, LOST._replace(steps=frozenset()), REQUEUE),
        (75, LOST._replace(nodes=LEFT | {"node1"}), ()),  # its script will see to it
        (75, LOST._replace(nodes=frozenset()), ()),
        (0, LOST._replace(steps=frozenset({"3", "4"})), ()),  # another srun of it goes on
        (75, LOST._replace(job=RUNNING._replace(batch_host="")), ()),  # of salloc
        (75, LOST._replace(job=RUNNING._replace(state="COMPLETING")), ()),
    ],
)
def test_what_ends_it(code: int, seen: Seen, command: tuple[str, ...]) -> None:
    assert decide(STEP, code, seen) == command


STEPS = (
    "StepId=812.batch UserId=0 State=RUNNING NodeList=node1 Name=batch\n"
    "StepId=812.extern UserId=0 State=RUNNING NodeList=node[1-3] Name=extern\n"
    "StepId=812.3 UserId=0 State=RUNNING NodeList=node[1-3] Name=remuster\n"
)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What was said to Slurm's programs, the only ones that are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = tmp_path / "told"
    (tmp_path / "steps").write_text(STEPS)
    (tmp_path / "job").write_text(
        "JobId=812 JobName=t UserId=root(0) JobState=RUNNING Reason=None Requeue=1 Restarts=0 BatchFlag=1 "
        "NodeList=node[2-3] BatchHost=node1\n"
    )
    answers = (
        f'"-o show job 812") cat {tmp_path}/job;; "show config") ;; '
        f'"-o show step 812") cat {tmp_path}/steps;; *) echo "${{0##*/}} $*" >> {said}; '
        f"if [ -e {tmp_path}/deny ]; then echo denied >&2; exit 1; fi;;"
    )
    for name in ("scontrol", "scancel"):
        put_program(tmp_path, f'case "$*" in {answers} esac', name)
    return said


def end(code: int) -> str:
    said: list[str] = []
    asyncio.run(end_job(STEP, code, lambda pids: None, said.append))
    return "\n".join(said)


def test_slurm_is_told_once(told: Path) -> None:
    why = "node1, which ran the batch script, is lost, and nobody else would end the job: "
    assert end(75) == f"{why}scontrol requeue 812"
    assert end(0) == f"{why}scancel 812"
    assert told.read_text() == "scontrol requeue 812\nscancel 812\n"


def test_slurm_refuses(told: Path) -> None:
    (told.parent / "deny").touch()
    assert end(0).endswith("scancel ended with 1: denied")


def test_another_step_goes_on(told: Path) -> None:
    (told.parent / "steps").write_text(STEPS.replace("812.extern", "812.4"))
    assert end(0) == ""
    assert not told.exists()


def test_without_slurms_programs(told: Path) -> None:
    (told.parent / "scancel").unlink()
    assert "scancel could not be started" in end(0)
    (told.parent / "scontrol").unlink()
    assert end(0) == ""
