"""The budget's grammar and its arithmetic: whatever comes in whatever order, nothing is overspent."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuster.rendezvous.budget import (
    MOST_TIMES,
    Account,
    Bound,
    Counts,
    Due,
    Receipt,
    parse,
    pay,
)
from remuster.rendezvous.records import Paid

FAMILIES = ("hardware", "network", "node", "user")
NOW = 1_795_951_311
DAY = 86400


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("hardware=5", (Bound("hardware", 5),)),
        ("network=3, hardware=5", (Bound("hardware", 5), Bound("network", 3))),
        (" user = 0 ", (Bound("user", 0),)),
        ("hardware=3/24h", (Bound("hardware", 3, DAY),)),
        ("hardware = 3 / 90s,node=1/7d", (Bound("hardware", 3, 90), Bound("node", 1, 7 * DAY))),
        ("node=2/5m", (Bound("node", 2, 300),)),
    ],
)
def test_parse(text: str, bounds: tuple[Bound, ...]) -> None:
    assert parse(text, iter(FAMILIES)) == bounds
    assert parse(",".join(bound.text for bound in bounds), FAMILIES) == bounds


@pytest.mark.parametrize(
    ("given", "said"),
    [("24h", "24h"), ("1d", "24h"), ("48h", "2d"), ("60m", "1h"), ("90m", "90m"), ("90s", "90s"), ("3600s", "1h")],
)
def test_a_window_is_said_in_its_largest_unit(given: str, said: str) -> None:
    (bound,) = parse(f"node=2/{given}", FAMILIES)
    assert bound.text == f"node=2/{said}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not FAMILY=N"),
        ("hardware", "'hardware' is not FAMILY=N"),
        ("hardware=5,", "'' is not FAMILY=N"),
        ("gpu=1", "'gpu' is no family of failures; they are hardware, network, node, user"),
        ("total=9", "'total' is no family"),
        ("hardware=1,hardware=2", "'hardware' is given twice"),
        ("hardware=1/1h,hardware=2", "'hardware' is given twice"),
        ("network=", "'' is not a number of retries"),
        ("network=-1", "'-1' is not a number"),
        ("network=1.5", "'1.5' is not a number"),
        ("network=²", "'²' is not a number"),
        ("network=99999999", "is not a number"),
        ("network=/1h", "'' is not a number"),
        ("network=3/", "'' is no window of time"),
        ("network=3/h", "'h' is no window of time"),
        ("network=3/24", "'24' is no window of time"),
        ("network=3/1w", "'1w' is no window of time"),
        ("network=3/0h", "'0h' is no window of time"),
        ("network=3/-1h", "'-1h' is no window of time"),
        ("network=3/1.5h", "'1.5h' is no window of time"),
        ("network=3/²h", "'²h' is no window of time"),
        ("network=3/367d", "longer than a year"),
        ("network=3/9999999999h", "no window of time"),
        ("network=30/1h,node=3/1h", f"come to 33 retries; at most {MOST_TIMES}"),
    ],
)
def test_parse_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text, FAMILIES)


def account(receipt: Receipt) -> Account:
    assert not receipt.refused
    return receipt.account


def test_charge_until_it_is_spent() -> None:
    bounds = parse("hardware=2", FAMILIES)
    due = Due("hardware", NOW, False)
    first = pay(Account((("node", 1),), "node"), due, bounds)
    assert first == Receipt(Account((("hardware", 1), ("node", 1)), "hardware"), left=1)
    second = pay(first.account, due, bounds)
    assert second.left == 0
    third = pay(second.account, due, bounds)
    assert third.account == second.account == Account((("hardware", 2), ("node", 1)), "hardware")
    assert third.refused == "the budget of family hardware is spent: 2 of 2 retries (--retry-budget)"


def test_what_has_no_bound_is_counted_all_the_same() -> None:
    assert pay(Account(), Due("user", NOW, False), ()) == Receipt(Account((("user", 1),), "user"))
    assert pay(Account(), Due("user", NOW, False), (Bound("user", 0),)).refused
    assert pay(Account(), Due("user", NOW, False), (Bound("user", 0, 60),)).refused


def test_families_that_are_not_named_have_a_bound_where_there_is_no_other() -> None:
    kept, bounds = Account(), parse("hardware=9", FAMILIES)
    for left in (2, 1, 0):
        receipt = pay(kept, Due("network", NOW, False), bounds, others=3)
        assert receipt.left == left
        kept = account(receipt)
    assert "3 of 3" in pay(kept, Due("network", NOW, False), bounds, others=3).refused
    assert pay(kept, Due("hardware", NOW, False), bounds, others=3).left == 8
    assert not pay(kept, Due("network", NOW, False), bounds).refused


def test_a_window_forgets() -> None:
    bounds = parse("hardware=2/24h", FAMILIES)
    kept = account(pay(Account(), Due("hardware", NOW, False), bounds))
    kept = account(pay(kept, Due("hardware", NOW + 3600, False), bounds))
    assert kept.times == (Paid("hardware", (NOW, NOW + 3600)),)
    refused = pay(kept, Due("hardware", NOW + 7200, False), bounds)
    assert refused.account == kept
    assert "spent for now: 2 of 2 retries within 24h (--retry-budget hardware=2/24h)" in refused.refused
    assert refused.refused.endswith("; the next is allowed in 22h")
    assert pay(kept, Due("hardware", NOW + DAY - 1, False), bounds).refused.endswith("in 1s")
    after = pay(kept, Due("hardware", NOW + DAY, False), bounds)
    assert after.left == 0
    assert account(after).times == (Paid("hardware", (NOW + 3600, NOW + DAY)),)
    assert account(after).spent == (("hardware", 3),)


def test_a_clock_that_is_behind_finds_no_empty_window() -> None:
    bounds = parse("hardware=2/1h,node=3/1h", FAMILIES)
    kept = account(pay(Account(), Due("node", NOW, False), bounds))
    kept = account(pay(kept, Due("hardware", NOW - 10**6, False), bounds))
    assert kept.times == (Paid("hardware", (NOW,)), Paid("node", (NOW,)))
    kept = account(pay(kept, Due("hardware", 0, False), bounds))
    assert pay(kept, Due("hardware", NOW - 10**6, False), bounds).refused


def test_only_what_a_window_needs_is_remembered() -> None:
    before = Account((), "", (Paid("network", tuple(range(40))), Paid("node", (NOW - 5,))))
    bounds = parse("node=3/1h", FAMILIES)
    assert account(pay(before, Due("hardware", NOW, False), bounds)).times == (Paid("node", (NOW - 5,)),)
    assert account(pay(before, Due("hardware", NOW, False), ())).times == ()


def test_progress_gives_the_last_charge_back_once() -> None:
    bounds = parse("hardware=1,network=1", FAMILIES)
    kept = account(pay(Account(), Due("hardware", NOW, True), bounds))  # nothing to give back yet
    again = pay(kept, Due("hardware", NOW, True), bounds)
    assert (again.refunded, again.account, again.left) == ("hardware", kept, 0)
    other = pay(kept, Due("network", NOW, True), bounds)
    assert other == Receipt(Account((("network", 1),), "network"), refunded="hardware", left=0)
    assert pay(other.account, Due("network", NOW, False), bounds).refused
    refused = pay(other.account, Due("user", NOW, True), (Bound("user", 0),))
    assert refused.account == other.account, "what is refused changes nothing: the next charge is given it back"
    assert not refused.refunded
    unknown = Account((("hardware", 1),), "")
    assert not pay(unknown, Due("network", NOW, True), bounds).refunded, "an older version did not say whose it was"


def test_progress_does_not_ease_a_window() -> None:
    bounds = parse("hardware=1/1h", FAMILIES)
    kept = account(pay(Account(), Due("hardware", NOW, True), bounds))
    assert pay(kept, Due("hardware", NOW + 60, True), bounds).refused
    later = pay(kept, Due("hardware", NOW + 3600, True), bounds)
    assert (later.refunded, account(later).spent) == ("hardware", (("hardware", 1),))


WINDOWS = st.sampled_from([0, 1, 60, 3600])
BOUNDS = st.dictionaries(st.sampled_from(FAMILIES), st.tuples(st.integers(0, 4), WINDOWS)).map(
    lambda found: tuple(sorted(Bound(family, most, window) for family, (most, window) in found.items()))
)
FAILURES = st.lists(st.tuples(st.sampled_from(FAMILIES), st.integers(-200, 400), st.booleans()), max_size=60)


@given(FAILURES, BOUNDS, st.none() | st.integers(0, 3))
@example(
    [("hardware", 0, False), ("network", -1, False), ("network", 1, False)], (Bound("network", 1, 1),), None
)  # of a family without a window no time is remembered
def test_nothing_is_ever_overspent(
    failures: list[tuple[str, int, bool]], bounds: tuple[Bound, ...], others: int | None
) -> None:
    """In any order of charges, refunds and clocks that step back: neither over the job's life nor in any window."""
    kept, now, latest = Account(), NOW, 0
    paid, back, times = Counter[str](), Counter[str](), dict[str, list[int]]()
    limits = {family: Bound(family, others) for family in FAMILIES if others is not None}
    limits |= {bound.family: bound for bound in bounds}
    for family, step, progress in failures:
        now += step
        before = kept
        receipt = pay(kept, Due(family, now, progress), bounds, others)
        kept = receipt.account
        if receipt.refused:
            assert kept == before
            continue
        bound = limits.get(family)
        if bound is not None and bound.window_s:
            latest = max(latest, now)
        paid[family] += 1
        back[receipt.refunded] += bool(receipt.refunded)
        times.setdefault(family, []).append(latest)
        assert (receipt.left is None) == (bound is None)
        assert receipt.left is None or receipt.left >= 0
        spent = dict(kept.spent)
        for one in FAMILIES:
            assert spent.get(one, 0) == paid[one] - back[one] >= 0, "each charge is given back once, and no other"
            lifetime = limits.get(one)
            if lifetime is not None and not lifetime.window_s:
                assert spent.get(one, 0) <= lifetime.most
        if bound is not None and bound.window_s:
            recent = [at for at in times[family] if at > latest - bound.window_s]
            assert len(recent) <= bound.most
        assert sum(len(one.at) for one in kept.times) <= sum(b.most for b in bounds if b.window_s)
        assert progress or not receipt.refunded


def test_a_job_that_makes_progress_never_runs_dry_and_one_in_a_loop_does() -> None:
    bounds = parse("hardware=2", FAMILIES)
    kept = Account()
    for _ in range(1000):
        kept = account(pay(kept, Due("hardware", NOW, True), bounds))
    assert kept.spent == (("hardware", 1),)
    retries = 0
    while not (receipt := pay(kept, Due("hardware", NOW, False), bounds)).refused:
        kept, retries = receipt.account, retries + 1
    assert retries == 1


def test_counts_are_sorted() -> None:
    counts: Counts = account(pay(Account((("user", 1),)), Due("hardware", NOW, False), ())).spent
    assert counts == (("hardware", 1), ("user", 1))
