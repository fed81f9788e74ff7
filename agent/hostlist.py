"""Slurm's short way to write many nodes, ``node[1-3,07-09]-ib,login1``, and counts, ``4(x2),8``, written out. Pure.

Slurm's own program for it, `scontrol show hostnames`, is missing in most containers. Called by `launcher/slurm.py`
and, for what Slurm prints, by `slurm_job` and `exclusion`.
"""

from __future__ import annotations

import re

MOST = 1 << 16  # nodes; Slurm's own largest node list
LONGEST = 1 << 20  # characters

_NAME = r"[A-Za-z0-9._-]+"
_PART = re.compile(rf"{_NAME}|\[[0-9,-]+\]")
_RANGE = re.compile(r"([0-9]{1,16})(?:-([0-9]{1,16}))?")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


class HostListError(ValueError):
    """It is no such list: why."""


def expand(text: str) -> tuple[str, ...]:
    """Return the names in their order; the last brackets of a name count fastest, as with Slurm."""
    if len(text) > LONGEST:
        raise HostListError(f"it has {len(text)} characters")
    names: list[str] = []
    for item in _items(text):
        names += _names(item, MOST - len(names))
    return tuple(names)


def counts(text: str) -> tuple[int, ...]:
    """Return the number for each node of ``4(x2),8``."""
    if len(text) > LONGEST:
        raise HostListError(f"it has {len(text)} characters")
    found: list[int] = []
    for item in text.split(","):
        match = _COUNT.fullmatch(item)
        if match is None:
            raise HostListError(f"{item[:40]!r} is no count")
        times = int(match[2] or 1)
        if len(found) + times > MOST:
            raise HostListError(f"it counts more than {MOST} nodes")
        found += [int(match[1])] * times
    return tuple(found)


def _items(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    items, depth, begin = list[str](), 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if not 0 <= depth <= 1:
            raise HostListError("its brackets do not match")
        if letter == "," and not depth:
            items.append(text[begin:at])
            begin = at + 1
    if depth:
        raise HostListError("a bracket is not closed")
    return [*items, text[begin:]]


def _names(item: str, room: int) -> list[str]:
    names, at = [""], 0
    while at < len(item):
        match = _PART.match(item, at)
        if match is None:
            raise HostListError(f"{item[at : at + 40]!r} cannot stand in a node's name")
        at = match.end()
        ends = _numbers(match[0][1:-1], room // len(names)) if match[0][0] == "[" else [match[0]]
        names = [name + end for name in names for end in ends]
    if names == [""]:
        raise HostListError("a name is missing")
    return names


def _numbers(text: str, room: int) -> list[str]:
    """Return the numbers of ``1-3,07-09``, as wide as the first of their range is written."""
    found: list[str] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise HostListError(f"{item[:40]!r} in its brackets is no range of numbers")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise HostListError(f"{item!r} in its brackets runs backwards")
        if len(found) + last - first >= room:
            raise HostListError(f"it names more than {MOST} nodes")
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return found
