"""The labelled logs: the class of the root, from exit status and last lines alone.

The originals also hold kernel logs; those whose cause stands only there are not among these, and three where the text
alone says less than the label are named below with the reason.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from remuster.health.classes import find
from remuster.health.evidence import NodeEvidence, RankExit, RoundEvidence
from remuster.health.tail import last_lines
from remuster.health.verdict import Verdict, judge

LOGS = Path(__file__).with_name("logs")
with (LOGS / "labels.csv").open() as labels:
    CASES = list(csv.DictReader(labels))

# file: (class from text alone, why the label says more)
BEYOND_TEXT = {
    "20-xid74-nvlink.log": ("gpu_app_fault", "the NVLink error stands in a kernel line (Xid 74)"),
    "65-ecc-contained.log": ("gpu_ecc", "that the error was contained stands in a kernel line (Xid 94)"),
    "m02-host-oom-rank0/": (
        "killed_unknown",
        "the out-of-memory killer speaks only in the kernel log; the rank is right",
    ),
}

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


def ends(case: dict[str, str], prefix: str = "", ending: str = "\n") -> tuple[RankExit, ...]:
    path, statuses = LOGS / case["file"], [int(status) for status in case["exit"].split(",")]
    files = [path / f"rank{i}.log" for i in range(len(statuses))] if path.is_dir() else [path]
    tails = []
    for file in files:
        lines = file.read_bytes().decode("utf-8", "replace").removesuffix("\n").split("\n")
        tails.append(last_lines("".join(prefix + line + ending for line in lines).encode()))
    return tuple(RankExit(i, i, 100 + i, s, float(i), tail=tails[i]) for i, s in enumerate(statuses))


def verdict_on(exits: tuple[RankExit, ...]) -> Verdict:
    return judge(RoundEvidence(3, (NodeEvidence("node-a", exits, 7),), (("node-a", len(exits)),)))


def expected(case: dict[str, str]) -> str:
    return BEYOND_TEXT.get(case["file"], (case["root_cause_class"], ""))[0]


@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_the_root_class_is_the_label(case: dict[str, str]) -> None:
    verdict = verdict_on(ends(case))
    assert verdict.cls == expected(case), verdict.sentence
    if case["root_rank"]:
        assert verdict.rank == int(case["root_rank"])
    if case["file"] not in BEYOND_TEXT:
        assert case["retryable"] in find(verdict.cls).retryable.split("/")
        assert case["node_fault"] in find(verdict.cls).node_fault.split("/")


def test_accuracy_over_all_labels(capsys: pytest.CaptureFixture[str]) -> None:
    right = [case["file"] for case in CASES if verdict_on(ends(case)).cls == case["root_cause_class"]]
    with capsys.disabled():
        print(f"\nroot class exact: {len(right)} of {len(CASES)}; beyond text: {len(BEYOND_TEXT)}")
    assert len(right) == len(CASES) - len(BEYOND_TEXT)


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_prefixes_of_launchers_and_shippers_change_nothing(prefix: str) -> None:
    wrong = [case["file"] for case in CASES if verdict_on(ends(case, prefix)).cls != expected(case)]
    assert not wrong


@pytest.mark.parametrize("ending", ["\r\n", "\x1b[0m\n", "\n\x1b[31m\x1b[1m\n"], ids=["crlf", "colour", "colour lines"])
def test_line_ends_and_colours_change_nothing(ending: str) -> None:
    wrong = [case["file"] for case in CASES if verdict_on(ends(case, ending=ending)).cls != expected(case)]
    assert not wrong


def test_an_error_file_is_enough_without_any_line() -> None:
    from remuster.health.evidence import ErrorFile

    error = ErrorFile(
        "ValueError: boom", 'Traceback (most recent call last):\n  File "t.py", line 3, in f\nValueError: boom'
    )
    verdict = verdict_on((RankExit(0, 0, 9, -6, 1.0, error=error),))
    assert (verdict.cls, verdict.exception) == ("user_exception", "ValueError")
