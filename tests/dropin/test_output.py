"""What torchrun shows of its workers' output, and which files it keeps: ours does, for the same command lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from dropin.programs import Program, Stage
from dropin.rows import Row

SAY = """import os, sys
for word in ("alpha", "beta", "ga,mma"):
    for stream, name in ((1, "out"), (2, "err")):
        os.write(stream, f"say {name} {word} {os.environ['RANK']}\\n".encode())
"""
START = "torchrun --nproc-per-node=2 --log_dir logs"
RANK = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "}
ROWS = (
    Row("streams by rank", f"{START} -r 0:1,1:2 -t 1:1 train.py"),
    Row("all tee'd, a prefix of one's own", f"{START} --redirect=3 --tee=3 train.py", env=RANK),
    Row("copies of lines", f"{START} --tee 3 --duplicate_stdout_filters beta,ga,,mma train.py"),
)
RARE = (
    Row("one rank is shown", f"{START} -t 0:3,1:2 --local_ranks_filter=1 train.py"),
    Row("no files", "torchrun --nproc-per-node=2 --log_dir=/dev/null -r3 train.py"),
)
WITH_DRILLS = (*ROWS, *(pytest.param(row, marks=pytest.mark.drill) for row in RARE))


def shown(program: Program) -> list[str]:
    return sorted(line for line in (program.folder / "log-0").read_text().splitlines() if "say " in line)


def kept(program: Program) -> dict[str, list[str]]:
    """Return what the files of the attempt hold, those that hold anything; lines of several ranks in no order."""
    files: dict[str, list[str]] = {}
    for path in Path(program.work, "logs").glob("*/attempt_0/**/*.log"):
        lines = sorted(path.read_text().splitlines())
        if lines:
            files[str(path).partition("/attempt_0/")[2]] = lines
    return files


@pytest.mark.parametrize("row", WITH_DRILLS, ids=str)
def test_the_same_lines_on_the_console_and_no_file_less(row: Row, stage: Stage) -> None:
    """Red when ``views`` shows a redirected stream, and when ``prefix`` puts anything else before a line."""
    programs = [stage.prepare(name, row) for name in ("torchrun", "remuster")]
    for program in programs:
        program.script("train.py", SAY)
        program.start()
    codes = [program.codes() for program in programs]
    assert codes == [[0], [0]], "\n".join(program.log() for program in programs)
    theirs, ours = programs
    assert shown(theirs), theirs.log()
    assert shown(ours) == shown(theirs)
    left = kept(ours)
    for name, lines in kept(theirs).items():
        assert left[name] == lines, name
    if "/dev/null" not in row.line:
        assert {"0/stdout.log", "0/stderr.log", "1/stdout.log", "1/stderr.log"} <= set(left)  # always whole
