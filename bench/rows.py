"""The table: what was measured, beside what, the ratio, the bar that it must hold, and whether it did."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Samples = Mapping[str, Sequence[float]]
_FIGURES = (2, 4, 5, 6)  # columns


class Row(NamedTuple):
    """One comparison. ``at_least`` bounds theirs / ours, ``at_most`` ours / theirs; without both it gates nothing."""

    letter: str
    what: str
    ours: float
    other: str
    theirs: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float:
        """Return theirs / ours for a row that must be so many times better, else ours / theirs."""
        high, low = (self.theirs, self.ours) if self.at_least is not None else (self.ours, self.theirs)
        return high / low if low else float("inf")

    @property
    def held(self) -> bool | None:
        """Tell whether the bar held; None when there is none."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return None if self.at_most is None else self.ratio <= self.at_most


class Found(NamedTuple):
    """What a measurement brings back; ``samples`` are kept beside the table, ``notes`` are printed below it."""

    rows: list[Row]
    samples: Mapping[str, object]
    notes: tuple[str, ...] = ()


def medians(samples: Samples) -> dict[str, float]:
    """Return each series' median."""
    return {name: statistics.median(series) for name, series in samples.items()}


def best(found: Mapping[str, float], names: Sequence[str]) -> str:
    """Return which of ``names`` took least."""
    return min(names, key=lambda name: found[name])


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out for people."""
    cells = [("", "what", "remuster", "beside", "", "ratio", "bar", "held"), *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(map(_aligned, range(len(widths)), line, widths)).rstrip() for line in cells)


def _aligned(column: int, cell: str, width: int) -> str:
    return cell.rjust(width) if column in _FIGURES else cell.ljust(width)


def _cells(row: Row) -> tuple[str, ...]:
    bar = "" if row.held is None else f">= {row.at_least:g}" if row.at_least is not None else f"<= {row.at_most:.3g}"
    said = "" if row.held is None else "yes" if row.held else "NO"
    figures = (_figure(row.ours, row.unit), row.other, _figure(row.theirs, row.unit))
    return (row.letter, row.what, *figures, f"{row.ratio:.2f}", bar, said)


def _figure(value: float, unit: str) -> str:
    digits = 0 if not unit or value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f} {unit}".rstrip()
