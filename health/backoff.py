"""How long the next try of a job waits: data, and one function over it. Pure; ``policy.py`` asks after each failure.

Three reasons to wait, of which the longest counts. A store, a server or a link that is ill must not be stormed by all
nodes at once again. A crash loop must not burn through a budget in a minute. And whatever the family, rounds that fail
one after the other within moments are a storm. What is planned (a node that leaves or joins) never waits.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_S, CAP_S, JITTER = 5.0, 300.0, 0.5  # 5, 10, 20 … 300 s, each ±50 %: jobs that failed together come apart
# Families that the world outside decides: how many failures in a row go by at once. A class whose action in
# classes.csv says "back-off" waits from its first.
PATIENT = {"storage": 1, "network": 1, "rendezvous": 1}
STORM, QUICK_S = 5, 12.0  # the brake: from the fifth failed round in a row, each of which ran shorter than this
LOOP, LOOP_CAP_S = 2, 60.0  # a crash loop: after so many charged failures in a row 1, 2, 4 … 60 s


class Rows(NamedTuple):
    """Failures in a row without progress, the present one included: see ``policy.Memory``."""

    backed: int
    quick: int
    looped: int


def next_try_s(family: str, action: str, rows: Rows, seed: str) -> int:
    """Return the seconds until the next round may form. ``seed`` decides the jitter: the same for the same facts."""
    at_once = 0 if "back-off" in action else PATIENT.get(family)
    waits = [0.0 if rows.looped <= LOOP else min(2.0 ** min(rows.looped - LOOP - 1, 10), LOOP_CAP_S)]
    if at_once is not None and rows.backed > at_once:
        waits.append(_grown(rows.backed - at_once - 1, seed))
    if rows.quick >= STORM:
        waits.append(_grown(rows.quick - STORM, seed))
    return round(max(waits))


def _grown(n: int, seed: str) -> float:
    from zlib import crc32

    share = crc32(seed.encode("utf-8", "replace")) / 0xFFFFFFFF
    return min(FIRST_S * 2.0 ** min(n, 10), CAP_S) * (1 - JITTER + 2 * JITTER * share)
