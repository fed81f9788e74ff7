"""The last lines of a rank's output, made from bytes: pure, bounded, and readable whatever was written.

The agent calls ``last_lines`` on the last bytes of a log; the matcher calls ``clean`` on lines from anywhere. Colour
codes go, bytes that are not UTF-8 become U+FFFD, and of a progress bar redrawn with carriage returns only the last
drawing stays (with anything that is no drawing at all: errors get glued to bars).
"""

from __future__ import annotations

import re

MAX_BYTES = 64 << 10
MAX_LINES = 120  # one C++ stack trace and the Python traceback before it
MAX_LINE = 4096

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|[@-_]?)")
# Terminals take U+009B for ESC [, and some characters of Unicode turn the rest of a line around or end it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BAR = re.compile(r"\d%|\d/\d|it/s|s/it|B/s")
_TROUBLE = re.compile(r"Error|Exception|Traceback|FAILED|Killed|abort", re.IGNORECASE)


def clean(line: str) -> str:
    """Return the line without colour codes and control characters, its middle cut out when it is too long."""
    if len(line) > 2 * MAX_LINE:
        line = _cut(line, 2 * MAX_LINE)
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    return _cut(_CONTROL.sub("", line).rstrip(), MAX_LINE)


def split(text: str) -> list[str]:
    """Return the cleaned lines of a text, drawings of a progress bar reduced to the last."""
    lines: list[str] = []
    for raw in text.split("\n"):
        parts = [part for part in raw.split("\r") if part.strip()] or [""]
        lines += [clean(part) for part in parts[:-1] if not _drawing(part)]
        lines.append(clean(parts[-1]))
    return lines


def last_lines(data: bytes, lines: int = MAX_LINES) -> tuple[str, ...]:
    """Return the last lines of ``data``, which may begin and end anywhere, even inside a character."""
    cut = len(data) > MAX_BYTES
    data = data[-MAX_BYTES:]
    if cut:  # the first line is a rest; drop it unless it is all there is
        data = data[data.find(b"\n") + 1 :]
    found = [line for line in split(data.decode("utf-8", "replace")) if line]
    return tuple(found[-lines:])


def _drawing(part: str) -> bool:
    """A bar that was drawn over: it says how far the work was, and no error is glued to it."""
    end = part[-512:]
    return bool(_BAR.search(end)) and not _TROUBLE.search(end)


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else f"{line[: limit // 2 - 3]} … {line[-(limit // 2) :]}"
