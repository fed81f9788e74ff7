"""The node machine under a scheduler that ends the job: what it asks, and that all is over before it kills."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_tables import MEETING, SETTINGS, in_round, run, said

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import NodeState, Ranks
from remuster.agent.slurm_job import Ending, SlurmJob, ending
from remuster.rendezvous.records import Round

TERM, USR1 = 15, 10
ASKS = SETTINGS._replace(asks=True, reserve_s=8.0, grace_s=30.0)
RUNNING = SlurmJob("RUNNING", left_s=1000.0, nodes="node[1-2]", may_requeue=True)
NEAR = "the job's time limit is near"


@pytest.mark.parametrize(
    ("job", "restarts", "notice", "term"),
    [
        (RUNNING, 0, Ending(NEAR, 1000.0), Ending()),
        (RUNNING._replace(left_s=90.0), 0, Ending(NEAR, 90.0), Ending(NEAR, 90.0)),
        (RUNNING._replace(left_s=None), 0, Ending(), Ending()),
        (RUNNING._replace(preempted=True, left_s=29.0), 0, *[Ending("Slurm preempts the job", 29.0)] * 2),
        (RUNNING._replace(preempted=True, left_s=-1.0), 0, *[Ending("Slurm preempts the job", 0.0)] * 2),
        (RUNNING._replace(preempted=True, left_s=None), 0, *[Ending("Slurm preempts the job", 30.0)] * 2),
        (
            SlurmJob("COMPLETING", "TimeLimit", left_s=0.0, kill_wait_s=20.0),
            0,
            *[Ending("the job's time limit is over", 20.0)] * 2,
        ),
        (SlurmJob("TIMEOUT"), 0, *[Ending("the job's time limit is over", 30.0)] * 2),
        (SlurmJob("COMPLETING", left_s=0.0), 0, Ending(), Ending()),  # scancel
        (SlurmJob("COMPLETING", left_s=0.0, restarts=2), 2, Ending(), Ending()),
        (SlurmJob("COMPLETING", left_s=300.0, restarts=3), 2, *[Ending("Slurm requeues the job", 30.0)] * 2),
        (SlurmJob("CANCELLED"), 0, Ending(), Ending()),
    ],
)
def test_what_a_signal_means(job: SlurmJob, restarts: int, notice: Ending, term: Ending) -> None:
    assert (ending(job, restarts, False), ending(job, restarts, True)) == (notice, term)


def wakes(state: NodeState, at: float) -> float:
    """Return when the machine wants to be woken next."""
    return min(a.at for a in node.step(state, words.Tick(at))[1] if isinstance(a, words.Wake))


def limited(at: float, left_s: float | None, why: str = NEAR, leaving: bool = False) -> words.Limited:
    return words.Limited(at, leaving, why, left_s)


def test_nobody_is_asked_where_there_is_no_scheduler() -> None:
    _, out = run(in_round(), words.NoticeGiven(110.0, USR1), words.LeaveAsked(111.0, TERM))
    assert "asklimit" not in said(out)


@pytest.mark.parametrize("event", [words.NoticeGiven(110.0, USR1), words.LeaveAsked(110.0, TERM)])
def test_it_is_asked_once_and_nothing_waits_for_that(event: words.Event) -> None:
    state, out = run(in_round(settings=ASKS), event, words.Tick(110.1))
    assert said(out).count("asklimit") == 1
    assert ("notify" if isinstance(event, words.NoticeGiven) else "terminate") in said(out)
    assert said(run(state, event._replace(at=112.0))[1]).count("asklimit") == 0


def test_a_notice_elsewhere_is_asked_about_too() -> None:
    _, out = run(in_round(replace(MEETING, notice="b"), settings=ASKS), words.Tick(110.0))
    assert words.AskLimit(False) in out


def test_a_term_after_a_notice_is_asked_about_again() -> None:
    state, _ = run(in_round(settings=ASKS), words.NoticeGiven(110.0, USR1), limited(110.1, 90.0))
    _, out = run(state, words.LeaveAsked(150.0, TERM))
    assert words.AskLimit(True) in out


@pytest.mark.parametrize(
    ("left_s", "term_by", "kill_by"),
    [
        (120.0, 110 + 120 - 8 - 30, 110 + 112),
        (60.0, 110 + 60 - 8 - 26, 110 + 52),  # half of the time is for those that leave by themselves
        (10.0, 110 + 2.5, 110 + 5),
        (0.0, 110.0, 110.0),
    ],
)
def test_ranks_that_stay_are_told_to_end_and_then_killed_in_time(left_s: float, term_by: float, kill_by: float) -> None:
    state, _ = run(in_round(settings=ASKS), words.NoticeGiven(110.0, USR1))
    state, out = run(state, limited(110.0, left_s))
    if left_s:
        assert wakes(state, 110.1) == pytest.approx(term_by)
        assert "terminate" not in said(out)
        state, out = run(state, words.Tick(term_by + 0.01))
    (told,) = [action for action in out if isinstance(action, words.Terminate)]
    assert (told.signal, told.softly) == (TERM, True)
    if left_s:
        assert wakes(state, term_by + 0.02) == pytest.approx(kill_by)
        state, out = run(state, words.Tick(kill_by + 0.01))
    assert "kill" in said(out)
    state, out = run(state, words.NothingLeft(kill_by + 0.1, Round(3)), words.Tick(kill_by + 60))
    (end,) = [action for action in out if isinstance(action, words.Exit)]
    assert (end.code, end.sentence) == (75, f"this node was asked to leave: {NEAR}")


def test_a_notice_without_a_limit_ends_nobody() -> None:
    state, out = run(in_round(settings=ASKS), words.NoticeGiven(110.0, USR1), limited(110.1, None, ""))
    _, more = run(state, words.Tick(100000.0))
    assert "terminate" not in said(out + more)


def test_a_term_waits_with_its_exit_for_the_answer_and_with_nothing_else() -> None:
    state, out = run(in_round(settings=ASKS, told=True), words.LeaveAsked(110.0, TERM))
    assert [name for name in said(out) if name != "stop(3)"] == ["asklimit", "terminate"]
    done = replace(state, ranks=Ranks.NONE, alive=frozenset(), inc=0, mod=0)
    assert said(run(done, words.Tick(110.2))[1]) == []
    for answer, code in ((limited(110.3, 20.0, "it is over", True), 75), (limited(110.3, None, "", True), 143)):
        (end,) = [action for action in run(done, answer)[1] if isinstance(action, words.Exit)]
        assert end.code == code
    (end,) = [action for action in run(done, words.Tick(117.1))[1] if isinstance(action, words.Exit)]
    assert end.code == 143, "no answer"


def test_the_grace_of_a_term_is_cut_to_what_is_left() -> None:
    state, _ = run(in_round(settings=ASKS), words.LeaveAsked(110.0, TERM))
    assert state.kill_at == 140.0
    state, _ = run(state, limited(110.2, 20.0, "it is over", True))
    assert wakes(state, 110.3) == pytest.approx(110.2 + 12.0)
