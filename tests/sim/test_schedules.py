"""Random schedules: whatever dies, hangs, is cut off or delayed, the invariants hold and the job comes to an end."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from sim.faults import KINDS, OTHERS
from sim.world import World

SCHEDULES = 200
CHUNK = 10
SOAK = range(100_000, 110_000)
SOAK_CHUNK = 200


@cache
def played(first: int, count: int) -> tuple[Counter[str], Counter[str], int]:
    """Play ``count`` schedules from seed ``first`` on; return faults, checks and the fewest events of one."""
    faults, stats, fewest = Counter[str](), Counter[str](), 1 << 30
    for seed in range(first, first + count):
        world = World(seed).play()
        faults += world.faults
        stats += world.stats
        fewest = min(fewest, world.events)
    return faults, stats, fewest


def all_played() -> tuple[Counter[str], Counter[str]]:
    chunks = [played(first, CHUNK) for first in range(0, SCHEDULES, CHUNK)]
    return sum((c[0] for c in chunks), Counter()), sum((c[1] for c in chunks), Counter())


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    _, _, fewest = played(first, CHUNK)
    assert fewest >= 150


def test_every_kind_of_fault_occurred() -> None:
    faults, _ = all_played()
    rare = {kind: faults[kind] for kind in (*KINDS, *OTHERS) if faults[kind] < 20}
    assert not rare, f"of {SCHEDULES} schedules too few had these: {rare}"


def test_no_invariant_holds_by_default() -> None:
    _, stats = all_played()
    least = {
        "rounds formed": 500,
        "closes after another round": 300,
        "closes after a member was gone": 200,
        "rank starts checked": 1000,
        "groups that trained": 200,
        "ready checked": 1000,
        "words collected": 200,
        "resume choices checked": 500,
        "charges": 100,
        "losses checked": 100,
        "ended by an alarm": 20,
        "fenced with ranks alive": 50,
        "lease expired": 200,
        "lease given up by a keeper": 50,
        "word left by a keeper": 20,
        "lease lost by a living agent": 100,
        "deposed": 50,
        "start refused": 20,
        "guard held off a write without lease": 200,
        "late or doubled writes that took effect": 50,
        "launches ended DONE": 50,
        "launches ended FAILED": 50,
        "left-over keys checked": 50,
        "places checked": 100,
        "terms checked": 1000,
        "re-entries whose steps agree": 50,
        "re-entries that are proven": 20,
    }
    seldom = {name: stats[name] for name, count in least.items() if stats[name] < count}
    assert not seldom, f"of {SCHEDULES} schedules too few exercised these: {seldom}"


def test_a_round_that_has_just_finished_is_not_ended_for_a_newcomer() -> None:
    """A checkpoint and the last rank's end come together, and the leader sees the one before the other."""
    World(100463).play()


def test_a_seed_plays_the_same_schedule_each_time() -> None:
    one, two = World(7).play(), World(7).play()
    assert [str(line) for line in one.truth.chronicle] == [str(line) for line in two.truth.chronicle]
    assert (one.events, one.stats, one.faults) == (two.events, two.stats, two.faults)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, SOAK_CHUNK))
def test_soak(first: int) -> None:
    played(first, SOAK_CHUNK)
