"""The summary: only what was measured stands in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from remuster.agent.summary import Account, row, summary
from remuster.rendezvous.records import Job, Outcome, Phase, Round

JOB = Job(
    *(Phase.DONE, Round(6), 2, 3, "two", Round(4), Round(6)),
    outcome=Outcome(0, "every rank exited 0", "success"),
    spent=(("node", 1),),
    past=("one", "zero"),
)
ACCOUNT = Account("run-7", "a", JOB, 812.5, "2026-11-29T20:00:00.000+00:00", {"b~1": "done", "c~2": ""})


def record(n: int, **fields: Any) -> dict[str, Any]:
    """Return an attempt's record, with more in it than a summary needs."""
    return {
        "schema_version": 1,
        "round": n,
        "attempt": n - 4,
        "state": "retried",
        "started_at": f"at {n}",
        "ended_at": f"at {n + 1}",
        "verdict": {"class": "node_lost", "family": "node", "node": "b", "sentence": "…"},
        "charged_to": "node",
        "refunded": None,
        "newest_step": None,
        "resume": None,
        "report": "many words",
        "evidence": [1, 2, 3],
        "times_ms": {
            "detect": 1.0,
            "stop": 2.0,
            "decide": 3.0,
            "form": 4.0,
            "spawn": 5.0,
            "recovery": None,
            "load": None,
        },
        **fields,
    }


ROUNDS = [
    record(4, newest_step=150, reached_step=None, times_ms={"stop": 2.0, "load": 4200.0, "save": 31}),
    record(5, newest_step=200, resume={"step": 100}, refunded="node",
           times_ms={"stop": 2.5, "recovery": 40.0, "load": 4000.0}, reentry={"state": "recovered", "steps": 20}),
    record(6, state="done", verdict={"class": "success"}, charged_to=None, newest_step=250, resume={"step": 200},
           times_ms={"form": 4.0, "recovery": 60.5}),
]  # fmt: skip


def test_the_whole_of_it() -> None:
    value = summary(ACCOUNT, [row(one) for one in ROUNDS])
    attempts = value.pop("attempts")
    assert isinstance(attempts, list)
    assert value == {
        "schema_version": 1,
        "run_id": "run-7",
        "node": "a",
        "launch": "two",
        "launches": ["zero", "one", "two"],
        "rounds": {"first": 4, "last": 6},
        "outcome": {"exit_code": 0, "sentence": "every rank exited 0", "class": "success"},
        "spent": {"node": 1},
        "queue_ms": 812.5,
        "totals": {
            "attempts": 3,
            "charged": 2,
            "refunded": 1,
            "lost_steps": 50,
            "recovery_ms": {"median": 50.25, "longest": 60.5, "sum": 100.5},
            "load_ms": {"median": 4100.0, "longest": 4200.0, "sum": 8200.0},
            "save_ms": {"median": 31.0, "longest": 31.0, "sum": 31.0},
        },
        "drained": [{"host": "b~1", "outcome": "done"}, {"host": "c~2", "outcome": None}],
        "written_at": "2026-11-29T20:00:00.000+00:00",
    }
    assert attempts[0] == {
        "round": 4,
        "attempt": 0,
        "state": "recovered",
        "reentry": None,
        "class": "node_lost",
        "family": "node",
        "node": "b",
        "charged_to": "node",
        "refunded": None,
        "resume_step": None,
        "newest_step": 150,
        "reached_step": None,
        "lost_steps": 50,
        "started_at": "at 4",
        "ended_at": "at 5",
        "times_ms": {"stop": 2.0, "decide": None, "form": None, "spawn": None, "load": 4200.0, "save": 31},
        "recovery_ms": 40.0,
        "rto_ms": 4040.0,
    }
    assert [(one["state"], one["reentry"], one["rto_ms"]) for one in attempts[1:]] == [
        ("retried", "recovered", None),
        ("done", None, None),
    ]
    assert (attempts[1]["lost_steps"], attempts[1]["recovery_ms"]) == (0, 60.5)
    assert (attempts[1]["times_ms"]["load"], attempts[1]["times_ms"]["save"]) == (4000.0, None)
    assert (attempts[2]["lost_steps"], attempts[2]["recovery_ms"], attempts[2]["class"]) == (None, None, "success")
    json.dumps(value)


def test_what_nobody_measured_is_null() -> None:
    bare = Account("run-7", "a", replace(JOB, outcome=None, past=(), launch=""), None, "now")
    value = summary(bare, [])
    assert (value["outcome"], value["queue_ms"], value["launch"], value["launches"]) == (None, None, None, [])
    totals = value["totals"]
    assert isinstance(totals, dict)
    assert (totals["lost_steps"], totals["recovery_ms"]) == (None, {"median": None, "longest": None, "sum": None})


def test_a_start_from_nothing_loses_all_steps() -> None:
    rows = [row(record(4, newest_step=150)), row(record(5))]
    (first, _) = summary(ACCOUNT, rows)["attempts"]  # type: ignore[misc]
    assert first["lost_steps"] == 150  # type: ignore[index]


def test_what_ranks_had_done_beyond_their_last_checkpoint_is_lost_too() -> None:
    rows = [row(record(4, newest_step=100, reached_step=135)), row(record(5, resume={"step": 100}))]
    assert summary(ACCOUNT, rows)["totals"]["lost_steps"] == 35  # type: ignore[index]


def test_other_launches_and_second_records_of_a_round_do_not_count() -> None:
    rows = [row(record(n)) for n in (3, 4, 7)] + [row(record(4, state="failed"))]
    attempts = summary(ACCOUNT, rows)["attempts"]
    assert [(one["round"], one["state"]) for one in attempts] == [(4, "retried")]  # type: ignore[attr-defined]


def test_records_of_strange_shape_do_no_harm() -> None:
    strange: list[dict[str, Any]] = [{}, {"round": "x"}, {"round": 4}, {"round": 5, "resume": None, "times_ms": None}]
    assert len(summary(ACCOUNT, [row(one) for one in strange])["attempts"]) == 2  # type: ignore[arg-type]
