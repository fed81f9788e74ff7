"""The stale-token rule: a step of round m is refused when a later round had resumed from before it."""

from __future__ import annotations

import pytest

from remuster.checkpoint.select import History, Origin, Worlds, judge, ranks_that_wrote


@pytest.mark.parametrize(
    ("round_", "step", "history", "accepted"),
    [
        pytest.param(1, 10, (), True, id="first round, nothing known"),
        pytest.param(1, 10, ((1, None),), True, id="the newest round's own step"),
        pytest.param(1, 10, ((1, None), (2, 10)), True, id="the next round resumed from this very step"),
        pytest.param(1, 10, ((1, None), (2, 20)), True, id="the next round resumed from a later step"),
        pytest.param(1, 10, ((1, None), (2, 5)), False, id="the next round resumed from an earlier step"),
        pytest.param(1, 10, ((1, None), (2, None)), False, id="the next round started from nothing"),
        pytest.param(1, 10, ((1, None), (2, 0)), False, id="step 0 is a step, and an earlier one"),
        pytest.param(1, 10, ((1, None), (2, 10), (3, 5)), False, id="some later round, not only the next"),
        pytest.param(1, 10, ((1, None), (2, 5), (3, 10)), False, id="it stays stale, wherever later ones resumed"),
        pytest.param(2, 10, ((1, None), (2, None), (3, 10)), True, id="an earlier round says nothing about it"),
        pytest.param(2, 10, ((3, 5), (1, 5), (2, 5)), False, id="the order of the history does not matter"),
        pytest.param(3, 10, ((1, None), (2, 5)), True, id="a round that formed after all that are known"),
        pytest.param(1, 0, ((1, None), (2, None)), False, id="step 0 when the next started from nothing"),
    ],
)
def test_a_step_of_this_run(round_: int, step: int, history: History, accepted: bool) -> None:
    assert judge(Origin("run", round_, step), "run", history).accepted is accepted


def test_the_reason_names_both_rounds_and_where_the_later_one_resumed() -> None:
    reason = judge(Origin("run", 1, 10), "run", ((1, None), (2, 5), (3, None))).reason
    assert "published by round 1, but round 2 had already resumed from step 5" in reason
    assert "from nothing" in judge(Origin("run", 2, 10), "run", ((3, None),)).reason


@pytest.mark.parametrize("other", ["", "run-b", "Run"])
def test_another_runs_step_carries_no_token_of_ours(other: str) -> None:
    ruling = judge(Origin(other, 1, 10), "run", ((2, None),))
    assert ruling.accepted
    assert ruling.reason == f"published by another run, {other!r}"


def test_who_only_looks_is_of_no_run_and_so_of_no_other() -> None:
    assert judge(Origin("run-b", 1, 10), "", ()).reason == "published by run 'run-b'"


@pytest.mark.parametrize(
    ("step", "worlds", "ranks"),
    [
        pytest.param(100, (), None, id="nothing known"),
        pytest.param(None, ((1, None, 2),), None, id="no step"),
        pytest.param(100, ((1, None, 2),), 2, id="the only round"),
        pytest.param(0, ((1, None, 2),), 2, id="step 0 of a round that began from nothing"),
        pytest.param(100, ((1, None, 2), (2, 100, 4)), 2, id="the one that the larger round resumed from"),
        pytest.param(150, ((1, None, 2), (2, 100, 4)), 4, id="one that the larger round has saved"),
        pytest.param(150, ((2, 100, 2), (1, None, 4)), 2, id="one of the smaller round, in whatever order"),
        pytest.param(50, ((1, None, 4), (2, 100, 2), (3, 20, 3)), 3, id="overwritten by one that went back behind it"),
        pytest.param(10, ((4, 20, 2),), None, id="of a round that is not known"),
    ],
)
def test_how_many_ranks_saved_a_step(step: int | None, worlds: Worlds, ranks: int | None) -> None:
    assert ranks_that_wrote(step, worlds) == ranks
