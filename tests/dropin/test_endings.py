"""What does not end well: the same rank is blamed, in directories of the same names; nothing is run of a
line that means nothing. Both programs, side by side, so it is slow.
"""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest
from command.processes import until
from dropin.endings import ENDINGS, REFUSALS, Ending, Refusal
from dropin.programs import PATIENCE_S, Program, Stage
from dropin.rows import Row

pytestmark = pytest.mark.drill

WORLD = 2
# Two programs make a name of their own out of an id: the rest is random.
LINE = "torchrun --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --rdzv_id=the-id --log-dir=logs"
BLAMED = re.compile(
    r"rank +: (\d+) \(local_rank: (\d+)\)\n +exitcode +: (-?\d+) \(pid: \d+\) *(\(SIG\w+\))?\n"
    r" +error_file: (?:<N/A>|.*/(attempt_\d+/\d+/error.json))\n"
)
OUR_FILES = re.compile(
    r"[^/]+/(events.jsonl|summary.json|attempts(/.*)?|bundles(/.*)?|attempt_\d+/\d+/std(out|err).log)"
)


def both(stage: Stage, row: Row, text: str | None) -> tuple[Program, Program]:
    """Return a run of torchrun's and one of ours, to be started, with ``text`` as what ranks do."""
    programs = stage.prepare("torchrun", row), stage.prepare("remuster", row)
    for program in programs:
        if text is not None:
            program.script("train.py", text)
    return programs


def blamed(program: Program) -> tuple[str, ...]:
    """Return what the report says of the rank at which it began."""
    found = BLAMED.search(program.log().partition("Root Cause")[2])
    assert found, program.log()
    return found.groups("")


def tree(program: Program) -> set[str]:
    """Return what is in the log directory, with the run's own directory under one name."""
    root: Path = program.work / "logs"
    (run,) = root.iterdir()
    assert re.fullmatch(r"the-id_\w{8}", run.name), run
    return {f"the-id_/{path.relative_to(run)}" for path in run.rglob("*")}


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_the_same_rank_is_blamed_and_the_logs_lie_in_the_same_places(ending: Ending, stage: Stage) -> None:
    row = Row(ending.name, f"{LINE} {ending.more} train.py")
    theirs, ours = both(stage, row, ending.text)
    for program in (theirs, ours):
        program.start()
    for program in (theirs, ours) if ending.signum else ():
        until(lambda p=program: len([*p.work.glob("up-*")]) == WORLD, "all ranks stand", PATIENCE_S, program.log)
        program.signal(ending.signum)
    assert theirs.codes() == [ending.torchruns], theirs.log()
    assert ours.codes() == [ending.code], ours.log()

    expected = tree(theirs)
    assert {f"the-id_/attempt_{n}" for n in range(ending.attempts)} <= expected, expected
    assert expected - tree(ours) == set(), "torchrun has it and we have not"
    assert {path for path in tree(ours) - expected if not OUR_FILES.fullmatch(path)} == set(), "only we have it"

    if ending.signum:
        got = [sorted(path.name for path in program.work.glob("got-*")) for program in (theirs, ours)]
        assert got[0] == got[1] == [f"got-{rank}-{int(ending.signum)}" for rank in range(WORLD)]
    elif ending.torchruns and ending.name != "all ranks fail":  # there torchrun blames whom it sees first
        assert blamed(theirs) == blamed(ours), f"{theirs.log()}\n{ours.log()}"


def test_what_record_wrote_is_in_both_reports(stage: Stage) -> None:
    (ending,) = (ending for ending in ENDINGS if ending.name == "@record")
    for program in both(stage, Row("a report", f"{LINE} train.py"), ending.text):
        program.run()
        assert "ValueError: the loss is a carrot" in program.log().partition("Root Cause")[2], program.log()


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_line_that_means_nothing_starts_nothing_in_either(refusal: Refusal, stage: Stage) -> None:
    theirs, ours = both(stage, Row(refusal.name, refusal.line, env=refusal.env), None)
    for program in (theirs, ours):
        program.start()
    assert theirs.codes() == [refusal.torchruns], theirs.log()
    assert ours.codes() == [2], ours.log()
    assert theirs.said() == ours.said() == {}


def test_an_interpreter_of_ones_own(stage: Stage) -> None:
    row = Row("echo", "torchrun --nproc_per_node=2 train.py 1 '' '$HOME'", env={"PYTHON_EXEC": "/bin/echo"})
    for program in both(stage, row, None):
        assert program.run() == [0], program.log()
        assert program.log().splitlines().count("-u train.py 1  $HOME") == WORLD, program.log()


def test_a_doubled_dollar_is_kept_where_torchrun_loses_one(stage: Stage) -> None:
    row = Row("a price", "torchrun train.py 'cost: 5$$'", world=1)
    argv = {}
    for program in both(stage, row, None):
        assert program.run() == [0], program.log()
        argv[program.name] = program.said()[0]["argv"][1:]
    assert argv == {"torchrun": ["cost: 5$"], "remuster": ["cost: 5$$"]}


def test_a_scripts_argument_is_no_flag_cut_short(stage: Stage) -> None:
    """Where several of torchrun's flags begin like an argument of the script, it refuses the line."""
    row = Row("a directory", "torchrun train.py --d=/tmp", world=1)
    codes = {}
    for program in both(stage, row, None):
        codes[program.name] = program.run()
    assert codes == {"torchrun": [2], "remuster": [0]}
    assert program.said()[0]["argv"] == ["train.py", "--d=/tmp"]


def test_an_exit_status_that_schedulers_use_is_tried_again_for_free(stage: Stage) -> None:
    """138 is 128 + SIGUSR1: to torchrun a failure like any other, here a node that is wanted back."""
    text = "import sys\nsys.exit(138)\n"
    for program, code, attempts in zip(both(stage, Row("138", f"{LINE} train.py"), text), (1, 75), (1, 6), strict=True):
        assert program.run() == [code], program.log()
        assert len(list(program.work.glob("logs/*/attempt_*"))) == attempts


def test_a_killed_launcher_leaves_its_ranks_in_torchrun_and_none_in_ours(stage: Stage) -> None:
    (ending,) = (ending for ending in ENDINGS if ending.signum)
    theirs, ours = both(stage, Row("KILL", f"{LINE} train.py"), ending.text)
    for program in (theirs, ours):
        program.start()
        until(lambda p=program: len([*p.work.glob("up-*")]) == WORLD, "all ranks stand", PATIENCE_S, program.log)
        program.signal(signal.SIGKILL)
    until(lambda: not ours.pids(), "nothing of ours is left", show=ours.log)
    until(lambda: len(theirs.pids()) == WORLD, "only ranks of torchrun's are left", show=theirs.log)


def test_a_prefix_of_one_flag_in_two_spellings(stage: Stage) -> None:
    codes = {}
    for program in both(stage, Row("nproc", "torchrun --nproc 2 train.py"), None):
        codes[program.name] = program.run()
    assert codes == {"torchrun": [2], "remuster": [0]}
    assert sorted(program.said()) == [0, 1]


def test_ranks_are_numbered_within_their_role_too(stage: Stage) -> None:
    line = "torchrun --nnodes=2 --node_rank=@R --role role-@R --master_addr=127.0.0.1 --master_port=@PORT train.py"
    roles = {}
    for program in both(stage, Row("roles", line, nodes=2), None):
        assert program.run() == [0, 0], program.log()
        names = ("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE")
        roles[program.name] = [tuple(said["env"][name] for name in names) for _, said in sorted(program.said().items())]
    assert roles["remuster"] == roles["torchrun"] == [("role-0", "0", "1"), ("role-1", "0", "1")]


DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, lambda *_: open("heard-" + os.environ["RANK"], "w").close())
open("up-" + os.environ["RANK"], "w").close()
while True:
    time.sleep(60)
"""


def up(program: Program) -> None:
    program.start()
    until(lambda: len([*program.work.glob("up-*")]) == WORLD, "all ranks stand", PATIENCE_S, program.log)


def test_ranks_that_do_not_hear_have_the_grace_that_was_given(stage: Stage) -> None:
    for program, code in zip(
        both(stage, Row("deaf", f"{LINE} --shutdown-timeout 2 train.py"), DEAF), (1, 143), strict=True
    ):
        up(program)
        began = time.monotonic()
        program.signal(signal.SIGTERM)
        assert program.codes() == [code], program.log()
        assert 2 <= time.monotonic() - began < 20, program.log()


def test_a_user_signal_ends_torchrun_and_reaches_our_ranks(stage: Stage) -> None:
    theirs, ours = both(stage, Row("USR1", f"{LINE} train.py"), DEAF)
    for program in (theirs, ours):
        up(program)
        program.signal(signal.SIGUSR1)
    until(lambda: len([*ours.work.glob("heard-*")]) == WORLD, "our ranks hear it", show=ours.log)
    until(lambda: len(theirs.pids()) == WORLD, "only ranks of torchrun's are left", show=theirs.log)
    assert [*theirs.work.glob("heard-*")] == []
    assert len(ours.pids()) > WORLD, ours.log()
    ours.close()  # the run id is that of others here


def test_the_error_is_left_for_whoever_started_the_command(stage: Stage) -> None:
    (ending,) = (ending for ending in ENDINGS if ending.name == "@record")
    left = {}
    for program in both(
        stage, Row("nested", f"{LINE} train.py", env={"TORCHELASTIC_ERROR_FILE": "parent.json"}), ending.text
    ):
        assert program.run() == [1], program.log()
        left[program.name] = json.loads((program.work / "parent.json").read_text())["message"]
        del left[program.name]["extraInfo"]
    assert left["remuster"] == left["torchrun"] == {"message": "ValueError: the loss is a carrot", "errorCode": 1}
