"""The budget's grammar and its arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.rendezvous.budget import charge, parse

FAMILIES = ("hardware", "network", "node", "user")


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("hardware=5", (("hardware", 5),)),
        ("network=3, hardware=5", (("hardware", 5), ("network", 3))),
        (" user = 0 ", (("user", 0),)),
    ],
)
def test_parse(text: str, limits: tuple[tuple[str, int], ...]) -> None:
    assert parse(text, iter(FAMILIES)) == limits


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not FAMILY=N"),
        ("hardware", "'hardware' is not FAMILY=N"),
        ("hardware=5,", "'' is not FAMILY=N"),
        ("gpu=1", "'gpu' is no family of failures; they are hardware, network, node, user"),
        ("total=9", "'total' is no family"),
        ("hardware=1,hardware=2", "'hardware' is given twice"),
        ("network=3/1h", "'network=3/1h' has a time window, which this version cannot keep"),
        ("network=", "'' is not a number of retries"),
        ("network=-1", "'-1' is not a number"),
        ("network=1.5", "'1.5' is not a number"),
        ("network=²", "'²' is not a number"),
        ("network=99999999", "is not a number"),
    ],
)
def test_parse_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text, FAMILIES)


def test_charge_until_it_is_spent() -> None:
    limits = parse("hardware=2", FAMILIES)
    spent, refused = charge((("node", 1),), "hardware", limits)
    assert (spent, refused) == ((("hardware", 1), ("node", 1)), None)
    spent, refused = charge(spent, "hardware", limits)
    assert refused is None
    again, refused = charge(spent, "hardware", limits)
    assert again == spent == (("hardware", 2), ("node", 1))
    assert refused == "the budget of family hardware is spent: 2 of 2 retries (--retry-budget)"


def test_what_has_no_limit_is_counted_all_the_same() -> None:
    assert charge((), "user", ()) == ((("user", 1),), None)
    assert charge((), "user", (("user", 0),))[1]


@given(st.lists(st.sampled_from(FAMILIES)), st.dictionaries(st.sampled_from(FAMILIES), st.integers(0, 4)))
def test_no_limit_is_ever_overdrawn(failures: list[str], limits: dict[str, int]) -> None:
    spent: tuple[tuple[str, int], ...] = ()
    paid = 0
    for family in failures:
        spent, refused = charge(spent, family, tuple(limits.items()))
        paid += refused is None
    assert sum(count for _, count in spent) == paid
    assert all(count <= limits.get(family, 99) for family, count in spent)
