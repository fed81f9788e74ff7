"""The labelled logs: the class of the root from exit status, last lines, and what of a kernel log is among them.

Ten of the files are, or hold, lines of a kernel log; one directory has a kernel log and process ids of its own.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from remuster.health.classes import find
from remuster.health.evidence import NodeEvidence, RankExit, RoundEvidence
from remuster.health.observed import KernelLine
from remuster.health.tail import last_lines
from remuster.health.verdict import Verdict, judge

LOGS = Path(__file__).with_name("logs")
with (LOGS / "labels.csv").open() as labels:
    CASES = list(csv.DictReader(labels))

PREFIXES = {
    "plain": "",
    "rank": "[rank7]: ",
    "torchrun": "[default3]:",
    "containerd": "2026-03-11T04:02:00.123456789Z stderr F ",
    "clock": "2026-03-11 04:02:00,123 ",
    "syslog": "Mar 11 04:12:31 node-a4 python[30517]: ",
    "srun": "3: ",
    "compose": "worker-1  | ",
    "mpirun": "[1,3]<stderr>:",
}


# What a log that is all kernel lines may be, and what its exit status is not: nobody can tell by the status.
KERNEL_ONLY = (
    "13-host-oom-dmesg.log", "17-xid79-dmesg.log", "18-xid31-dmesg.log", "19-xid48-63-dmesg.log", "21-xid119-gsp.log",
    "50-mce.log", "53-nvswitch-sxid.log", "81-xid120-154-reset.log",
)  # fmt: skip


def ends(case: dict[str, str], prefix: str = "", ending: str = "\n") -> tuple[RankExit, ...]:
    path, statuses = LOGS / case["file"], [int(status) for status in case["exit"].split(",")]
    files = [path / f"rank{i}.log" for i in range(len(statuses))] if path.is_dir() else [path]
    tails = []
    for file in files:
        lines = file.read_bytes().decode("utf-8", "replace").removesuffix("\n").split("\n")
        tails.append(last_lines("".join(prefix + line + ending for line in lines).encode()))
    pids = path / "pids.txt"
    known = dict(line.split() for line in pids.read_text().splitlines()) if pids.exists() else {}
    return tuple(
        RankExit(i, i, int(known.get(f"rank{i}", 100 + i)), status, float(i), tail=tails[i])
        for i, status in enumerate(statuses)
    )


def kernel(case: dict[str, str]) -> tuple[KernelLine, ...]:
    log = LOGS / case["file"] / "dmesg.log"
    return tuple(KernelLine(0.0, line) for line in log.read_text().splitlines()) if log.exists() else ()


def verdict_on(exits: tuple[RankExit, ...], lines: tuple[KernelLine, ...] = ()) -> Verdict:
    return judge(RoundEvidence(3, (NodeEvidence("node-a", (*exits, *lines), 7),), (("node-a", len(exits)),)))


@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_the_root_class_is_the_label(case: dict[str, str]) -> None:
    verdict = verdict_on(ends(case), kernel(case))
    assert verdict.cls == case["root_cause_class"], verdict.sentence
    if case["root_rank"]:
        assert verdict.rank == int(case["root_rank"])
    assert case["retryable"] in find(verdict.cls).retryable.split("/")
    assert case["node_fault"] in find(verdict.cls).node_fault.split("/")


@pytest.mark.parametrize("file", KERNEL_ONLY)
def test_a_kernel_log_as_a_file_of_its_own_says_the_same(file: str) -> None:
    """The rank wrote nothing: with its status and the node's kernel log the answer is that of both in one file."""
    case = next(case for case in CASES if case["file"] == file)
    (end,) = ends(case)
    lines = tuple(KernelLine(0.0, line) for line in (LOGS / file).read_text().splitlines())
    verdict = verdict_on((end._replace(tail=()),), lines)
    assert verdict.cls == case["root_cause_class"]
    assert ("kernel log", "node-a") in {(proof.source, proof.where) for proof in verdict.evidence}
    alone = verdict_on((), lines)  # nor is a status needed, but for a bus error or a kill that it explains
    assert alone.cls == case["root_cause_class"] or file == "13-host-oom-dmesg.log"
    assert verdict_on((end._replace(status=0, tail=()),), lines).cls == "success"


def test_all_labels(capsys: pytest.CaptureFixture[str]) -> None:
    right = [case["file"] for case in CASES if verdict_on(ends(case), kernel(case)).cls == case["root_cause_class"]]
    with capsys.disabled():
        print(f"\nroot class exact: {len(right)} of {len(CASES)}")
    assert len(right) == len(CASES) == 74


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_prefixes_of_launchers_and_shippers_change_nothing(prefix: str) -> None:
    found = {case["file"]: verdict_on(ends(case, prefix), kernel(case)).cls for case in CASES}
    assert found == {case["file"]: case["root_cause_class"] for case in CASES}


@pytest.mark.parametrize("ending", ["\r\n", "\x1b[0m\n", "\n\x1b[31m\x1b[1m\n"], ids=["crlf", "colour", "colour lines"])
def test_line_ends_and_colours_change_nothing(ending: str) -> None:
    found = {case["file"]: verdict_on(ends(case, ending=ending), kernel(case)).cls for case in CASES}
    assert found == {case["file"]: case["root_cause_class"] for case in CASES}


def test_an_error_file_is_enough_without_any_line() -> None:
    from remuster.health.evidence import ErrorFile

    error = ErrorFile(
        "ValueError: boom", 'Traceback (most recent call last):\n  File "t.py", line 3, in f\nValueError: boom'
    )
    verdict = verdict_on((RankExit(0, 0, 9, -6, 1.0, error=error),))
    assert (verdict.cls, verdict.exception) == ("user_exception", "ValueError")
