"""Whether a living rank goes on after its alarm, by what it writes: lines of progress, bars that have moved. Pure.

A bar that is drawn once more says nothing; one whose count has risen does. Used by ``agent/line_watch.py``.
"""

from __future__ import annotations

import re

from .reading import tells_progress

LONGEST = 4 << 10  # bytes of a line; what is longer is no progress
_BAR = re.compile(r"\d%\|[^|]{0,400}\| (\d{1,15})/\d{1,15} \[")  # tqdm's std.py: format_meter
_ENDS = re.compile(rb"[\r\n]")


class GoingOn:
    """One stream of a rank. Blocks may end anywhere; of a line only its end makes it count."""

    def __init__(self) -> None:
        self._rest = b""
        self._bar: int | None = None

    def count(self, data: bytes) -> int:
        """Return how many steps forward these bytes tell of."""
        *whole, self._rest = _ENDS.split(self._rest + data)
        self._rest = self._rest[: LONGEST + 1]
        return sum(1 for line in whole if len(line) <= LONGEST and self._forward(line.decode("utf-8", "replace")))

    def _forward(self, line: str) -> bool:
        found = _BAR.search(line)
        if found is None:
            return tells_progress(line)
        before, self._bar = self._bar, int(found[1])
        return before is not None and self._bar > before
