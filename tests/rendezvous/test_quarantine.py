"""When a host is barred, for how long, and what is refused as a record. No store, no clock."""

from __future__ import annotations

import pytest

from remuster.rendezvous import quarantine as q
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.quarantine import DAY_S, HOUR_S, Bar, Known, Offence
from remuster.rendezvous.store import KeyValue

NOW = 1_800_000_000
HOST = "h1~abc"
ONCE = Offence(HOST, "run/1", "gpu_ecc: on h1", once=True)
TWICE = Offence(HOST, "run/1", "ib_link_error: on h1", once=False)


def bar(host: str = HOST, since: int = NOW - 60, until: int = 0, offences: int = 1, strikes: int = 0) -> Bar:
    return Bar(host, "why", since, until, offences, since, "other/7", strikes)


def weigh(offence: Offence, before: Bar | None = None, known: int = 3, enough: bool = True, *others: Bar) -> q.Weighed:
    return q.weigh(offence, before, others, known, enough, NOW)


def test_a_hard_fault_bars_at_once_and_longer_each_time() -> None:
    before: Bar | None = None
    terms: list[int] = []
    now = NOW
    for i in range(4):
        made = q.weigh(ONCE._replace(by=f"run/{i}"), before, (), 3, True, now).bar
        assert made is not None
        assert made.holds(now)
        assert made.offences == i + 1
        terms.append(made.until - now)
        before, now = made, made.until
        assert not made.holds(now)
    assert terms == [HOUR_S, 4 * HOUR_S, DAY_S, DAY_S]


def test_what_may_be_chance_bars_when_it_comes_again_within_a_day() -> None:
    first = weigh(TWICE).bar
    assert first is not None
    assert not first.holds(NOW)
    assert first.offences == 1
    again = TWICE._replace(by="run/2")
    soon = q.weigh(again, first, (), 3, True, NOW + DAY_S).bar
    assert soon is not None
    assert soon.holds(NOW + DAY_S)
    late = q.weigh(again, first, (), 3, True, NOW + DAY_S + 1).bar
    assert late is not None
    assert not late.holds(NOW + DAY_S + 1)
    assert late.offences == 2
    long_ago = q.weigh(again, first, (), 3, True, NOW + 8 * DAY_S).bar
    assert long_ago is not None
    assert long_ago.offences == 1


def test_a_host_that_is_back_from_a_bar_is_on_probation() -> None:
    before = bar(since=NOW - 2 * DAY_S, until=NOW, offences=3, strikes=3)  # its bar lasted a day
    made = weigh(TWICE, before).bar
    assert made is not None
    assert made.holds(NOW)
    late = q.weigh(TWICE, before, (), 3, True, NOW + q.PROBATION_S + 1).bar
    assert late is not None
    assert not late.holds(NOW + q.PROBATION_S + 1)


@pytest.mark.parametrize("before", [bar()._replace(by="run/1"), bar(until=NOW + 60)])
def test_one_offence_counts_once_and_a_barred_host_stays_as_it_is(before: Bar) -> None:
    """A leader that died after its word was written is succeeded by one that judges the round again."""
    assert weigh(ONCE, before).bar is None


@pytest.mark.parametrize(
    ("known", "there", "barred"),
    [(1, 0, True), (3, 1, False), (19, 1, False), (39, 1, False), (40, 1, True), (40, 2, False), (100, 5, False)],
)
def test_no_more_than_a_twentieth_of_the_hosts_is_barred_in_an_hour_and_one_always(
    known: int, there: int, barred: bool
) -> None:
    others = [bar(f"o{i}~", NOW - 1800, NOW + HOUR_S, strikes=1) for i in range(there)]
    weighed = weigh(ONCE, None, known, True, *others)
    assert weighed.bar is not None
    assert weighed.bar.holds(NOW) == barred
    assert barred or "within the hour; remuster quarantine add h1~abc" in weighed.sentence


def test_what_operators_bar_and_what_was_barred_before_the_hour_leaves_room() -> None:
    by_operator = q.added("o~", "fan", q.NEVER_ENDS, None, NOW)
    earlier = bar("p~", NOW - HOUR_S, NOW + HOUR_S, strikes=1)
    weighed = weigh(ONCE, None, 3, True, by_operator, earlier)
    assert weighed.bar is not None
    assert weighed.bar.holds(NOW)


def test_a_job_bars_nobody_whom_it_needs() -> None:
    weighed = weigh(ONCE, enough=False)
    assert weighed.bar is not None
    assert not weighed.bar.holds(NOW)
    assert weighed.bar.offences == 1
    assert "too few nodes without it; remuster quarantine add h1~abc keeps it out" in weighed.sentence


def test_an_operator_bars_and_lifts_and_a_lifted_host_begins_anew() -> None:
    barred = q.added(HOST, "fan", NOW + 60, bar(offences=3, strikes=2), NOW)
    assert (barred.holds(NOW + 59), barred.holds(NOW + 60), barred.offences) == (True, False, 3)
    free = q.lifted(barred, NOW + 1)
    assert not free.holds(NOW + 1)
    assert (free.offences, free.strikes) == (0, 0)
    assert weigh(TWICE, free).bar is not None
    again = q.weigh(ONCE, free, (), 3, True, NOW + 5).bar
    assert again is not None
    assert again.until == NOW + 5 + HOUR_S


def kv(name: str, value: bytes) -> KeyValue:
    return KeyValue(f"/remuster/{name}", value, 1, 1)


def test_records_come_back_as_they_went() -> None:
    barred = weigh(ONCE).bar
    assert barred is not None
    assert q.decode_bar(kv(f"~quarantine/{HOST}", q.encode(barred))) == barred
    known = Known(HOST, "10.0.0.1", NOW)
    assert q.decode_known(kv(f"~hosts/{HOST}", q.encode(known))) == known


@pytest.mark.parametrize(
    "value",
    [
        b"noise",
        b"[]",
        b"{}",
        q.encode(bar())[:-1],
        q.encode(bar(until=-1)),
        q.encode(bar(until=10**12)),
        q.encode(bar()._replace(reason=7)),  # type: ignore[arg-type]
        q.encode(bar("h2~abc")),
        q.encode(bar()).replace(b'"v":1', b'"v":2'),
        q.encode(bar()._replace(reason="x" * 5000)),
    ],
)
def test_what_is_no_record_is_refused_in_words(value: bytes) -> None:
    with pytest.raises(BadRecord, match="quarantine/h1~abc"):
        q.decode_bar(kv(f"~quarantine/{HOST}", value))


@pytest.mark.parametrize(
    ("seconds", "words"), [(60, "1 min"), (3600, "1 h"), (5400, "90 min"), (86400, "1 d"), (7, "7 s")]
)
def test_times_are_said_in_their_largest_unit(seconds: int, words: str) -> None:
    assert q.span(seconds) == words
