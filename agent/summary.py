"""The summary of a launch: what its attempts cost, from their records. Pure; ``ledger.py`` writes it at the end.

Only what was measured stands in it; what nobody measured is null. ``row`` keeps the few figures of a record that the
summary needs, so that an agent need not hold whole records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..rendezvous.records import Job
from .occurrences import part

SCHEMA_VERSION = 1
_STEPS = ("stop", "decide", "form", "spawn", "load", "save")

Row = Mapping[str, object]


class Account(NamedTuple):
    """Whose summary it is, and what this agent saw of the launch as a whole."""

    run_id: str
    node: str
    job: Job
    queue_ms: float | None  # from the start of the command until the launch's first round had formed
    written_at: str | None  # wall clock, for people
    drained: Mapping[str, str] = {}  # hosts, and what the site's command for them came to


def row(record: Mapping[str, object]) -> Row:
    """Return what the summary keeps of an attempt's record."""
    verdict, resume, times = part(record, "verdict"), part(record, "resume"), part(record, "times_ms")
    names = (
        "round",
        "attempt",
        "state",
        "charged_to",
        "refunded",
        "newest_step",
        "reached_step",
        "started_at",
        "ended_at",
    )
    return {
        **{name: record.get(name) for name in names},
        "class": verdict.get("class"),
        "family": verdict.get("family"),
        "node": verdict.get("node") or None,
        "resume_step": resume.get("step"),
        "reentry": part(record, "reentry").get("state"),
        "times_ms": {name: times.get(name) for name in _STEPS},
        "recovery_of_last_ms": times.get("recovery"),
    }


def summary(account: Account, rows: Iterable[Row]) -> dict[str, object]:
    """Return the summary as a JSON value; of several records of a round the first one counts."""
    job = account.job
    by_round: dict[int, Row] = {}
    for one in rows:
        n = one.get("round")
        if isinstance(n, int) and job.first <= n <= job.round:
            by_round.setdefault(n, one)
    attempts = [_attempt(one, by_round.get(n + 1)) for n, one in sorted(by_round.items())]
    recovered = [ms for one in attempts if isinstance(ms := one["recovery_ms"], float)]
    lost = [steps for one in attempts if isinstance(steps := one["lost_steps"], int)]
    charged = [one for one in attempts if one["charged_to"]]
    outcome = job.outcome
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": account.run_id,
        "node": account.node,
        "launch": job.launch or None,
        "launches": [launch for launch in (*reversed(job.past), job.launch) if launch],
        "rounds": {"first": job.first, "last": job.round},
        "outcome": None
        if outcome is None
        else {"exit_code": outcome.exit_code, "sentence": outcome.sentence, "class": outcome.cls or None},
        "spent": dict(job.spent),
        "queue_ms": account.queue_ms,
        "attempts": attempts,
        "drained": [{"host": host, "outcome": outcome or None} for host, outcome in account.drained.items()],
        "totals": {
            "attempts": len(attempts),
            "charged": len(charged),
            "refunded": sum(1 for one in attempts if one["refunded"]),
            "lost_steps": sum(lost) if lost else None,
            "recovery_ms": _spread(recovered),
            "load_ms": _spread(_times(attempts, "load")),
            "save_ms": _spread(_times(attempts, "save")),
        },
        "written_at": account.written_at,
    }


def _attempt(one: Row, after: Row | None) -> dict[str, object]:
    """Return an attempt's line; what its end cost shows in the attempt after it."""
    out = {name: value for name, value in one.items() if name != "recovery_of_last_ms"}
    out["lost_steps"] = None if after is None else _lost(one, after.get("resume_step"))
    out["recovery_ms"] = None if after is None else after.get("recovery_of_last_ms")
    out["rto_ms"] = None
    if after is not None and after.get("reentry") == "recovered":
        out["state"] = "recovered"  # which its own record could not know
        back, load = out["recovery_ms"], part(after, "times_ms").get("load")
        if isinstance(back, float) and isinstance(load, float):
            out["rto_ms"] = round(back + load, 3)
    return out


def _times(attempts: list[dict[str, object]], name: str) -> list[float]:
    return [float(ms) for one in attempts if isinstance(ms := part(one, "times_ms").get(name), (int, float))]


def _lost(one: Row, resumed: object) -> int | None:
    """Return how far the next attempt began behind what was done: by the ranks' word, else by what was published."""
    reached, newest = one.get("reached_step"), one.get("newest_step")
    done = reached if isinstance(reached, int) else newest
    if not isinstance(done, int):
        return None
    return max(0, done - (resumed if isinstance(resumed, int) else 0))


def _spread(ms: list[float]) -> dict[str, float | None]:
    middle = sorted(ms)[(len(ms) - 1) // 2 : len(ms) // 2 + 1]  # without ``statistics``, which brings fractions
    return {
        "median": round(sum(middle) / len(middle), 3) if middle else None,
        "longest": max(ms, default=None),
        "sum": round(sum(ms), 3) if ms else None,
    }
