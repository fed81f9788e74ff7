"""Labelled logs as evidence of a round: what tests of the reading share.

A case is one file, or a directory with a file for each rank. A rank that ended by SIGTERM while another ended by itself
was stopped by its agent, and the agent would say so.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remuster.health.evidence import NodeEvidence, RankExit, RoundEvidence
from remuster.health.tail import last_lines
from remuster.health.verdict import Verdict, judge

HEALTH = Path(__file__).parent / "health"
STOPPED = frozenset({-15, 143})


@dataclass(frozen=True)
class Case:
    """One row of a table of labels."""

    path: Path
    cls: str
    retryable: str
    node_fault: str
    root_rank: str
    statuses: tuple[int, ...]

    def texts(self) -> list[str]:
        files = [self.path / f"rank{i}.log" for i in range(len(self.statuses))] if self.path.is_dir() else [self.path]
        return [file.read_bytes().decode("utf-8", "replace") for file in files]


def cases(folder: str) -> list[Case]:
    """Return the cases of a folder below tests/health."""
    with (HEALTH / folder / "labels.csv").open() as labels:
        return [
            Case(
                HEALTH / folder / row["file"], row["root_cause_class"], row["retryable"], row["node_fault"],
                row["root_rank"], tuple(int(status) for status in row["exit"].split(",")),
            )
            for row in csv.DictReader(labels)
        ]  # fmt: skip


def verdict_on(case: Case, change: Callable[[str], str] = str) -> Verdict:
    """Judge the case, each rank's text changed first."""
    alone = any(status not in STOPPED | {0} for status in case.statuses)
    ends = tuple(
        RankExit(
            i, i, 100 + i, status, float(i),
            stopping=alone and status in STOPPED, tail=last_lines(change(text).encode("utf-8", "replace")),
        )
        for i, (status, text) in enumerate(zip(case.statuses, case.texts(), strict=True))
    )  # fmt: skip
    return judge(RoundEvidence(3, (NodeEvidence("node-a", ends, 7),), (("node-a", len(ends)),)))
