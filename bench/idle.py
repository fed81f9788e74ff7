"""(d) CPU time of an idle agent: keeper + agent + guardian beside torchrun's, without a server and with a store.

All four jobs are watched during the same two minutes. That is fair, and four times as quick as one after the other:
together they use a hundredth of a core, so they do not get into each other's way, and whatever else the machine does
meets all of them alike. CPU time is the kernel's, to the nanosecond, and does not depend on how long a wake-up waited.
One window, not medians of several: what happens once a minute belongs to it.
"""

from __future__ import annotations

import time

import at_rest
import procfs
from rows import Found, Row
from stage import Stage

WINDOW_S = 120.0
HOUR_S = 3600
BARS = {at_rest.OURS: 1 / 10, at_rest.OURS_ETCD: 2 / 3}


def measure(stage: Stage, _runs: int) -> Found:
    """Compare CPU seconds per hour."""
    jobs = {name: at_rest.start(stage, name) for pair in at_rest.PAIRS for name in pair[:2]}
    at_rest.rest(list(jobs.values()))
    watched = {name: at_rest.supervisors(name, job) for name, job in jobs.items()}
    began, before = time.monotonic(), _used(watched)
    time.sleep(WINDOW_S)
    took_s, after = time.monotonic() - began, _used(watched)
    stage.end(jobs.values())
    spent = {
        name: {who: (after[name][who] - before[name][who]) * HOUR_S / took_s for who in after[name]} for name in watched
    }
    total = {name: sum(parts.values()) for name, parts in spent.items()}
    rows = [
        Row("d", f"CPU of an idle agent, {how}", total[ours], theirs, total[theirs], "s/h", at_most=BARS[ours])
        for ours, theirs, how in at_rest.PAIRS
    ]
    return Found(rows, {"window_s": took_s, "s_per_hour": spent}, tuple(_who(name, spent[name]) for name in BARS))


def _used(watched: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    return {name: {who: procfs.cpu_s(pid) for who, pid in pids.items()} for name, pids in watched.items()}


def _who(name: str, parts: dict[str, float]) -> str:
    return f"(d) {name}: " + ", ".join(f"{who} {value:.2f} s/h" for who, value in parts.items())
