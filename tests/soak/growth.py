"""Does a process grow? What /proc says of it now and then, and a judgement on the whole. Not a test module.

A process that lives long has settled after its first rounds; from then on what it has at rest must not rise with the
rounds that it serves, beyond what its bounded memories of them take.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

WARM_ROUNDS = 6  # until then: modules loaded with the first failure, gRPC's pools, allocators
LEAST_ROUNDS = 8  # after that, or there is nothing to be said
END = 4  # looks that are taken together, by their median: one may fall into the midst of something
MORE_FDS, MORE_THREADS = 6, 4  # between what an agent has as member, spare and leader
MORE_KIB = 8 * 1024  # in steps: when it leads, judges, or loses its store for the first time
KIB_PER_ROUND = 32  # steadily: what is remembered of a round takes 3; malloc is not exact over 30 rounds


class Sample(NamedTuple):
    """One look at a process."""

    at: float
    round: int
    rss_kib: int
    fds: int
    threads: int


class Trend(NamedTuple):
    """From the settled first to the last looks at one process; ``kib_per_round`` leaves single steps out."""

    rounds: int
    first: Sample
    last: Sample
    kib_per_round: float


def look(pid: int, at: float, n: int) -> Sample | None:
    """Return a sample of a process; None when it has gone."""
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        return Sample(at, n, int(fields["VmRSS"].split()[0]), fds, int(fields["Threads"]))
    except (OSError, KeyError):  # a zombie has no VmRSS
        return None


def trend(samples: list[Sample]) -> Trend | None:
    """Return how a process came along; None when it has not lived through enough rounds."""
    settled = [s for s in samples if s.round >= samples[0].round + WARM_ROUNDS]
    groups = [_typical(settled[i : i + END]) for i in range(0, len(settled) - END + 1, END)]
    if len(groups) < 2 or groups[-1].round - groups[0].round < LEAST_ROUNDS:
        return None
    first, last = groups[0], groups[-1]
    slopes = [(b.rss_kib - a.rss_kib) / max(1, b.round - a.round) for a, b in pairwise(groups)]
    return Trend(last.round - first.round, first, last, median(slopes))


def _typical(samples: list[Sample]) -> Sample:
    at, *counts = (median(column) for column in zip(*samples, strict=True))
    return Sample(at, *(int(count) for count in counts))


def grown(t: Trend) -> list[str]:
    """Return what has grown more than it may, in words."""
    found: list[str] = []
    for name, more, most in (
        ("KiB of memory", t.last.rss_kib - t.first.rss_kib, MORE_KIB),
        ("KiB of memory a round", t.kib_per_round, KIB_PER_ROUND),
        ("descriptors", t.last.fds - t.first.fds, MORE_FDS),
        ("threads", t.last.threads - t.first.threads, MORE_THREADS),
    ):
        if more > most:
            found.append(f"{more:g} {name} in {t.rounds} rounds; {most} are allowed")
    return found
