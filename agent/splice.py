"""What may go to the console next, so that no line holds the words of two ranks. Pure; one ``Splicer`` per console.

A single rank without a label passes through byte for byte, and so does one that is alone on a terminal. Of several
ranks whole lines are taken; a part of a line is held until the line is complete, until it is long, or until its rank
has been silent for a moment (a prompt). Of a progress bar, drawn over with carriage returns, the newest drawing is put
on the console now and then, and the last one always. Bytes are never decoded; but a character of UTF-8 is not cut in
two. Called by ``console.py``, under its lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HELD_MAX = 64 * 1024  # of one line of one rank
HOLD_S = 0.1  # silence after which a part of a line is shown
PAINT_S = 0.1  # between two drawings of a bar in a line that is still its own
REPAINT_S = 1.0  # the same when somebody else has written: each drawing takes a line more

_AFTER_LINE_END = re.compile(rb"((?:\r(?!\n)|\n))(?=.)", re.DOTALL)
_RETURNED = re.compile(rb"\A\r+(?=[^\r\n])")
_MOVES = re.compile(rb"\x1b(?!\[[0-9;]*[mK])")  # the cursor; colours, and erasing to the line's end, do not


@dataclass(slots=True)
class _Part:
    label: bytes
    live: bool  # alone on a terminal: each byte at once
    held: bytearray = field(default_factory=bytearray)
    painted_s: float = float("-inf")  # when a drawing was shown last


class Splicer:
    """The state of one console: who wrote the line that it is in, and what each rank has that is not a line yet."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._line_of: str | None = None  # whose unfinished line the cursor is in; "" is the agent itself
        self._returned = False  # the cursor is at the start of that line, after a carriage return

    def add(self, key: str, label: bytes, live: bool = False) -> None:
        """Expect output of ``key``; ``label`` goes in front of each of its lines."""
        self._parts[key] = _Part(label, live)

    def feed(self, key: str, data: bytes, now_s: float) -> bytes:
        """Take what ``key`` wrote and return what may be shown of it."""
        part = self._parts[key]
        if part.live or (len(self._parts) == 1 and not part.label and not part.held):
            return self._show(key, part.label, data)
        part.held += data
        shown = self._take(key, part, part.held.rfind(b"\n") + 1)
        drawn = part.held.rfind(b"\r", 0, len(part.held) - 1) + 1
        if drawn:
            part.held[:drawn] = newest = _newest(part.held[:drawn])
            if newest.strip(b"\r") and now_s >= self._paints_s(key, part):
                part.painted_s = now_s
                shown += self._take(key, part, len(newest))
        return shown + (self.silent(key, now_s) if len(part.held) >= HELD_MAX else b"")

    def silent(self, key: str, now_s: float) -> bytes:
        """Return the part of a line that ``key`` left, up to an unfinished character: it has written no more."""
        part = self._parts[key]
        if self._draws(key, part):
            part.painted_s = now_s
        return self._take(key, part, _whole(part.held))

    def patience_s(self, key: str, now_s: float) -> float | None:
        """Return after how long a silence ``silent`` is to be called; None when it would return nothing."""
        part = self._parts[key]
        if not _whole(part.held):
            return None
        return max(HOLD_S, self._paints_s(key, part) - now_s) if self._draws(key, part) else HOLD_S

    def end(self, key: str) -> bytes:
        """Return all that is left of ``key`` and forget it."""
        part = self._parts[key]
        rest = self._take(key, part, len(part.held))
        del self._parts[key]
        return rest

    def say(self, data: bytes) -> bytes:
        """Return the agent's own words, on a line of their own."""
        return self._show("", b"", data)

    def _draws(self, key: str, part: _Part) -> bool:
        return b"\r" in part.held or (self._returned and self._line_of == key)

    def _paints_s(self, key: str, part: _Part) -> float:
        return part.painted_s + (PAINT_S if self._line_of == key else REPAINT_S)

    def _take(self, key: str, part: _Part, cut: int) -> bytes:
        shown = self._show(key, part.label, _newest(part.held[:cut]))
        del part.held[:cut]
        return shown

    def _show(self, key: str, label: bytes, data: bytes) -> bytes:
        if not data:
            return b""
        goes_on = self._line_of == key
        before = b"\n" if self._line_of is not None and not goes_on else b""
        if label:
            if not goes_on or self._returned:
                before += label
                data = _RETURNED.sub(b"", data)
            data = _labelled(data, label)
        self._line_of = None if data.endswith(b"\n") else key
        self._returned = data.endswith(b"\r")
        return before + data


def _newest(data: bytearray) -> bytes:
    """Leave out what is drawn over before anybody could see it."""
    return bytes(data) if b"\r" not in data else b"\n".join(_last_drawing(line) for line in data.split(b"\n"))


def _last_drawing(line: bytearray) -> bytearray:
    end = len(line.rstrip(b"\r"))
    *over, last = line[:end].split(b"\r")
    if not over:
        return line
    return bytearray(b"\r") + b"\r".join([*(one for one in over if _MOVES.search(one)), last]) + line[end:]


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
