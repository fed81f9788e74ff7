"""Seeds played in chunks, each once for all tests of a module that look at it. Not a test module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from sim.world import Config, World

CHUNK = 10
Counts = tuple[Counter[str], Counter[str]]


def chunks(of_seed: Callable[[int], Config]) -> Callable[[int], Counts]:
    """Return what plays ``CHUNK`` seeds from one on, once, and counts their faults and what was checked."""

    @cache
    def played(first: int) -> Counts:
        faults, stats = Counter[str](), Counter[str]()
        for seed in range(first, first + CHUNK):
            world = World(seed, None, of_seed(seed)).play()
            faults += world.faults
            stats += world.stats
        return faults, stats

    return played


def total(found: Iterable[Counts]) -> Counts:
    """Add chunks up."""
    faults, stats = Counter[str](), Counter[str]()
    for some, checked in found:
        faults += some
        stats += checked
    return faults, stats
