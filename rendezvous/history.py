"""What stands at ``history/<n>``: where round n resumed, and what was passed over, as its close wrote it. Pure.

Whoever can write to the store may have written it: what is no entry says nothing.
"""

from __future__ import annotations

import json
from typing import cast

from .asked import MOST_RANKS
from .records import Round

History = tuple[tuple[Round, bytes], ...]
"""Rounds with their entries, oldest first."""


def entry(raw: bytes) -> dict[str, object]:
    """Parse a round's history entry as its close wrote it; empty when it is none."""
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def entry_of(history: History, n: Round) -> dict[str, object]:
    """Return the entry of round ``n``; empty when there is none."""
    for m, raw in history:
        if m == n:
            return entry(raw)
    return {}


def passed_over(chosen: dict[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of checkpoints that a history entry says were passed over, each with the reason."""
    pairs = chosen.get("refused")
    found = cast("list[list[object]]", pairs) if isinstance(pairs, list) else []
    return tuple((str(pair[0]), str(pair[1])) for pair in found if len(pair) == 2)


def steps(history: History) -> tuple[tuple[Round, int | None], ...]:
    """Return each round of a history with the step it resumed from; None: from nothing."""
    out: list[tuple[Round, int | None]] = []
    for n, raw in history:
        step = entry(raw).get("step")
        out.append((n, step if isinstance(step, int) and step >= 0 else None))
    return tuple(out)


def worlds(history: History) -> tuple[tuple[Round, int], ...]:
    """Return how many ranks the rounds of a history had, those of which that is known."""
    found = ((n, entry(raw).get("world")) for n, raw in history)
    return tuple((n, world) for n, world in found if type(world) is int and 0 < world <= MOST_RANKS)


def sized(history: History) -> tuple[tuple[Round, int | None, int], ...]:
    """Return the rounds of which the number of ranks is known, each with where it resumed and that number."""
    resumed = dict(steps(history))
    return tuple((n, resumed[n], world) for n, world in worlds(history))
