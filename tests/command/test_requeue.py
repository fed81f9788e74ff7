"""A requeue under Slurm, told by the real command: the same job id, one more SLURM_RESTART_COUNT, and no store left.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Node, Place

from remuster.rendezvous.mirrored import GAP

pytestmark = pytest.mark.process

STEP = {
    "ENVIRONMENT": "BATCH",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_NNODES": "1",
    "SLURM_NTASKS": "1",
    "SLURM_STEP_NODELIST": "node1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
RUN = "4711.0"
SECOND = {  # node of a step of two
    "SLURM_NODEID": "1",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
}
FORGETS = "a requeue begins anew, with round 1 and a whole budget"
# Says which attempt and round it is and where it resumes, publishes if it is told to, and ends as it is told.
TRAINER = """
import os, sys
from pathlib import Path
from remuster import checkpoint, resume_point
n, point = int(os.environ["REMUSTER_ROUND"]), resume_point()
(Path(sys.argv[1]) / f"round-{n}").write_text(f"{os.environ['REMUSTER_ATTEMPT']} {point.step if point else 'nothing'}")
ends = dict(zip(map(int, sys.argv[2].split(",")), sys.argv[3].split(","), strict=True))[n]
if ends.startswith("+"):
    with checkpoint.publish(n, gather=lambda text: [text], rank=0) as p:
        p.path("state").write_text("x")
sys.exit(int(ends))
"""
SICK = ("--exit-code-map", "14=gpu_lost", "--retry-budget", "hardware=1", "--node-check", "off")


def launch(place: Place, restarts: int, rounds: str, ends: str, *options: str | Path) -> Node:
    """Start the command as Slurm does after so many requeues."""
    env = STEP | ({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {})
    return place.command(*SICK, *options, place.script("t.py", TRAINER), place.desk, rounds, ends, env=env)


def job(directory: Path) -> dict[str, Any]:
    return json.loads((directory / ".remuster" / RUN / "job.json").read_text())["job"]


def test_budget_attempts_and_rounds_go_on_after_a_requeue(place: Place) -> None:
    """Red when the launch id leaves the restart count out (environment.py), and when no copy is read (earlier.py)."""
    directory = place.folder / "kept"
    kept = ("--checkpoint-dir", directory)
    first = launch(place, 0, "1,2", "14,14", *kept)
    assert first.exit_code() == 75, first.say()  # hardware: worth a requeue, and the one retry is spent
    assert FORGETS not in first.err
    assert (job(directory)["launch"], job(directory)["round"]) == ("4711.0.0", 2)

    spent = launch(place, 1, str(2 + GAP), "14", *kept)
    assert spent.exit_code() == 75, spent.say()  # no new retry for a new launch
    assert job(directory)["spent"] == [["hardware", 1]]

    again = launch(place, 2, f"{2 + 2 * GAP},{3 + 2 * GAP}", "+14,14", *kept)
    assert again.exit_code() == 75, again.say()
    said = [(place.desk / f"round-{n + 2 * GAP}").read_text() for n in (2, 3)]
    assert said == ["0 nothing", f"1 {2 + 2 * GAP}"]  # the step that was published gave the retry back, once
    assert (job(directory)["launch"], job(directory)["past"]) == ("4711.0.2", ["4711.0.1", "4711.0.0"])

    last = launch(place, 3, str(3 + 3 * GAP), "0", *kept)
    assert last.exit_code() == 0, last.say()
    assert (place.desk / f"round-{3 + 3 * GAP}").read_text() == f"0 {2 + 2 * GAP}"


def test_a_failure_that_no_requeue_helps_with_ends_with_another_code(place: Place) -> None:
    """Red when a user's error ends with policy.REQUEUE. A batch script requeues on 75 and on nothing else."""
    for ends, code in (("5", 5), ("2", 2), ("75", 1)):
        node = launch(place, 0, "1,2", f"{ends},{ends}")
        assert node.exit_code() == code, node.say()


def test_what_a_requeue_forgets_is_said_once_by_the_first_node(place: Place) -> None:
    """Red when it is said without a scheduler or a batch job, with a directory, and when every node says it."""
    node = launch(place, 0, "1", "0")
    assert (node.exit_code(), node.err.count(FORGETS)) == (0, 1), node.say()
    for env, options in (
        ({}, ()),
        (STEP | {"ENVIRONMENT": ""}, ()),
        (STEP | SECOND, ("--standalone",)),
        (STEP, ("--checkpoint-dir", place.folder / "kept")),
    ):
        node = place.command(*options, place.script("t.py", "pass"), env=env)
        assert (node.exit_code(), FORGETS in node.err) == (0, False), node.say()
