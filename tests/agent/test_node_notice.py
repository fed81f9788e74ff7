"""The node machine and stops that are announced, planned, or asked for twice: who is told what, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_tables import (
    FAILED,
    FORMING,
    INC,
    KEYS,
    ME,
    MEETING,
    STOPPING,
    in_round,
    joined,
    kv,
    ok,
    own,
    put,
    run,
    said,
    written,
)

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import NodeState
from remuster.rendezvous.records import Cause, Incarnation, Job, Round, decode_job
from remuster.rendezvous.store import Range, TxnResult
from remuster.rendezvous.writes import Kind

ELSEWHERE = replace(MEETING, notice="b")
INT, QUIT, TERM, USR1, USR2 = 2, 3, 15, 10, 12


def kill_at(state: NodeState) -> float:
    """Return when the grace ends, as the machine wants to be woken."""
    return min(a.at for a in node.step(state, words.Tick(110.2))[1] if isinstance(a, words.Wake))


# --- notice -----------------------------------------------------------------------------------------------------------
def test_a_notice_is_told_to_the_own_ranks_at_once_and_to_all_nodes_by_the_job_record() -> None:
    state, out = run(in_round(), words.NoticeGiven(110.0))
    assert said(out) == ["notify", "notice(3)"]
    assert decode_job(put(written(out, Kind.NOTICE), KEYS.job)) == replace(MEETING, notice=ME)
    state, out = run(state, ok(110.1, Kind.NOTICE, 3, kv(replace(MEETING, notice=ME), 11)), words.NoticeGiven(111.0))
    assert out == []
    assert state.leaving is None


def test_a_notice_elsewhere_is_told_once_and_ends_nothing() -> None:
    state, out = run(in_round(), words.JobSeen(110.0, kv(ELSEWHERE, 11)), words.Tick(110.1))
    assert out == [words.Notify(Round(3), "the job is to end soon")]
    _, out = run(state, words.NoticeGiven(110.2), words.Exited(111.0, Round(3), 0, 0, 1))
    assert out == []
    _, out = run(state, words.Exited(111.0, Round(3), 0, 0, 1), words.Exited(112.0, Round(3), 1, 0, 2))
    assert said(out) == ["kill", "finished(3)"]


def test_a_notice_before_any_round_waits_for_the_job() -> None:
    state, out = run(NodeState(joined(FORMING).settings, out_since=1.0), words.NoticeGiven(1.0))
    assert said(out) == ["grant"]
    _, out = run(joined(FORMING, noticed=state.noticed), words.Tick(2.0))
    assert said(out) == ["notice(3)"]


@pytest.mark.parametrize("job", [ELSEWHERE, FAILED], ids=["told already", "over"])
def test_a_notice_that_nobody_needs_is_not_written(job: Job) -> None:
    _, out = run(in_round(job), words.NoticeGiven(110.0))
    assert not [a for a in out if isinstance(a, words.Submit) and a.write.kind is Kind.NOTICE]


def test_a_notice_whose_fate_is_unknown_is_read_before_it_is_written_again() -> None:
    state, _ = run(in_round(), words.NoticeGiven(110.0))
    state, out = run(state, words.Wrote(111.0, Kind.NOTICE, Round(3), INC, None))
    assert said(out) == ["reread"]
    there = run(state, words.Rereading(111.3, True, 30, kv(replace(MEETING, notice=ME), 12), own(3), state.leader))
    assert there[1] == []
    _, out = run(state, words.Rereading(111.3, True, 30, kv(MEETING, 10), own(3), state.leader))
    assert said(out) == ["notice(3)"]


def test_what_exited_0_after_a_notice_says_so_only_when_the_notice_stands() -> None:
    """Else all could have finished in a job that nobody had given notice to, and would be done with half its steps."""
    state, _ = run(in_round(), words.NoticeGiven(110.0))
    exits = [words.Exited(110.1, Round(3), local, 0, 900 + local) for local in (0, 1)]
    state, out = run(state, *exits, words.NothingLeft(110.2, Round(3), ()))
    assert state.finished
    assert "finished(3)" not in said(out)
    state, out = run(state, words.Wrote(111.0, Kind.NOTICE, Round(3), INC, None))
    state, out = run(state, words.Rereading(111.3, True, 30, kv(MEETING, 10), own(3), state.leader))
    assert said(out) == ["notice(3)"]
    _, out = run(state, ok(111.4, Kind.NOTICE, 3, kv(replace(MEETING, notice=ME), 31)))
    assert "finished(3)" in said(out)


def test_a_notice_that_came_second_leaves_it_at_the_first() -> None:
    state, _ = run(in_round(), words.NoticeGiven(110.0))
    late = TxnResult(False, 30, (Range((kv(ELSEWHERE, 12),), 30),))
    _, out = run(state, words.Wrote(110.1, Kind.NOTICE, Round(3), INC, late))
    assert out == []


def test_it_outlives_a_lost_lease() -> None:
    state, _ = run(in_round(), words.NoticeGiven(110.0), words.LeaseLost(110.1), words.NothingLeft(110.2, Round(3)))
    again = replace(state, inc=Incarnation(9), mod=6, job=joined(FORMING).job, pending=frozenset())
    _, out = run(again, words.Tick(120.0))
    assert "notice(3)" in said(out)


@pytest.mark.parametrize("notice", ["", "b"])
def test_who_is_ended_after_a_notice_says_that_it_is_worth_another_start(notice: str) -> None:
    job = replace(FORMING, notice=notice)
    _, out = run(joined(job), words.LeaveAsked(1.0, TERM))
    assert [a.code for a in out if isinstance(a, words.Exit)] == [75 if notice else 143]


# --- how ranks are asked to end ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("job", "event", "softly"),
    [
        (MEETING, words.LeaveAsked(110.0, TERM), True),
        (MEETING, words.JobSeen(110.0, kv(replace(STOPPING, cause=Cause("leave", "b", 8)), 11)), True),
        (MEETING, words.JobSeen(110.0, kv(replace(STOPPING, cause=Cause("admit", "c", 9)), 11)), True),
        (MEETING, words.JobSeen(110.0, kv(STOPPING, 11)), False),
        (MEETING, words.Exited(110.0, Round(3), 1, 1, 900), False),
        (ELSEWHERE, words.JobSeen(110.0, kv(replace(STOPPING, notice="b"), 11)), True),
        (ELSEWHERE, words.Exited(110.0, Round(3), 1, 1, 900), True),
    ],
    ids=["left", "left elsewhere", "admitted", "failed elsewhere", "failed", "failed elsewhere, noticed",
         "failed, noticed"],
)  # fmt: skip
def test_a_planned_stop_is_soft_and_one_after_a_failure_is_not(job: Job, event: words.Event, softly: bool) -> None:
    _, out = run(in_round(job), event)
    (asked,) = [a for a in out if isinstance(a, words.Terminate)]
    assert (asked.signal, asked.softly) == (TERM, softly)


@pytest.mark.parametrize(
    ("signal", "passed"), [(TERM, TERM), (INT, TERM), (1, TERM), (24, TERM), (0, TERM), (USR1, USR1), (USR2, USR2)]
)
def test_which_signal_ranks_get(signal: int, passed: int) -> None:
    _, out = run(in_round(), words.LeaveAsked(110.0, signal))
    assert [a.signal for a in out if isinstance(a, words.Terminate)] == [passed]


# --- twice ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("asked", "ends_at"),
    [
        ([(110.0, TERM)], 115.0),
        ([(110.0, TERM), (110.1, TERM)], 115.0),  # the same one, by agent and keeper
        ([(110.0, TERM), (111.1, TERM)], 114.1),
        ([(110.0, INT), (111.1, TERM)], 114.1),
        ([(110.0, TERM), (110.5, TERM), (111.1, INT)], 114.1),
        ([(110.0, TERM), (111.1, INT), (112.5, INT)], 114.1),
        ([(110.0, TERM), (113.0, TERM)], 115.0),
        ([(110.0, TERM), (111.1, QUIT), (111.2, 1), (111.3, 9), (111.4, 0)], 115.0),
        ([(110.0, 0), (111.1, TERM)], 115.0),  # `remuster leave`, then a first signal
        ([(110.0, 0), (110.3, TERM), (111.5, TERM)], 114.5),
    ],
)
def test_a_second_signal_shortens_the_grace(asked: list[tuple[float, int]], ends_at: float) -> None:
    state, out = run(in_round(), *(words.LeaveAsked(*one) for one in asked))
    assert len([a for a in out if isinstance(a, words.Terminate)]) == 1
    assert kill_at(state) == pytest.approx(ends_at)
    _, out = run(state, words.Tick(ends_at + 0.01))
    assert "kill" in said(out)
    assert state.leaving is not None
    assert state.leaving.signal == asked[0][1]


def test_a_second_signal_does_not_wait_long_for_the_store() -> None:
    state = in_round(ranks=joined(FORMING).ranks, alive=frozenset(), told=True)
    state, _ = run(state, words.LeaveAsked(110.0, TERM))
    assert state.leave_by == 125.0
    state, _ = run(state, words.LeaveAsked(111.5, TERM))
    assert state.leave_by == pytest.approx(124.5)
