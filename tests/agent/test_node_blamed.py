"""A node that is blamed: when it is checked, what it says of it, and what ends a check."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from node_tables import (
    FAILED,
    FORMING,
    INC,
    KEYS,
    LEADER,
    ME,
    MEETING,
    RECORD,
    ROSTER,
    in_round,
    joined,
    kv,
    ok,
    own,
    put,
    roster_kv,
    run,
    said,
    written,
)

from remuster.agent import node_words as words
from remuster.agent.blamed import Check, CheckResult, Grade, Suspected, vet
from remuster.rendezvous.admission import mark
from remuster.rendezvous.records import Job, Round, decode_node, encode
from remuster.rendezvous.store import KeyValue, TxnResult
from remuster.rendezvous.writes import Kind

MINE = mark(ME, RECORD.machine)
BLAMED = replace(FORMING, blamed=((MINE, 2),))


def key(ready: int, checked: int, unfit: str = "") -> KeyValue:
    record = replace(RECORD, inc=INC, ready=Round(ready), checked=Round(checked), unfit=unfit)
    return own(ready)._replace(value=encode(record))


@pytest.mark.parametrize("unfit", ["", "GPU 3 is lost"])
def test_it_is_checked_and_says_how_that_ended_for_which_round(unfit: str) -> None:
    state, out = run(joined(FORMING), words.JobSeen(1.0, kv(BLAMED, 11)))
    assert out == [words.Check(Round(2))]
    state, out = run(state, words.JobSeen(1.1, kv(BLAMED, 12)), words.Tick(1.2))
    assert out == [], "once"
    state, out = run(state, words.Checked(2.0, Round(2), unfit))
    assert said(out) == ["checked(2)"]
    record = decode_node(put(written(out, Kind.CHECKED), KEYS.node(ME)))
    assert (record.checked, record.unfit, record.ready, record.inc) == (2, unfit, 3, INC)
    state, out = run(state, ok(2.1, Kind.CHECKED, 2), words.Tick(2.2))
    assert out == []
    _, out = run(replace(state, ready=Round(2)), words.Tick(2.3))
    assert said(out) == ["ready(3)"]
    record = decode_node(put(written(out, Kind.READY), KEYS.node(ME)))
    assert (record.checked, record.unfit) == (2, unfit), "what was said stays said"


@pytest.mark.parametrize(
    ("job", "changes"),
    [
        (replace(FORMING, blamed=((mark(ME, "other-b"), 2),)), {}),  # a namesake on another machine
        (BLAMED, {"checked": Round(2), "told_check": (Round(2), "")}),
        (BLAMED, {"checking": Round(2)}),
        (replace(FAILED, blamed=((MINE, 2),)), {}),
        (BLAMED, {"mod": 0, "pending": frozenset({"reread"})}),
    ],
    ids=["another machine", "checked", "under way", "over", "not joined"],
)
def test_when_no_check_begins(job: Job, changes: dict[str, object]) -> None:
    _, out = run(joined(job, **changes), words.Tick(1.0))
    assert not [a for a in out if isinstance(a, words.Check)]


def test_ranks_are_not_disturbed_by_a_check() -> None:
    _, out = run(in_round(replace(MEETING, blamed=((MINE, 2),))), words.Tick(101.0))
    assert out == []


def test_a_later_blame_begins_another_check_and_the_first_ones_end_is_nothing() -> None:
    state, _ = run(joined(BLAMED), words.Tick(1.0))
    later = replace(BLAMED, round=Round(4), formed=Round(3), blamed=((MINE, 3),))
    state, out = run(state, words.JobSeen(2.0, kv(later, 11)))
    assert words.Check(Round(3)) in out
    state, out = run(state, words.Checked(2.1, Round(2), "GPU 3 is lost"))
    assert (state.checked, state.unfit) == (0, "")


def test_a_round_that_begins_ends_the_check() -> None:
    state, _ = run(joined(BLAMED), words.Tick(1.0))
    meeting = replace(MEETING, formed=Round(3))
    state, out = run(
        state,
        words.JobSeen(2.0, kv(meeting, 11)),
        words.RosterRead(2.1, Round(3), True, roster_kv(ROSTER), 11),
    )
    assert "start" in said(out)
    state, out = run(state, words.Checked(2.2, Round(2), "GPU 3 is lost"))
    assert (state.unfit, said(out)) == ("", [])


def test_an_unknown_outcome_is_read_and_said_again() -> None:
    state, _ = run(joined(BLAMED), words.Tick(1.0))
    state, out = run(state, words.Checked(2.0, Round(2), ""), words.Wrote(2.1, Kind.CHECKED, Round(2), INC, None))
    assert said(out) == ["checked(2)", "reread"]
    held, out = run(state, words.Rereading(2.5, True, 30, kv(BLAMED, 10), key(3, 2), LEADER))
    assert said(out) == [], "it had been applied"
    assert held.told_check == (2, "")
    _, out = run(state, words.Rereading(2.5, True, 30, kv(BLAMED, 10), key(3, 0), LEADER))
    assert said(out) == ["checked(2)"]


def test_what_is_held_off_is_read_first() -> None:
    state, _ = run(joined(BLAMED), words.Tick(1.0))
    state, _ = run(state, words.Checked(2.0, Round(2), ""))
    _, out = run(state, words.Wrote(2.1, Kind.CHECKED, Round(2), INC, TxnResult(False, 20)))
    assert said(out) == ["reread"]


def test_a_new_incarnation_is_checked_anew() -> None:
    state, _ = run(joined(BLAMED), words.Tick(1.0))
    state, _ = run(state, words.Checked(2.0, Round(2), ""), ok(2.1, Kind.CHECKED, 2), words.LeaseLost(3.0))
    assert (state.checked, state.told_check, state.checking) == (0, (0, ""), 0)


# --- around the check itself ------------------------------------------------------------------------------------------
async def broken() -> CheckResult:
    raise OSError("no such library")


async def endless() -> CheckResult:
    await asyncio.Event().wait()
    raise AssertionError


async def failing() -> CheckResult:
    return CheckResult(Grade.FAILED, "GPU 3:\n lost " + "x" * 500)


async def passing() -> CheckResult:
    return CheckResult(Grade.PASSED)


async def unsure() -> CheckResult:
    return CheckResult(Grade.UNKNOWN, "no answer from the driver")


@pytest.mark.parametrize(
    ("check", "unfit", "says"),
    [
        (passing, "", "has passed"),
        (unsure, "", "cannot tell, and lets it take part: no answer from the driver"),
        (broken, "", "cannot tell, and lets it take part: OSError: no such library"),
        (endless, "", "cannot tell, and lets it take part: no end within 0.05 s"),
        (failing, ("GPU 3: lost " + "x" * 500)[:200], "has failed: GPU 3: lost xxx"),
    ],
    ids=["passing", "unsure", "broken", "endless", "failing"],
)
async def test_only_a_check_that_fails_takes_the_node_away(check: Check, unfit: str, says: str) -> None:
    lines: list[str] = []
    about = Suspected(ME, "run", 1, None, lines.append)
    answer = await vet(check, Round(2), about, limit_s=0.05)
    assert (answer.round, answer.unfit) == (2, unfit)
    assert lines[0] == "this node is blamed for the end of round 2: it is checked before it takes part again"
    assert says in lines[1]
    assert len(lines) == 2
