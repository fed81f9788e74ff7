"""How much is reserved and which part of which log goes: tables."""

from __future__ import annotations

import re

import pytest

from remuster.agent import room_plan
from remuster.agent.room_plan import AT_LIMIT, BLOCK, DIRE, DISK_FULL, MOST, PLENTY, RESERVE, Hole, Log

M = 1 << 20


@pytest.mark.parametrize(
    ("ahead", "grown", "granted", "want"),
    [
        (0, 0, MOST, RESERVE),
        (RESERVE, 0, MOST, 0),
        (RESERVE // 2 + 1, 100, MOST, 0),
        (RESERVE // 2, 100, MOST, RESERVE),
        (RESERVE, 3 * M, MOST, 12 * M),  # a fast rank is given more
        (RESERVE, 300 * M, MOST, MOST),
        (40 * 1024, 0, 64 * 1024, 0),  # so little was to be had: not again before it is half used up
        (32 * 1024, 10, 64 * 1024, RESERVE),
        (0, 10, 0, RESERVE),
    ],
)
def test_what_is_reserved(ahead: int, grown: int, granted: int, want: int) -> None:
    assert room_plan.wanted(ahead, grown, granted) == want


@pytest.mark.parametrize(
    ("need", "free", "gained", "short", "may"),
    [
        (M, 100 * M, 0, False, M),
        (M, 2 * M, 0, False, M),
        (M, 2 * M - 2, 0, True, 258048),  # whole pages
        (M, 256 * 1024, 0, True, 32 * 1024),
        (M, 256 * 1024, 256 * 1024, True, 256 * 1024),  # nobody else's
        (M, 3 * M // 2, 5 * M, True, M),
        (M, 5000, 0, True, 0),
        (M, 0, 0, True, 0),
    ],
)
def test_a_reserve_does_not_fill_the_disk_itself(need: int, free: int, gained: int, short: bool, may: int) -> None:
    assert room_plan.short(need, free) is short
    assert room_plan.affordable(need, free, gained) == may


def test_less_is_asked_for_when_others_were_faster() -> None:
    assert room_plan.tries(M) == [M, M * 7 // 8, M // 2]
    assert room_plan.tries(4096) == [4096]
    assert room_plan.tries(0) == []


@pytest.mark.parametrize(
    ("log", "limit", "hole"),
    [
        (Log("a", 100 * M), 0, None),
        (Log("a", 10 * M), 10 * M, None),
        (Log("a", 10 * M + 1), 10 * M, Hole("a", M, 6 * M, 5 * M)),
        (Log("a", 15 * M, M, 6 * M), 10 * M, None),
        (Log("a", 15 * M + 1, M, 6 * M), 10 * M, Hole("a", M, 11 * M, 5 * M)),
        (Log("a", 2 * M, 0, 0), M, Hole("a", 2 * BLOCK, 26 * BLOCK, 24 * BLOCK)),
        (Log("a", 100 << 30), 10 << 30, Hole("a", M, (95 << 30) + M, 95 << 30)),
    ],
)
def test_a_limit(log: Log, limit: int, hole: Hole | None) -> None:
    found = room_plan.over_limit(log, limit)
    assert found == hole
    if found is not None:
        assert log._replace(start=found.start, end=found.end).kept <= limit // 2 + BLOCK


@pytest.mark.parametrize("limit", [room_plan.LEAST_LIMIT, 3 * M + 7, 64 * M, 10 << 30])
def test_a_limit_is_held_whatever_is_written(limit: int) -> None:
    log = Log("a", 0)
    for step in (1, 4095, 4096, 65537, limit // 3, limit, 5 * limit) * 20:
        log = log._replace(size=log.size + step)
        hole = room_plan.over_limit(log, limit)
        if hole is not None:
            assert hole.start % BLOCK == hole.end % BLOCK == 0
            assert hole.end >= log.end
            log = log._replace(start=hole.start, end=hole.end)
        assert log.kept <= limit


@pytest.mark.parametrize(
    ("logs", "dire", "hole"),
    [
        ([], True, None),
        ([Log("a", 10 * M - 1)], False, None),  # less than is worth a hole
        ([Log("a", 10 * M)], False, Hole("a", M, 2 * M, M)),
        ([Log("a", 30 * M), Log("b", 50 * M)], False, Hole("b", M, 42 * M, 41 * M)),
        # the biggest is not the one that still has most to give
        ([Log("a", 30 * M), Log("b", 50 * M, M, 42 * M)], False, Hole("a", M, 22 * M, 21 * M)),
        ([Log("a", 30 * M), Log("old", 50 * M, earlier=True)], False, Hole("a", M, 22 * M, 21 * M)),
        ([Log("a", 9 * M), Log("old", 50 * M, earlier=True)], False, Hole("old", M, 42 * M, 41 * M)),
        ([Log("a", 9 * M), Log("old", 9 * M, earlier=True)], False, None),
        ([Log("a", 9 * M)], True, Hole("a", BLOCK, 9 * M - 4 * BLOCK, 9 * M - 5 * BLOCK)),
        ([Log("a", 5 * BLOCK)], True, None),
        ([Log("a", 6 * BLOCK)], True, Hole("a", BLOCK, 2 * BLOCK, BLOCK)),
        ([Log("a", 6 * BLOCK), Log("old", 90 * BLOCK, earlier=True)], True, Hole("a", BLOCK, 2 * BLOCK, BLOCK)),
    ],
)
def test_who_makes_room(logs: list[Log], dire: bool, hole: Hole | None) -> None:
    assert room_plan.for_room(logs, dire=dire) == hole


def test_a_hole_only_grows() -> None:
    """Red when ``_hole`` forgets where the last one ended: what is punched comes back as data."""
    after_dire = Log("a", 20 * M, BLOCK, 19 * M)
    assert room_plan.over_limit(after_dire, M) == Hole("a", BLOCK, 20 * M - 6 * BLOCK, M - 6 * BLOCK)
    assert room_plan.for_room([after_dire._replace(size=40 * M)], dire=False) == Hole("a", BLOCK, 32 * M, 13 * M)


def test_what_is_kept_is_enough_for_a_report() -> None:
    assert min(PLENTY.tail, DIRE.tail) >= 64 * 1024


MARK = re.compile(rb"\n\[remuster: (\d+) bytes are missing here: ([^\]]+)\] *\n")


def test_the_mark_ends_where_the_hole_begins_and_counts_what_it_stands_on() -> None:
    before: int | None = None
    log = bytearray(b"x" * 4 * BLOCK)
    for end, why in ((BLOCK + 99_000, DISK_FULL), (BLOCK + 10**6, AT_LIMIT), (10**12, DISK_FULL), (10**15, DISK_FULL)):
        at, text = room_plan.mark(BLOCK, end, why, before)
        assert at + len(text) == BLOCK
        log[at : at + len(text)] = text
        (found,) = MARK.finditer(log)  # nothing is left of the one before
        assert (found.start(), found.end(), int(found[1]), found[2]) == (at, BLOCK, end - at, why.encode())
        assert log[:at] == b"x" * at
        before = at
