"""Hosts that no round may use for a while, over all jobs that share a store: the records, and when a host is barred.

Pure. The leading agent asks ``weigh`` after a verdict that lays the fault in a host and leaves barred hosts out when it
closes a round; ``remuster quarantine`` shows and changes the same records. Times are seconds since 1970 by the writer's
clock: they are hours, and clocks of one cluster agree to minutes. Keys stand beside the runs, on no lease:
``~hosts/<host>`` is every host that an agent has been on, ``~quarantine/<host>`` what has been held against one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from .errors import BadRecord
from .reader import Reader, parse
from .store import Compare, Field, KeyValue, Put, Txn

HOSTS, QUARANTINE = "~hosts/", "~quarantine/"  # behind all runs: no run id begins with "~"
SCHEMA = 1
MOST_BYTES = 4096
LATEST = 10**11  # seconds since 1970; the clock's functions take no more
NEVER_ENDS = LATEST
HOUR_S, DAY_S = 3600, 86400
TERMS_S = (HOUR_S, 4 * HOUR_S, DAY_S)  # of the first, the second and every later bar within a week
FORGOTTEN_S = 7 * DAY_S  # without an offence
REPEAT_S = DAY_S  # within which the second offence of a lesser kind bars
PROBATION_S = DAY_S  # after the end of a bar
SHARE = 0.05  # of the known hosts may be barred in an hour without an operator; one always
SEEN_EVERY_S = HOUR_S  # how exact ``Known.at`` is
REASON = 300  # characters
MOST_KEPT = 32  # in the copy beside the checkpoints


class Known(NamedTuple):
    """A host that an agent has been on."""

    host: str
    address: str
    at: int


class Bar(NamedTuple):
    """What is held against a host; it is barred until ``until``. 0: not barred, the offence is only remembered."""

    host: str
    reason: str
    since: int
    until: int
    offences: int
    at: int  # of the last offence, or of the operator's word
    by: str  # "<run id>/<round>", or "operator"
    strikes: int = 0  # how often it has been barred without an operator

    def holds(self, now: int) -> bool:
        """Tell whether the host is barred at ``now``."""
        return now < self.until


class Offence(NamedTuple):
    """A fault that a verdict lays in a host. ``once`` is enough for a bar, else the second within a day."""

    host: str
    by: str
    reason: str
    once: bool


class Weighed(NamedTuple):
    """What is to be written about a host, None when it stands already, and the sentence to be said."""

    bar: Bar | None
    sentence: str


def weigh(offence: Offence, before: Bar | None, others: tuple[Bar, ...], known: int, enough: bool, now: int) -> Weighed:
    """Decide about an offence. ``others`` are the records of other hosts, ``known`` the number of known hosts.

    ``enough`` says that the job has its minimum without the host: nobody is barred by a job that needs him.
    """
    host = offence.host
    if before is not None and (before.by == offence.by or before.holds(now)):
        return Weighed(None, f"{host} is in quarantine already" if before.holds(now) else "")
    if before is not None and now - before.at > FORGOTTEN_S:
        before = None
    recent = before is not None and (abs(now - before.at) <= REPEAT_S or _on_probation(before, now))
    strikes = before.strikes if before else 0
    noted = Bar(host, offence.reason[:REASON], now, 0, (before.offences if before else 0) + 1, now, offence.by, strikes)
    if not (offence.once or recent):
        return Weighed(noted, f"{host}: noted; a second such fault within a day puts it in quarantine")
    by_operator = f"remuster quarantine add {host} keeps it out"
    if not enough:
        return Weighed(noted, f"{host} is not put in quarantine: the job has too few nodes without it; {by_operator}")
    fresh = sum(1 for bar in others if bar.by != "operator" and abs(now - bar.since) < HOUR_S and bar.until > bar.since)
    if fresh + 1 > max(1, int(SHARE * known)):
        why = f"{fresh} of {known} known hosts were put there within the hour"
        return Weighed(noted, f"{host} is not put in quarantine: {why}; {by_operator}")
    term = TERMS_S[min(strikes, len(TERMS_S) - 1)]
    bar = noted._replace(until=now + term, strikes=strikes + 1)
    return Weighed(bar, f"{host} is in quarantine for {span(term)}: {bar.reason}")


def _on_probation(before: Bar, now: int) -> bool:
    """Tell whether a host is back from a bar so lately that any fault bars it again: a third bar lasts a day itself."""
    return 0 < before.until <= now <= before.until + PROBATION_S


def added(host: str, reason: str, until: int, before: Bar | None, now: int) -> Bar:
    """Return the record of a host that an operator bars."""
    offences, strikes = (before.offences, before.strikes) if before else (0, 0)
    return Bar(host, reason[:REASON], now, until, offences, now, "operator", strikes)


def lifted(before: Bar, now: int) -> Bar:
    """Return the record of a host that an operator lets in again: with a clean record."""
    return before._replace(since=now, until=0, offences=0, at=now, by="operator", strikes=0)


def write(root: str, bar: Bar, mod: int) -> Txn:
    """Put ``bar`` if the host's record still stands at revision ``mod`` (0 = absent)."""
    key = f"{root}{QUARANTINE}{bar.host}"
    return Txn((Compare(key, Field.MOD, mod),), (Put(key, encode(bar)),))


def span(seconds: int) -> str:
    """Say a time in its largest whole unit."""
    for unit, size in (("d", DAY_S), ("h", HOUR_S), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def encode(record: Known | Bar) -> bytes:
    """Return the record's bytes."""
    return json.dumps({"v": SCHEMA, **record._asdict()}, separators=(",", ":"), sort_keys=True).encode()


def decode_bar(kv: KeyValue) -> Bar:
    """Parse what is held against a host; BadRecord when it is no such record, or not of the host that its key names."""
    bar = bar_of(parse(kv.value, kv.key, MOST_BYTES, SCHEMA))
    _host(kv, bar.host)
    return bar


def bar_of(r: Reader) -> Bar:
    """Return what is held against a host as a record's fields have it."""
    times = {name: r.number(name, 0, LATEST) for name in ("since", "until", "at")}
    counts = {name: r.number(name, 0, LATEST) for name in ("offences", "strikes")}
    return Bar(host=r.text("host"), reason=r.text("reason")[:REASON], by=r.text("by"), **times, **counts)


def worth_keeping(bars: Iterable[Bar]) -> tuple[Bar, ...]:
    """Return what a copy of a job's own records keeps: the newest, and none of which nothing follows any more."""
    held = sorted((bar for bar in bars if bar.offences), key=lambda bar: (bar.at, bar.host), reverse=True)
    return tuple(held[:MOST_KEPT])


def decode_known(kv: KeyValue) -> Known:
    """Parse the record of a known host; BadRecord as ``decode_bar``."""
    r = parse(kv.value, kv.key, MOST_BYTES, SCHEMA)
    return Known(_host(kv, r.text("host")), r.text("address"), r.number("at", 0, LATEST))


def bars_of(found: Iterable[KeyValue]) -> tuple[dict[str, tuple[Bar, int]], tuple[str, ...]]:
    """Return what is held against hosts, each with its revision; and in words what is no record, and bars nobody."""
    bars: dict[str, tuple[Bar, int]] = {}
    odd: list[str] = []
    for kv in found:
        try:
            bar = decode_bar(kv)
        except BadRecord as error:
            odd.append(f"a record of the quarantine cannot be read and bars nobody: {error}")
            continue
        bars[bar.host] = (bar, kv.mod_revision)
    return bars, tuple(odd)


def _host(kv: KeyValue, host: str) -> str:
    if kv.key.rpartition("/")[2] != host:
        raise BadRecord(f"{kv.key}: it is that of {host[:64]!r}")
    return host
