"""The signs of life that ranks write into a file all hosts share: followed, and what they say. Not a test module.

A line is ``node round attempt-or-step CLOCK_BOOTTIME``: ``beat.py`` and ``train.py`` write them. Read by ``job.Job``.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Beat(NamedTuple):
    """A sign of life of a rank; ``step`` is its attempt where it only beats."""

    node: str
    round: int
    step: int
    at: float


class Signs:
    """All lines of one file until now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0
        self._all: list[Beat] = []
        self._first: dict[int, dict[str, Beat]] = {}
        self._last: dict[int, dict[str, Beat]] = {}

    def read(self) -> list[Beat]:
        """Return all signs of life, in the order in which they were written."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._read_to += len(data)
            for line in data.decode().splitlines():
                node, n, step, at = line.split()
                beat = Beat(node, int(n), int(step), float(at))
                self._all.append(beat)
                self._first.setdefault(beat.round, {}).setdefault(node, beat)
                self._last.setdefault(beat.round, {})[node] = beat
        return self._all

    def first(self, n: int) -> dict[str, Beat]:
        """Return each node's first sign of round ``n``."""
        self.read()
        return self._first.get(n, {})

    def last(self, n: int) -> dict[str, Beat]:
        """Return each node's newest sign of round ``n``."""
        self.read()
        return self._last.get(n, {})

    def rounds(self) -> dict[int, list[str]]:
        """Return the nodes that were seen in each round."""
        self.read()
        return {n: sorted(nodes) for n, nodes in sorted(self._first.items())}


def overlap(beats: list[Beat]) -> str:
    """Return which round lived into a later one, '' when none did."""
    spans: dict[int, tuple[float, float]] = {}
    for beat in beats:
        first, last = spans.get(beat.round, (beat.at, beat.at))
        spans[beat.round] = (min(first, beat.at), max(last, beat.at))
    for (before, (_, last)), (after, (first, _)) in pairwise(sorted(spans.items())):
        if last >= first:
            return f"round {before} lived {(last - first) * 1000:.1f} ms into round {after}"
    return ""
