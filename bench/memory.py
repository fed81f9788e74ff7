"""(c) What keeper + agent + guardian hold at rest beside torchrun's agent: memory, threads, descriptors.

Resident memory is compared with resident memory, of three processes each page of a file once (Python's own library is
mapped by all three), and PSS with PSS. A job of each program stands at the same time, and no other: two of one program
would share pages, and the PSS of each would be smaller than a user's.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

import at_rest
import procfs
from rows import Found, Row
from stage import Stage

BAR = 0.25


class Held(NamedTuple):
    """What one job's supervisors hold; ``parts`` are the single processes."""

    resident_mib: float
    parts: dict[str, procfs.Held]

    def sum(self, what: str) -> float:
        return sum(float(getattr(part, what)) for part in self.parts.values())


def measure(stage: Stage, runs: int) -> Found:
    """Compare what is held 10 s after the start."""
    samples: dict[str, list[Held]] = {name: [] for pair in at_rest.PAIRS for name in pair[:2]}
    for _ in range(runs):
        for ours, theirs, _ in at_rest.PAIRS:
            jobs = {name: at_rest.start(stage, name) for name in (ours, theirs)}
            at_rest.rest(list(jobs.values()))
            for name, job in jobs.items():
                samples[name].append(_look(at_rest.supervisors(name, job)))
            stage.end(jobs.values())
    rows: list[Row] = []
    for ours, theirs, how in at_rest.PAIRS:
        a, b = samples[ours], samples[theirs]
        resident = [statistics.median(one.resident_mib for one in series) for series in (a, b)]
        pss, threads, fds = ([_median(series, what) for series in (a, b)] for what in ("pss_mib", "threads", "fds"))
        rows += [
            Row("c", f"memory at rest, {how}: resident", resident[0], theirs, resident[1], "MiB", at_most=BAR),
            Row("c", f"memory at rest, {how}: PSS", pss[0], theirs, pss[1], "MiB", at_most=BAR),
            Row("c", f"threads at rest, {how}", threads[0], theirs, threads[1], ""),
            Row("c", f"descriptors at rest, {how}", fds[0], theirs, fds[1], ""),
        ]
    kept = {name: [_plain(one) for one in series] for name, series in samples.items()}
    return Found(rows, kept, tuple(_who(name, samples[name][-1]) for name in (at_rest.OURS, at_rest.OURS_ETCD)))


def _look(pids: dict[str, int]) -> Held:
    parts = {who: procfs.held(pid) for who, pid in pids.items()}
    alone = next(iter(parts.values())).rss_mib
    return Held(alone if len(parts) == 1 else procfs.resident_mib(list(pids.values())), parts)


def _median(series: list[Held], what: str) -> float:
    return statistics.median(one.sum(what) for one in series)


def _plain(one: Held) -> dict[str, object]:
    return {"resident_mib": one.resident_mib, **{who: part._asdict() for who, part in one.parts.items()}}


def _who(name: str, one: Held) -> str:
    parts = (
        f"{who} {part.rss_mib:.1f}/{part.pss_mib:.1f} MiB, {part.threads} threads" for who, part in one.parts.items()
    )
    return f"(c) {name}, RSS/PSS each: {'; '.join(parts)}; sum of RSS {one.sum('rss_mib'):.1f} MiB"
