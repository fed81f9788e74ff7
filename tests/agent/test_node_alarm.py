"""The node machine after an alarm: a look at the living ranks, a window for their dumps, then the round's end."""

from __future__ import annotations

from dataclasses import replace

from node_tables import INC, KEYS, ME, STOPPING, in_round, kv, put, run, said, written

from remuster.agent import node_words as words
from remuster.health.evidence import RankExit
from remuster.health.observed import SILENCE, Early
from remuster.rendezvous.records import Cause, Round, decode_job
from remuster.rendezvous.writes import Kind

WHY = Early(1, 2.0, "rank 1 wrote that its collective had timed out", "nccl-timeout")
ALARM = words.Alarmed(3.0, Round(3), WHY, 10.0)


def test_the_round_ends_when_the_window_is_over_and_not_before() -> None:
    state, out = run(in_round(), ALARM)
    assert said(out) == ["tell", "inspect"]
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


OTHER = words.Alarmed(4.0, Round(3), WHY._replace(rank=0), 2.0)


def test_an_alarm_that_is_withdrawn_in_its_window_ends_nothing_and_leaves_no_fact() -> None:
    """Red when ``_withdraw`` keeps ``alarm``, or the fact."""
    state, out = run(in_round(), ALARM, words.Inspected(3.5, Round(3)), words.Withdrawn(8.0, Round(3), WHY))
    assert said(out)[-1] == "tell"
    state, out = run(state, words.Tick(20.0))
    assert not said(out)
    assert WHY not in state.facts
    state, out = run(state, words.Alarmed(30.0, Round(3), WHY, 1.0))
    assert "inspect" in said(out), "the look of before says nothing about this one"
    _, out = run(state, words.Inspected(30.5, Round(3)), words.Tick(31.0))
    assert "terminate" in said(out)


def test_of_several_alarms_the_next_stands_when_the_first_is_withdrawn() -> None:
    """Red when a second alarm is dropped: the rank that hangs would be forgotten for one that goes on."""
    state, out = run(in_round(), ALARM, OTHER, words.Inspected(4.5, Round(3)))
    assert said(out) == ["tell", "inspect"]
    state, out = run(state, words.Withdrawn(5.0, Round(3), WHY), words.Tick(6.0))
    assert "terminate" in said(out)
    assert OTHER.why in state.facts
    assert WHY not in state.facts
    state, out = run(in_round(), ALARM, OTHER, words.Withdrawn(5.0, Round(3), OTHER.why), words.Tick(12.0))
    assert "terminate" not in said(out)
    _, out = run(state, words.Withdrawn(12.5, Round(3), WHY), words.Tick(20.0))
    assert "terminate" not in said(out)


def test_a_withdrawal_that_comes_too_late_or_for_another_round_changes_nothing() -> None:
    late = (words.Inspected(3.5, Round(3)), words.Tick(13.0), words.Withdrawn(13.1, Round(3), WHY))
    state, out = run(in_round(), ALARM, *late)
    assert "terminate" in said(out)
    assert WHY in state.facts
    state, _ = run(in_round(), ALARM, words.Withdrawn(4.0, Round(2), WHY))
    assert state.alarm == WHY


def test_a_rank_that_exits_0_withdraws_its_alarm_and_no_others() -> None:
    """Red when its exit leaves the alarm: the round of a rank that has done its work would fail."""
    state, _ = run(in_round(), ALARM, OTHER, words.Inspected(4.5, Round(3)))
    state, out = run(state, words.Exited(5.0, Round(3), 1, 0, 77))
    assert "rank 1 exited 0: its alarm is withdrawn" in [a.sentence for a in out if isinstance(a, words.Tell)]
    assert state.alarm == OTHER.why
    assert WHY not in state.facts
    _, out = run(state, words.Tick(6.0))
    assert "terminate" in said(out)
    silence = words.Alarmed(3.0, Round(3), Early(1, 2.0, "no step for 300 s", SILENCE), 10.0)
    state, _ = run(in_round(), silence, words.Exited(5.0, Round(3), 1, 0, 77))
    assert state.alarm == silence.why, "the others are silent, too"
