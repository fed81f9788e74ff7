"""When silence is taken for a hang: a run is played beat by beat, and looked at whenever the judge asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remuster.health import hang
from remuster.health.evidence import Beat
from remuster.health.hang import FLOOR_S, LEARNING_S, PAUSES, STEPS, WORKING, Look, Sample, Terms, Trail

COMPUTED = Terms()


class Outside(NamedTuple):
    """What is seen from outside at a time: output and data in bytes, each rank's time on a processor, busy GPUs."""

    written: Callable[[float], int] = lambda at: 0
    moved: Callable[[float], int] = lambda at: 0
    cpu_s: Callable[[float], dict[int, float]] = lambda at: {0: 0.0, 1: 0.0}
    gpu: Callable[[float], dict[int, bool]] = lambda at: {}


STILL = Outside()
Page = Callable[[float], dict[int, Beat]]


def page(times: dict[int, Sequence[float]]) -> Page:
    """Return what the ranks' slots hold at a time, when they beat at ``times``."""

    def at(now: float) -> dict[int, Beat]:
        found = {}
        for rank, beats in times.items():
            past = [beat for beat in beats if beat <= now]
            if past:
                longest = max((b - a for a, b in pairwise(past)), default=0.0)
                found[rank] = Beat(len(past), past[0], past[-1], len(past), longest)
        return found

    return at


def play(page: Page, until: float, terms: Terms = COMPUTED, outside: Outside = STILL) -> tuple[float, Look] | None:
    """Look as ``hang_watch.py`` does; return when the alarm came and what it said."""
    now, looks = 0.0, 0
    trail: Trail | None = None
    while now < until:
        found = hang.look(page(now), now, 0.0, terms, trail)
        if found.alarm:
            return now, found
        assert not (found.gpus and page(now)), "steps tell more than GPUs"
        gpu = outside.gpu(now) if found.gpus else {}
        sample = Sample(now, outside.written(now), outside.moved(now), outside.cpu_s(now), gpu)
        if not found.sample:
            trail = None
        elif hang.stale(trail, now):
            trail = hang.follow(trail, sample)
        assert found.next_s > now or (found.sample and found.next_s == now), "it would spin"
        now, looks = found.next_s, looks + 1
        assert looks < 100_000
    assert looks <= until / hang.LOOK_LEAST_S + 2
    return None


def run(gaps: Sequence[float], start: float = 1.0, ranks: int = 2) -> dict[int, list[float]]:
    """Return when ranks beat that wait for one another in every step."""
    times = [start]
    for gap in gaps:
        times.append(times[-1] + gap)
    return {rank: [at + 0.01 * rank for at in times] for rank in range(ranks)}


steps = st.floats(0.05, 40.0)


@given(steps, st.lists(st.floats(0.7, 3.0), min_size=20, max_size=60), st.floats(1.0, 20.0), st.integers(3, 9))
def test_jitter_and_periodic_saves_of_twenty_steps_are_no_hang(
    step: float, jitter: list[float], save: float, every: int
) -> None:
    gaps = [step * (save if i % every == every - 1 else part) for i, part in enumerate(jitter)]
    times = run(gaps)
    assert play(page(times), times[0][-1]) is None


@given(st.lists(st.floats(0.01, 90.0), min_size=1, max_size=60))
def test_nothing_below_the_floor_is_a_hang(gaps: list[float]) -> None:
    times = run(gaps)
    assert play(page(times), times[0][-1] + FLOOR_S - 1) is None


@given(st.lists(st.floats(0.01, 5.0), min_size=12, max_size=30), st.floats(100.0, 20_000.0), st.integers(0, 11))
def test_a_pause_that_was_seen_may_come_again_and_take_nearly_three_times_as_long(
    gaps: list[float], pause: float, where: int
) -> None:
    """The first time it is bounded by what a run may do while it is learnt; this one has been let through."""
    times = run([*gaps[:where], pause, *gaps[where:], pause * (PAUSES - 0.01)])
    began = times[0][-2]
    said = page(times)(began + pause * (PAUSES - 0.02)).values()
    assert hang.allowed(said, COMPUTED).s >= pause * (PAUSES - 0.02)


@given(steps, st.integers(12, 80), st.floats(1.0, 25.0), st.booleans())
def test_a_stop_is_always_found_within_its_bound(step: float, count: int, longest: float, working: bool) -> None:
    """Red when signs of work put the alarm off for ever."""
    times = run([step] * count + [step * longest] + [step] * 3)
    stop = times[0][-1]
    outside = Outside(written=lambda at: int(at)) if working else STILL
    bound = max(FLOOR_S, STEPS * step * 31, PAUSES * step * longest)
    found = play(page(times), math.inf, outside=outside)
    assert found is not None
    at, alarm = found
    may = hang.allowed(page(times)(at).values(), COMPUTED).s
    assert may <= bound
    most = may * (WORKING if working else 1) + 0.02 + hang.LOOK_MOST_S
    assert may - 0.02 <= at - stop <= most
    assert working or at - stop <= may + hang.LOOK_MOST_S + 0.02
    assert alarm.rank == -1
    assert f"after {len(times[0])} " in alarm.alarm


@given(st.floats(1.0, 1e4), st.integers(1, 9))
def test_start_and_first_steps_take_what_they_take(first: float, count: int) -> None:
    assert play(lambda now: {}, first) is None
    times = run([1.0] * (count - 1), start=first)
    found = play(page(times), math.inf)
    assert found is not None
    assert LEARNING_S - 0.1 <= found[0] - times[0][-1] <= LEARNING_S + hang.LOOK_MOST_S + 1


def test_the_rank_that_is_behind_the_others_is_named() -> None:
    times = run([1.0] * 50, ranks=3)
    del times[1][-1]
    found = play(page(times), math.inf, outside=STILL._replace(cpu_s=lambda at: {0: 0.0, 1: 0.0, 2: 0.0}))
    assert found is not None
    assert (found[1].rank, found[1].alarm.partition(" has")[0]) == (1, "rank 1, behind the others,")


def test_a_rank_that_has_ended_is_waited_for_by_nobody() -> None:
    """It says no step any more, and the others go on for long."""
    times = {0: [float(at) for at in range(1, 2000)], 1: [float(at) for at in range(1, 20)]}
    alone = STILL._replace(cpu_s=lambda at: {0: 0.0} if at > 20 else {0: 0.0, 1: 0.0})
    assert play(page(times), 1999.0, outside=alone) is None


def test_when_all_have_ended_nothing_is_looked_at_again() -> None:
    times = run([1.0] * 50)
    assert play(page(times), 1e9, outside=STILL._replace(cpu_s=lambda at: {})) is None


# --- the user's word -------------------------------------------------------------------------------------------------
@given(steps, st.floats(1.0, 5000.0))
def test_what_the_user_gives_stands_in_place_of_what_is_computed(step: float, given_s: float) -> None:
    times = run([step] * 30 + [step * 30] + [step])
    assume(abs(step - given_s) > 0.1 < abs(30 * step - given_s))
    terms = Terms(given_s, seen_s=1e4, patience_s=1e4)
    assert hang.allowed(page(times)(1e9).values(), terms).s == given_s
    found = play(page(times), math.inf, terms, Outside(written=lambda at: int(at)))
    assert found is not None
    gap = next((i for i, s in enumerate([step] * 30 + [step * 30] + [step]) if s >= given_s), None)
    stop = times[0][-1] if gap is None else times[0][gap]
    assert given_s - 0.02 <= found[0] - stop <= given_s + 0.02


@given(st.floats(2.0, 1000.0), st.floats(0.0, 1000.0))
def test_without_steps_silence_and_an_idle_rank_make_a_hang(given_s: float, quiet_from: float) -> None:
    outside = Outside(
        written=lambda at: int(min(at, quiet_from) * 1000),
        cpu_s=lambda at: {0: at, 1: min(at, quiet_from)},  # rank 0 spins in a collective
    )
    found = play(lambda now: {}, math.inf, Terms(given_s), outside)
    assert found is not None
    assert quiet_from + given_s - 1 <= found[0] <= quiet_from + given_s + 3 * hang.LOOK_MOST_S
    assert found[1].rank == 1
    assert "1 of its 2 ranks used no processor" in found[1].alarm


@pytest.mark.parametrize(
    "outside",
    [
        Outside(written=lambda at: int(at / 9)),
        Outside(moved=lambda at: int(at) << 20),
        Outside(cpu_s=lambda at: {0: at * 0.03, 1: at}),
        Outside(cpu_s=lambda at: {0: float(int(at) % 100), 1: at}),  # its children come and go
    ],
)
def test_without_steps_a_sign_of_work_is_no_hang(outside: Outside) -> None:
    assert play(lambda now: {}, 3000.0, Terms(60.0), outside) is None


@pytest.mark.parametrize(
    ("gpu", "rank", "words"),
    [
        (lambda at: {0: True, 1: True}, None, ""),
        (lambda at: {0: True, 1: int(at / 30) % 2 == 0}, None, ""),  # half a minute for a save, now and then
        (lambda at: {0: True, 1: False}, 1, "1 of its 2 ranks used neither processor nor GPU; "),
        (lambda at: {0: False, 1: False}, -1, "2 of its 2 ranks used neither processor nor GPU; "),
        (lambda at: {}, -1, "2 of its 2 ranks used no processor; "),
        (lambda at: {0: True}, 1, "1 of its 2 ranks used no processor; "),
        (lambda at: {1: False}, -1, "2 of its 2 ranks used no processor; "),
    ],
    ids=["busy", "at times", "one idle", "idle", "unknown", "one busy", "one unknown"],
)
def test_without_steps_a_gpu_that_computes_is_a_sign_of_work(
    gpu: Callable[[float], dict[int, bool]], rank: int | None, words: str
) -> None:
    """Ranks that sleep until their GPU is done; what nobody knows of a GPU changes nothing."""
    found = play(lambda now: {}, 3000.0, Terms(60.0), STILL._replace(gpu=gpu))
    if rank is None:
        assert found is None
    else:
        assert found is not None
        assert 60.0 <= found[0] <= 60.0 + hang.LOOK_MOST_S
        assert found[1].rank == rank
        assert words in found[1].alarm


def test_patience_with_a_gpu_ends_with_its_kernel() -> None:
    busy = STILL._replace(gpu=lambda at: {0: at < 600.0, 1: at < 600.0})
    found = play(lambda now: {}, 3000.0, Terms(60.0), busy)
    assert found is not None
    assert 650.0 <= found[0] <= 600.0 + 60.0 + hang.LOOK_MOST_S


def test_without_steps_and_without_the_flag_nothing_is_a_hang() -> None:
    assert play(lambda now: {}, 1e6) is None


# --- what is learnt --------------------------------------------------------------------------------------------------
def test_each_alarm_makes_more_patient_up_to_a_bound() -> None:
    times, terms, waits = run([1.0] * 20), COMPUTED, []
    for _ in range(6):
        found = play(page(times), math.inf, terms)
        assert found is not None
        waits.append(round(found[0] - times[0][-1], -1))
        terms = hang.raised(terms, waits[-1])
    assert waits == [300, 600, 1200, 2400, 3600, 3600]


def test_pauses_of_earlier_rounds_count() -> None:
    said = page(run([1.0] * 20 + [400.0]))(1e9).values()
    terms = Terms(seen_s=hang.longest_s(said, Terms(seen_s=100.0)))
    assert terms.seen_s == pytest.approx(400.0)
    assert hang.allowed(page(run([1.0] * 20))(1e9).values(), terms).s == pytest.approx(1200.0)


def test_nothing_is_held_against_ranks_from_before_a_thaw() -> None:
    beats, trail = page(run([1.0] * 20))(1e4), hang.follow(None, Sample(1e4, 0, 0, {0: 0.0, 1: 0.0}))
    assert hang.look(beats, 1e4, 0.0, COMPUTED, trail).alarm
    assert hang.look(beats, 1e4, 1e4 - 10, COMPUTED, trail) == Look(1e4 - 10 + FLOOR_S / 2)


@given(st.floats(allow_nan=True), st.floats(allow_nan=True), st.floats(allow_nan=True), st.integers(1, 1 << 62))
def test_nonsense_in_a_slot_raises_nothing(first: float, last: float, longest: float, count: int) -> None:
    beats = {0: Beat(3, first, last, count, longest), 1: Beat(3, 1.0, 2.0, 20, 1.0)}
    trail = Trail(Sample(5.0, 0, 0, {0: 0.0, 1: 0.0}), 5.0, {0: 5.0, 1: 5.0})
    hang.look(beats, 1e6, 0.0, COMPUTED, trail)
    hang.stragglers(beats)
    assert hang.silent_s(beats[0], 1e6, 0.0) >= 0


# --- stragglers ------------------------------------------------------------------------------------------------------
def test_a_straggler_is_one_whose_steps_take_longer_than_the_others() -> None:
    paces = {0: 1.0, 1: 1.1, 2: 2.0, 3: 0.9}
    times = {rank: [pace * i for i in range(20)] for rank, pace in paces.items()}
    assert hang.stragglers(page(times)(1e9)) == {2: pytest.approx(2.0 / 1.0)}
    assert hang.stragglers(page({r: t[:9] for r, t in times.items()})(1e9)) == {}
    assert hang.stragglers(page({2: times[2]})(1e9)) == {}


# --- clocks ----------------------------------------------------------------------------------------------------------
TWENTY = page(run([1.0] * 20))  # said its last at 21 s


@pytest.mark.parametrize(
    ("late_s", "since_s"),
    [(0.0, 0.0), (1.0, 0.0), (4.0, 25.0), (10.0, 31.0), (10.5, 160.5), (3600.0, 3750.0)],
)
def test_a_look_that_comes_late_does_not_count_the_time_by_which_it_is_late(late_s: float, since_s: float) -> None:
    beats = TWENTY(1e9).values()
    assert hang.woken(0.0, beats, None, 150.0, 150.0 + late_s) == pytest.approx(since_s)


@given(st.floats(0.0, 300.0), st.floats(0.0, 5000.0), st.floats(0.0, 5000.0))
def test_nothing_that_is_late_brings_the_alarm_forward_or_takes_it_into_the_future(
    since: float, wanted: float, late: float
) -> None:
    found = hang.woken(since, TWENTY(1e9).values(), None, wanted, wanted + late)
    assert min(since, wanted + late) <= found <= max(since, wanted + late)


def test_a_node_that_is_always_late_finds_a_hang_all_the_same() -> None:
    since, now = 0.0, 21.0
    for _ in range(1000):
        found = hang.look(TWENTY(now), now, since, Terms(given_s=20.0), None)
        if found.sample and found.next_s == now:
            found = hang.look(
                TWENTY(now), now, since, Terms(given_s=20.0), hang.follow(None, Sample(now, 0, 0, {0: 0.0, 1: 0.0}))
            )
        if found.alarm:
            break
        since, now = hang.woken(since, TWENTY(now).values(), None, found.next_s, found.next_s + 5.0), found.next_s + 5.0
    assert 41.0 < now < 120.0


def test_a_stop_of_ranks_and_agent_is_no_pause_that_they_may_make_again() -> None:
    """A job that was suspended for eight hours: a hang right after it was found a day later."""
    away = 8 * 3600.0
    before, after = TWENTY(21.0), page(run([1.0] * 20 + [away + 1.0, *[1.0] * 5]))(1e9)
    assert hang.allowed(after.values(), COMPUTED).s > 24 * 3600
    terms = hang.stopped(COMPUTED, away, before.values())
    assert hang.allowed(after.values(), terms).s == FLOOR_S
    terms = hang.stopped(COMPUTED, away, page(run([1.0] * 20 + [250.0]))(1e9).values())
    seen = page(run([1.0] * 20 + [250.0, away + 1.0]))(1e9)
    assert hang.allowed(seen.values(), terms).s == pytest.approx(750.0)  # a pause from before counts


def test_an_agent_that_stood_still_alone_takes_no_pause_from_its_ranks() -> None:
    said = page(run([1.0] * 20 + [250.0]))(1e9).values()
    terms = hang.stopped(COMPUTED, 400.0, TWENTY(21.0).values())
    assert hang.allowed(said, terms).s == pytest.approx(750.0)
    assert hang.stopped(COMPUTED, 1.0, said) == COMPUTED


def test_sleep_of_the_machine_makes_no_step_longer() -> None:
    """Steps of a second, and a night in between: thirty steps were taken to last the night three times."""
    beats = [Beat(20, 0.0, 19.0 + 30_000.0, 20, 1.0, slept) for slept in (0.0, 30_000.0)]
    assert hang.allowed(beats[:1], COMPUTED).s > 40_000
    assert hang.allowed(beats[1:], COMPUTED).s == FLOOR_S
    assert not hang.stragglers({0: beats[1], 1: Beat(20, 0.0, 19.0, 20, 1.0)})
