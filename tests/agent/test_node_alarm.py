"""The node machine after an alarm: a look at the living ranks, a window for their dumps, then the round's end."""

from __future__ import annotations

from dataclasses import replace

from node_tables import INC, KEYS, ME, STOPPING, in_round, kv, put, run, said, written

from remuster.agent import node_words as words
from remuster.health.evidence import RankExit
from remuster.health.observed import Early
from remuster.rendezvous.records import Cause, Round, decode_job
from remuster.rendezvous.writes import Kind

WHY = Early(1, 2.0, "rank 1 wrote that its collective had timed out", "nccl-timeout")
ALARM = words.Alarmed(3.0, Round(3), WHY, 10.0)


def test_the_round_ends_when_the_window_is_over_and_not_before() -> None:
    state, out = run(in_round(), ALARM)
    assert said(out) == ["inspect"]
    state, out = run(state, words.Inspected(3.5, Round(3)), words.Tick(12.9))
    assert not said(out)
    state, out = run(state, words.Tick(13.0))
    assert [a.reason for a in out if isinstance(a, words.Terminate)] == [WHY.why]
    assert decode_job(put(written(out, Kind.STOP), KEYS.job)).cause == Cause("alarm", ME, INC)
    assert WHY in state.facts


def test_a_rank_that_ends_in_the_window_ends_the_round_at_once_and_the_alarm_is_told_all_the_same() -> None:
    state, _ = run(in_round(), ALARM, words.Inspected(3.5, Round(3)))
    state, out = run(state, words.Exited(4.0, Round(3), 0, -6, 77))
    assert "terminate" in said(out)
    assert [type(fact) for fact in state.facts] == [Early, RankExit]


def test_the_first_alarm_counts_and_none_of_another_round() -> None:
    state, _ = run(in_round(), ALARM)
    state, out = run(state, words.Alarmed(4.0, Round(3), WHY._replace(rank=0), 0.0))
    assert "terminate" not in said(out)
    state, out = run(in_round(), words.Alarmed(4.0, Round(2), WHY, 0.0))
    assert "inspect" not in said(out)


def test_other_nodes_look_at_their_ranks_before_they_end_them_and_no_longer_than_a_moment() -> None:
    over = replace(STOPPING, cause=Cause("alarm", "b", 8))
    state, out = run(in_round(), words.JobSeen(5.0, kv(over, 20)))
    assert said(out) == ["inspect"]
    answered, out = run(state, words.Inspected(5.2, Round(3)))
    assert "terminate" in said(out)
    assert answered.inspected == 3
    _, out = run(state, words.Tick(7.0))
    assert "terminate" in said(out), "a look that does not come back"


def test_a_failure_is_not_looked_at() -> None:
    _, out = run(in_round(), words.JobSeen(5.0, kv(STOPPING, 20)))
    assert said(out) == ["terminate"]
