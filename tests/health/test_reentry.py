"""When ranks go on from a checkpoint as they should, when they do not, and all that is doubtful between."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health.evidence import Entry, Said
from remuster.health.reentry import ENOUGH, MOST, Proven, Refuted, Resumed, Unproven, judge

NAN, INF = math.nan, math.inf
AT = Resumed(150)
Answer = Unproven | Proven | Refuted


def said(first: int, count: int, **values: Callable[[int], float]) -> Said:
    """Return what a rank has said that did ``count`` steps, with values that are functions of the step."""
    entries = [Entry(s, **{name: of(s) for name, of in values.items()}) for s in range(first, first + count)]
    return Said(tuple(entries[:32]), tuple(entries[-32:]))


def loss(step: int) -> float:
    """Fall as losses do, with some noise."""
    return 2.0 + 40 / (step + 10) + 0.1 * math.sin(step)


def rate(step: int) -> float:
    return 1e-3 * (1 - step / 1000)


BEFORE = {0: said(101, 70, loss=loss, lr=rate, grad_norm=lambda s: 1 + 0.2 * math.cos(s))}


def after(count: int = 6, first: int = 151, at: Resumed = AT, **values: Callable[[int], float]) -> Answer:
    return judge(at, {0: said(first, count, **values)}, BEFORE)


def test_five_steps_are_enough_where_their_loss_is_as_it_was() -> None:
    for count in range(ENOUGH):
        assert after(count, loss=loss, lr=rate) == Unproven(count, "" if count else "no rank says its steps")
    assert after(5, loss=loss, lr=rate) == Proven(5, "steps, loss, lr")
    assert after(5, loss=lambda s: 1.3 * loss(s)) == Proven(5, "steps, loss")  # not bit for bit


@pytest.mark.parametrize("before", [{}, BEFORE, {0: said(101, 70)}])
def test_steps_alone_take_twenty(before: dict[int, Said]) -> None:
    for count, answer in ((19, Unproven(19)), (20, Proven(20, "steps")), (32, Proven(20, "steps"))):
        assert judge(AT, {0: said(151, count)}, before) == answer


def test_values_that_nothing_is_known_to_compare_with_must_be_numbers() -> None:
    assert judge(AT, {0: said(151, 19, loss=loss)}, {}) == Unproven(19)
    assert judge(AT, {0: said(151, 20, loss=loss)}, {}) == Proven(20, "steps")
    found = judge(AT, {0: said(151, 20, loss=lambda s: INF if s == 170 else 1.0)}, {})
    assert found == Unproven(20, "rank 0 has a loss of inf at step 170")


@pytest.mark.parametrize(("first", "stride"), [(150, 1), (151, 1), (150, 10), (160, 10), (155, 10), (152, 2)])
def test_where_the_first_step_is_right(first: int, stride: int) -> None:
    """A script may say the step that it resumed from, and may say only each tenth."""
    entries = tuple(Entry(step) for step in range(first, first + 21 * stride, stride))
    assert isinstance(judge(AT, {0: Said(entries, entries)}, {}), Proven)


@pytest.mark.parametrize("first", [0, 1, 100, 149, 152, 299])
def test_a_wrong_first_step_is_clear_after_five(first: int) -> None:
    """149, which goes on over 150, too: it has not begun at the step that it was given."""
    assert isinstance(after(ENOUGH - 1, first=first), Unproven)
    found = after(ENOUGH, first=first)
    assert isinstance(found, Refuted)
    assert (found.rank, found.steps) == (0, ENOUGH)
    assert found.why.startswith(f"said step {first} first, ")
    assert found.why.endswith("where step 151 comes after the checkpoint's")


@pytest.mark.parametrize("first", [0, 100, 149, 152, 299])
def test_no_first_step_is_wrong_where_the_checkpoint_may_be_numbered_by_something_else(first: int) -> None:
    """Its number is its name's alone: of an epoch, of a save."""
    assert isinstance(after(20, first=first, at=Resumed(150, counted=False)), Unproven)


def test_a_checkpoint_that_may_count_epochs_is_not_refuted_by_steps() -> None:
    for count in (5, 20, 32):
        found = after(count, first=4001, at=Resumed(3, counted=False), loss=loss)
        assert isinstance(found, Unproven)
        assert found.steps == 0


@pytest.mark.parametrize(
    ("first", "before"),
    [
        (301, {}),  # eight batches for each update of the weights, say
        (300, BEFORE),  # two, numbered from 0
        (76, {0: said(1, 160)}),  # the checkpoint counts batches, and two make an update
        (1, {0: said(324, 20)}),  # … epochs, and each of them counts from 1
        (4, {}),  # … samples: 150 of them
        (0, {}),  # each process counts anew, and no other is known
        (1, {}),
        (1, {0: said(1, 160)}),  # … and here it did so before
        (0, {0: said(0, 160, loss=lambda _: 0.0)}),
        (1201, {0: said(1000, 250)}),
        (4, {0: said(1, 3)}),  # says epochs
    ],
)
def test_steps_that_may_count_something_else_than_the_checkpoint_are_not_refuted(
    first: int, before: dict[int, Said]
) -> None:
    found = judge(AT, {0: said(first, 20)}, before)
    assert isinstance(found, Unproven)
    assert found.why.startswith(f"rank 0 said step {first} first")


def test_ranks_are_together() -> None:
    both = {3: said(151, 20), 4: said(151, 12)}
    assert judge(AT, both, {}) == Unproven(12)
    assert judge(AT, {**both, 4: said(151, 20)}, {}) == Proven(20, "steps")
    assert judge(AT, {**both, 4: Said()}, {}) == Proven(20, "steps")  # one of them alone says them
    assert judge(AT, {3: said(151, 19), 4: Said()}, {}) == Unproven(19)
    assert judge(AT, {**both, 4: said(152, 20)}, {}) == Unproven(0, "rank 4 says other steps than rank 3")


def test_steps_that_go_back_prove_nothing_and_refute_nothing() -> None:
    entries = tuple(map(Entry, (0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3)))
    assert judge(AT, {0: Said(entries, entries)}, {}) == Unproven(0, "the steps of rank 0 do not go up evenly")


def test_a_loss_that_is_no_number_refutes_once_it_stays_so() -> None:
    assert isinstance(after(2, loss=lambda _: NAN), Unproven)
    found = after(3, loss=lambda _: NAN)
    assert found == Refuted(0, 3, "has a loss of nan since step 151")
    skipped = after(8, loss=lambda s: NAN if s == 152 else loss(s))
    assert skipped == Proven(8, "steps, loss")


def test_a_rank_that_never_has_a_loss_refutes_nothing() -> None:
    """Such a stage of a pipeline says NaN in each step, and did so before."""
    now = {0: said(151, 20, loss=lambda _: NAN)}
    for before in ({}, {0: said(101, 70, loss=lambda _: NAN)}):
        assert isinstance(judge(AT, now, before), Unproven)


def test_gradients_that_overflow_at_first_are_no_news() -> None:
    """A scaler that begins anew finds its scale in some steps."""
    assert after(15, loss=loss, grad_norm=lambda s: INF if s < 161 else 1.0) == Proven(15, "steps, loss, grad_norm")
    assert isinstance(after(19, loss=loss, grad_norm=lambda _: INF), Unproven)
    assert after(20, grad_norm=lambda _: INF) == Refuted(0, 20, "has a grad_norm of inf since step 151")


def test_a_loss_as_of_the_beginning_refutes_after_ten_steps() -> None:
    fresh = lambda s: 3 * loss(s - 150)  # noqa: E731
    assert isinstance(after(9, loss=fresh), Unproven)
    found = after(10, loss=fresh)
    assert isinstance(found, Refuted)
    assert found.why.startswith("has a loss of ")
    assert isinstance(after(32, loss=lambda s: 0.1 * loss(s)), Unproven)  # too good is no cause to end anything


def test_one_high_loss_refutes_nothing() -> None:
    assert isinstance(after(10, loss=lambda s: 50.0 if s > 151 else loss(s)), Unproven)


def test_the_learning_rate_is_that_of_the_same_step() -> None:
    found = after(5, loss=loss, lr=lambda s: rate(s - 150))
    assert found == Refuted(0, 5, "has a learning rate of 0.000999 at step 151, where it was 0.000849")
    assert isinstance(after(5, loss=loss, lr=lambda s: rate(s) * (1.1 if s == 153 else 1)), Unproven)


def test_a_process_that_counts_its_own_steps_is_not_held_against_the_same_numbers() -> None:
    """Loss and rate are those of step 151 on, and the script says 1 again."""
    before = {0: said(1, 160, loss=loss, lr=rate)}
    now = {"loss": lambda s: loss(s + 150), "lr": lambda s: rate(s + 150)}
    for at in (AT, Resumed(3, counted=False)):
        for count in (5, 10, 32):
            found = judge(at, {0: said(1, count, **now)}, before)
            assert isinstance(found, Unproven)
            assert found.why.startswith("rank 0 said step 1 first")


def test_who_has_the_losses_of_the_beginning_has_begun_anew() -> None:
    before = {0: said(1, 160, loss=loss)}
    assert isinstance(judge(AT, {0: said(1, 4, loss=loss)}, before), Unproven)
    assert isinstance(judge(AT, {0: said(1, 5, loss=loss)}, before), Refuted)


def test_a_loss_before_all_that_are_known_may_be_higher() -> None:
    """An older checkpoint than the attempt before had begun with, or one between its first steps and its last."""
    steep = lambda s: 1000.0 / s  # noqa: E731
    for before in (said(141, 200, loss=steep), said(1, 900, loss=steep)):
        for count in (10, 32):
            found = judge(Resumed(80), {0: said(81, count, loss=steep)}, {0: before})
            assert not isinstance(found, Refuted)


def test_steps_of_an_epoch_are_no_steps_of_another() -> None:
    """Each epoch counts from 1; the rate of step 41 is that of the first epoch, and the last one known of the third."""
    of_epochs = [Entry(1 + s % 97, loss(s), None, rate(s)) for s in range(240)]
    before = {0: Said(tuple(of_epochs[:32]), tuple(of_epochs[-32:]))}
    assert not isinstance(judge(Resumed(40), {0: said(41, 10, loss=loss, lr=rate)}, before), Refuted)


def test_a_schedule_that_waits_for_its_scaler_lags() -> None:
    """A new loss scale overflows in some steps, and such a step is none of the schedule's."""
    lagging = lambda s: rate(s - 3)  # noqa: E731
    for count in (5, 19, 32):
        assert not isinstance(after(count, loss=loss, lr=lagging), Refuted)


def test_where_no_step_is_the_same_losses_are_held_against_the_last_ones() -> None:
    at = Resumed(170)  # saved at the last step of all
    assert after(5, first=171, at=at, loss=loss, lr=lambda s: rate(s) / 10) == Proven(5, "steps, loss")
    found = after(10, first=171, at=at, loss=lambda _: 30.0)
    assert isinstance(found, Refuted)


FLOATS = st.one_of(st.none(), st.floats(), st.floats(0.1, 10))
ENTRIES = st.builds(Entry, st.integers(-5, 200), FLOATS, FLOATS, FLOATS)
SAID = st.builds(lambda some: Said(tuple(some[:32]), tuple(some[-32:])), st.lists(ENTRIES, max_size=40))
RANKS = st.dictionaries(st.integers(0, 3), SAID, max_size=3)


@given(st.integers(0, 200), st.booleans(), RANKS, RANKS)
def test_whatever_stands_in_the_memory_it_answers(
    step: int, counted: bool, now: dict[int, Said], before: dict[int, Said]
) -> None:
    found = judge(Resumed(step, counted), now, before)
    assert isinstance(found, (Unproven, Proven, Refuted))
    assert found.steps >= 0


@given(st.integers(2, 1000), st.integers(5, 32), st.floats(0.8, 1.2), st.integers(0, 2**32))
def test_a_run_that_goes_on_as_it_did_is_never_refuted(step: int, count: int, share: float, seed: int) -> None:
    """Whatever its noise: the second time has another, within a fifth. (Of steps 0 and 1 a number says too little.)"""

    def noisy(s: int, turn: int) -> float:
        return loss(s) * (1 + 0.2 * math.sin(seed + 7 * s + turn))

    before = {0: said(step + 1, 25, loss=lambda s: noisy(s, 0), lr=rate)}
    now = {0: said(step + 1, count, loss=lambda s: share * noisy(s, 1), lr=rate)}
    found = judge(Resumed(step), now, before)
    assert isinstance(found, Proven)
    assert found.steps <= MOST
