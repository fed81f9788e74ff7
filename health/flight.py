"""What torch's flight recorder left: where a rank stood in each group's collectives. Pure.

Dumps are pickles of plain values (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp: ``dump``), or JSON of the same.
They lie where anybody may have written: nothing in them is executed (``plain_pickle.py``), and nothing is followed but
the few fields that are wanted. ``agent/dumps.py`` finds and reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

from .errors import BadEvidence
from .observed import Position
from .plain_pickle import NotPlain, loads

MOST_BYTES = 16 << 20
MOST_GROUPS = 16
MOST_NUMBER = (1 << 63) - 1
LONGEST = 100  # characters of a name
DONE = "completed"


def positions(raw: bytes, rank: int) -> tuple[Position, ...]:
    """Return where ``rank`` stood, in each group that its dump knows; BadEvidence when it is no dump."""
    top = _dump(raw)
    if not isinstance(top.get("entries"), list) and not isinstance(top.get("pg_status"), dict):
        raise BadEvidence("a flight recorder's dump without entries")
    groups: dict[str, _Group] = {}
    for entry in _objects(top.get("entries")):
        if (name := _name(entry)) is not None and entry.get("is_p2p") is not True:
            groups.setdefault(name, _Group()).take(entry)
    for number, one in _pairs(top.get("pg_status")):
        named = [name for name in groups if name.partition("(")[0] == number]
        for name in named or [number]:
            groups.setdefault(name, _Group()).take_status(one)
    found = (_position(rank, name, group) for name, group in groups.items())
    return tuple(sorted(found, key=lambda one: -one.enqueued))[:MOST_GROUPS]


class _Group:
    """One group's collectives as they are read."""

    def __init__(self) -> None:
        self.enqueued = -1
        self.completed = -1
        self.open: dict[int, str] = {}  # those that are not completed

    def take(self, entry: Mapping[object, object]) -> None:
        """Take an entry. gloo's keep the state 'scheduled' and are 'retired' when they have ended."""
        number = _number(entry.get("collective_seq_id"))
        if number < 0:
            return
        self.enqueued = max(self.enqueued, number)
        if entry.get("state") == DONE or entry.get("retired") is True:
            self.completed = max(self.completed, number)
        else:
            self.open.setdefault(number, str(entry.get("profiling_name"))[:LONGEST])

    def take_status(self, one: Mapping[object, object]) -> None:
        """Take the recorder's own count, which goes on where its buffer of entries is too short."""
        self.enqueued = max(self.enqueued, _number(one.get("last_enqueued_collective")))
        self.completed = max(self.completed, _number(one.get("last_completed_collective")))


def _position(rank: int, name: str, group: _Group) -> Position:
    waiting = [number for number in group.open if number > group.completed]
    operation = group.open[min(waiting)] if waiting else ""
    return Position(rank, name, group.enqueued, group.completed, operation)


def _dump(raw: bytes) -> Mapping[object, object]:
    if len(raw) > MOST_BYTES:
        raise BadEvidence(f"a flight recorder's dump of more than {MOST_BYTES} bytes")
    try:
        top: object = json.loads(raw) if raw[:1] == b"{" else loads(raw)
    except (NotPlain, ValueError, RecursionError) as error:
        raise BadEvidence(f"no flight recorder's dump: {str(error)[:LONGEST]}") from None
    if not isinstance(top, dict):
        raise BadEvidence("no flight recorder's dump: it holds no fields")
    return cast("dict[object, object]", top)


def _objects(items: object) -> Iterator[Mapping[object, object]]:
    for item in cast("list[object]", items) if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield cast("dict[object, object]", item)


def _pairs(status: object) -> Iterator[tuple[str, Mapping[object, object]]]:
    for number, one in cast("dict[object, object]", status).items() if isinstance(status, dict) else ():
        if isinstance(number, str) and isinstance(one, dict):
            yield number[:LONGEST], cast("dict[object, object]", one)


def _name(entry: Mapping[object, object]) -> str | None:
    """Return a group's name as torch prints it elsewhere: 0(default_pg)."""
    group = entry.get("process_group")
    if not isinstance(group, (tuple, list)):
        return None
    words = [str(word)[:LONGEST] for word in cast("tuple[object, ...]", group)[:2] if isinstance(word, (str, int))]
    return f"{words[0]}({words[1]})" if len(words) == 2 else words[0] if words else None


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_NUMBER else -1
