"""Each wrong reading of the protocol, planted, is caught by an invariant that is about it."""

from __future__ import annotations

import pytest
from sim.invariants import Violation
from sim.plants import PLANTS
from sim.rules import Rules
from sim.world import Config, World

SCHEDULES = 200
DEAD_FIRST = {"1 one world", "8 resume", "5 join after sweep", "4 nothing is left"}
CAUGHT_BY = {
    "hole 1": DEAD_FIRST,
    "hole 2": DEAD_FIRST | {"7 ready"},
    "hole 3": {"2 membership"},
    "hole 4": DEAD_FIRST | {"9 liveness"},
    "hole 5": DEAD_FIRST,
    "hole 6": {"9 liveness"},
    "hole 7": {"9 liveness"},
    "hole 8": {"9 liveness"},
    "hole 9": {"2 rounds"},
    "hole 11": {"3 budget"},
    "hole 12": {"7 ready", "4 nothing is left"},
    "hole 13": {"2 rounds", "17 whole words"},
    "hole 14": DEAD_FIRST,
    "hole 15": {"4 done", "3 no false loss"},
    "hole 19": {"6 same start"},
    "no fence": DEAD_FIRST,
    "the lease guard dropped": {"5 lease"},
    "old words are kept for ever": {"10 left over"},
    "places": {"12 places"},
    "terms": {"11 terms"},
}


@pytest.mark.parametrize("rules", PLANTS, ids=lambda rules: rules.name)
def test_plant_is_caught(rules: Rules) -> None:
    caught = next(filter(None, (caught_by(rules, seed) for seed in range(SCHEDULES))), None)
    assert caught, f"{rules.name}: not caught in {SCHEDULES} schedules"
    print(f"{rules.name}: caught by [{caught.name}]: {caught.args[0].partition(':')[0]}")
    assert caught.name in CAUGHT_BY[rules.name.partition(":")[0]]


def caught_by(rules: Rules, seed: int, cfg: Config | None = None) -> Violation | None:
    """Play one schedule under ``rules``; return the invariant that did not hold."""
    try:
        World(seed, rules, cfg).play()
    except Violation as violation:
        return violation
    return None
