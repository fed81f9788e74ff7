"""What may go to the console next, so that no line holds the words of two ranks. Pure; one ``Splicer`` per console.

A single rank without a label passes through byte for byte. Of several ranks whole lines are taken; a part of a line is
held until the line is complete, until it is long, or until its rank has been silent for a moment (a prompt, a progress
bar). Bytes are never decoded; but a character of UTF-8 is not cut in two. Called by ``console.py``, under its lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HELD_MAX = 64 * 1024  # of one line of one rank

_AFTER_LINE_END = re.compile(rb"((?:\r(?!\n)|\n))(?=.)", re.DOTALL)


@dataclass(slots=True)
class _Part:
    label: bytes
    held: bytearray = field(default_factory=bytearray)


class Splicer:
    """The state of one console: who wrote the line that it is in, and what each rank has that is not a line yet."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._line_of: str | None = None  # whose unfinished line the cursor is in; "" is the agent itself
        self._returned = False  # the cursor is at the start of that line, after a carriage return

    def add(self, key: str, label: bytes) -> None:
        """Expect output of ``key``; ``label`` goes in front of each of its lines."""
        self._parts[key] = _Part(label)

    def feed(self, key: str, data: bytes) -> bytes:
        """Take what ``key`` wrote and return what may be shown of it."""
        part = self._parts[key]
        if len(self._parts) == 1 and not part.label and not part.held:
            return self._show(key, b"", data)
        part.held += data
        ends = part.held.rfind(b"\n") + 1, part.held.rfind(b"\r", 0, len(part.held) - 1) + 1
        return self._take(key, part, max(ends)) + (self.silent(key) if len(part.held) >= HELD_MAX else b"")

    def silent(self, key: str) -> bytes:
        """Return the part of a line that ``key`` left, up to an unfinished character: it has written no more."""
        part = self._parts[key]
        return self._take(key, part, _whole(part.held))

    def holds(self, key: str) -> bool:
        """Is there something that ``silent`` would return?"""
        return _whole(self._parts[key].held) > 0

    def end(self, key: str) -> bytes:
        """Return all that is left of ``key`` and forget it."""
        part = self._parts[key]
        rest = self._take(key, part, len(part.held))
        del self._parts[key]
        return rest

    def say(self, data: bytes) -> bytes:
        """Return the agent's own words, on a line of their own."""
        return self._show("", b"", data)

    def _take(self, key: str, part: _Part, cut: int) -> bytes:
        shown = self._show(key, part.label, bytes(part.held[:cut]))
        del part.held[:cut]
        return shown

    def _show(self, key: str, label: bytes, data: bytes) -> bytes:
        if not data:
            return b""
        goes_on = self._line_of == key
        before = b"\n" if self._line_of is not None and not goes_on else b""
        if label:
            before += label if not goes_on or self._returned else b""
            data = _labelled(data, label)
        self._line_of = None if data.endswith(b"\n") else key
        self._returned = data.endswith(b"\r")
        return before + data


def _labelled(data: bytes, label: bytes) -> bytes:
    """Put ``label`` after every line end, and after every carriage return: it would be written over."""
    if b"\r" not in data:
        return data[:-1].replace(b"\n", b"\n" + label) + data[-1:]
    return _AFTER_LINE_END.sub(lambda end: end[1] + label, data)


def _whole(data: bytearray) -> int:
    """Return the length of ``data`` without an unfinished character of UTF-8 at its end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if needs > back else len(data)
    return len(data)
