"""A command line that torchrun accepts starts the same workers here: same ranks, arguments, environment, exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dropin.conftest import Ended
from dropin.differences import DIFFERENCES, in_our_order, unknown
from dropin.programs import TELL, Stage
from dropin.rows import C10D, ETCD, ONE_NODE, RARE, ROWS, STATIC, Row

SHARED = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")  # variables that all ranks of a run must agree on


# Two of three, and those that are seldom seen, are played in the drills: make test has ten minutes.
LATER = [row for i, row in enumerate(ROWS) if i % 3]
WITH_DRILLS = (*ROWS[::3], *(pytest.param(row, marks=pytest.mark.drill) for row in (*LATER, *RARE)))
MEETING, LONG = [row for row in ROWS if row.meets], [row for row in RARE if row.meets]
MEETING_WITH_DRILLS = (*MEETING[:2], *(pytest.param(row, marks=pytest.mark.drill) for row in (*MEETING[2:], *LONG)))


@pytest.mark.parametrize("row", WITH_DRILLS, ids=str)
def test_the_same_workers_with_the_same_environment(row: Row, stage: Stage, torchrun: Ended) -> None:
    ours = stage.prepare("remuster", row)
    our_codes = ours.run()
    theirs, their_codes = torchrun(row)
    assert their_codes == [0] * row.nodes, theirs.log()
    assert our_codes == [0] * row.nodes, ours.log()
    told, heard = theirs.said(), ours.said()
    assert sorted(told) == list(range(row.world)), theirs.log()
    assert sorted(heard) == list(range(row.world)), ours.log()
    expected = told if row.placed else in_our_order(told, heard)
    found = [f"rank {rank}: {what}" for rank in sorted(told) for what in unknown(expected[rank], heard[rank])]
    assert not found, "\n".join(found)
    for name in SHARED:
        assert len({said["env"][name] for said in heard.values()}) == 1, f"our ranks differ in {name}"


@pytest.mark.parametrize("row", MEETING_WITH_DRILLS, ids=str)
def test_the_ranks_meet_by_that_environment(row: Row, stage: Stage) -> None:
    ours = stage.prepare("remuster", row)
    ours.script("meet", "")
    assert ours.run() == [0] * row.nodes, ours.log()
    sums = {rank: said["sum"] for rank, said in ours.said().items()}
    assert sums == dict.fromkeys(range(row.world), sum(range(row.world))), ours.log()


def test_a_failing_rank_gives_the_command_its_code_where_torchrun_gives_one(stage: Stage) -> None:
    row = Row("a rank fails", "torchrun --nproc_per_node=2 train.py")
    codes = {}
    for name in ("torchrun", "remuster"):
        program = stage.prepare(name, row)
        program.script("train.py", "import os, sys\nsys.exit(7 if os.environ['RANK'] == '1' else 0)\n")
        codes[name] = program.run()
    assert codes == {"torchrun": [1], "remuster": [7]}


def test_a_script_by_run_path_and_the_error_file_it_leaves(stage: Stage) -> None:
    """Its process is made in another way, so that its command line and descriptors are not compared."""
    row = Row("run-path", "torchrun --run-path --no-python train.py --lr 3 '${local_rank}'", world=1)
    ranks, errors = [], []
    for name in ("torchrun", "remuster"):
        program = stage.prepare(name, row)
        program.script("train.py", f"{TELL}\n    raise ValueError('boom')\n")
        assert program.run() == [1], program.log()
        said = program.said()[0]
        ranks.append({fact: said[fact] for fact in ("argv", "cwd", "env")})
        path = said["env"]["TORCHELASTIC_ERROR_FILE"].replace("@FOLDER", str(program.folder))
        errors.append(json.loads(Path(path).read_text())["message"])
    assert unknown(*ranks) == []
    assert [error["message"] for error in errors] == ["ValueError: boom"] * 2
    assert errors[0].keys() == errors[1].keys()
    assert errors[0]["extraInfo"].keys() == errors[1]["extraInfo"].keys()
    assert errors[1]["extraInfo"]["py_callstack"].rstrip().endswith("\nValueError: boom")


def test_there_are_enough_rows_of_each_kind() -> None:
    assert len({row.line for row in ROWS}) >= 20
    assert all(len(kind) >= 2 and any(row.meets for row in kind) for kind in (ONE_NODE, C10D, STATIC, ETCD))


ENV = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "@PORT",
    "TORCHELASTIC_RUN_ID": "J",
    "PET_NNODES": "2",
}
SAID = {"argv": ["train.py"], "cwd": "/", "env": ENV}


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"RANK": "1"}, False),
        ({"PET_NNODES": None}, False),
        ({"NEW": "1"}, False),
        ({"MASTER_PORT": "40000"}, False),
        ({"MASTER_ADDR": "127.0.0.2"}, False),
        ({"TORCHELASTIC_RUN_ID": "K"}, False),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, False),
        ({"TORCHELASTIC_ERROR_FILE": "/a/attempt_0/1/error.json"}, False),
        ({"REMUSTER_ROUND": "1"}, True),
    ],
)
def test_a_difference_that_is_not_on_the_list_is_seen(change: dict[str, str | None], known: bool) -> None:
    env = {name: value for name, value in (ENV | change).items() if value is not None}
    assert unknown(SAID, SAID) == []
    assert (unknown(SAID, SAID | {"env": env}) == []) == known
    assert unknown(SAID, SAID | {"cwd": "/tmp"}) == ["cwd: torchrun '/', ours '/tmp'"]


def test_each_difference_has_a_reason() -> None:
    assert all(difference.reason for difference in DIFFERENCES)
    assert len({difference.name for difference in DIFFERENCES}) == len(DIFFERENCES)


def _node(name: str, master: str, *ranks: int) -> dict[int, dict[str, object]]:
    """Return what the workers of one node of two say."""
    places = ((rank, {"RANK": str(rank), "GROUP_RANK": str(rank // 2), "ROLE_RANK": str(rank)}) for rank in ranks)
    of_node = {"NODE": name, "MASTER_ADDR": master}
    return {rank: {"env": place | of_node | {"LOCAL_RANK": str(rank % 2)}} for rank, place in places}


def test_another_order_of_nodes_is_no_difference_and_another_order_of_ranks_is() -> None:
    theirs = {**_node("a", "a", 0, 1), **_node("b", "a", 2, 3)}
    ours = {**_node("b", "b", 0, 1), **_node("a", "b", 2, 3)}
    assert in_our_order(theirs, theirs) == theirs
    assert in_our_order(theirs, ours) == ours
    mixed = {**_node("b", "b", 0, 3), **_node("a", "b", 2, 1)}
    assert in_our_order(theirs, mixed) != mixed
    wrong = {**_node("b", "a", 0, 1), **_node("a", "a", 2, 3)}
    assert in_our_order(theirs, wrong) != wrong
