"""Agents at work while somebody writes into their run's keys: one world, no defect, and an end for every agent."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from sim.vandal import played

SCHEDULES = 160
CHUNK = 10
SOAK = range(200_000, 205_000)
SOAK_CHUNK = 200


@cache
def chunk(first: int, count: int) -> tuple[Counter[str], Counter[str]]:
    """Play ``count`` schedules from seed ``first`` on; return what was done to the store, and what came of it."""
    strikes, stats = Counter[str](), Counter[str]()
    for seed in range(first, first + count):
        world, vandal = played(seed)
        strikes += vandal.strikes
        stats += world.stats
    return strikes, stats


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_there_is_one_world_and_every_agent_ends(first: int) -> None:
    chunk(first, CHUNK)


def test_much_was_done_and_much_came_of_it() -> None:
    chunks = [chunk(first, CHUNK) for first in range(0, SCHEDULES, CHUNK)]
    strikes, stats = (sum((c[i] for c in chunks), Counter[str]()) for i in (0, 1))
    kinds = ("job", "nodes", "rounds", "terms", "report")
    often = {**{f"{kind} spoilt": 10 for kind in kinds}, "another job": 10, "new key": 20, "leader's key taken": 20}
    assert not {what: strikes[what] for what, least in often.items() if strikes[what] < least}
    ends = {"exit 0": 100, "exit 69": 100, "exit 75": 50, "abandoned by its leader": 50, "rounds formed": 200}
    assert not {what: stats[what] for what, least in ends.items() if stats[what] < least}


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, SOAK_CHUNK))
def test_soak(first: int) -> None:
    chunk(first, SOAK_CHUNK)
