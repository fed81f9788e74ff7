"""Times that lines of logs begin with, as far as they can be compared offline. Pure.

Clocks of programs and kernels differ by time zones, and by more where a node's clock is wrong; so all that is decided
by them is that something happened more than a day earlier, and has nothing to do with an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

DAY_S = 26 * 3600.0  # a day, and the hours by which zones of one log and another may differ
_ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ,-]{1,2}(\d\d):(\d\d):(\d\d)")
_CTIME = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\]")
_BOOT = re.compile(r"^(?:<\d{1,3}>)?\[ {0,8}(\d{1,9}\.\d{1,9})\]")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def wall(line: str) -> float | None:
    """Return the wall clock near the start of a line, in seconds, whatever its zone; None without any."""
    head = line[:120]
    if found := _ISO.search(head):
        year, month, day, hour, minute, second = map(int, found.groups())
    elif (found := _CTIME.search(head)) and found[1] in _MONTHS:
        month = _MONTHS.index(found[1]) + 1
        day, hour, minute, second, year = (int(found[i]) for i in range(2, 7))
    else:
        return None
    try:
        return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def boot(line: str) -> float | None:
    """Return a kernel line's seconds since its machine started; None without any."""
    found = _BOOT.match(line)
    return float(found[1]) if found else None


def last_wall(lines: Iterable[str]) -> float | None:
    """Return the latest wall clock in lines that are given from the last one backwards, of the first that has one."""
    return next((at for at in map(wall, lines) if at is not None), None)


def before_end(kernel: Sequence[str], end: float | None) -> list[float]:
    """Return for each line how long before the end it was, in seconds below zero: 0.0 unless certainly more than a day.

    Lines with the machine's own time are compared with the last of them.
    """
    boots = [at for at in map(boot, kernel) if at is not None]
    newest = max(boots, default=0.0)
    ages: list[float] = []
    for line in kernel:
        at, since = wall(line), boot(line)
        age = at - end if at is not None and end is not None else since - newest if since is not None else 0.0
        ages.append(age if age < -DAY_S else 0.0)
    return ages
