"""The job's budget: how many retries each family of failures may still cost over the job's life. Pure.

The launcher parses ``--retry-budget`` with it, the leading agent charges it; the counts live in the job record, so they
survive every agent. A family without a limit is not bounded here (``--max-restarts`` may bound it).
"""

from __future__ import annotations

from collections.abc import Iterable

Counts = tuple[tuple[str, int], ...]  # family -> number, sorted by family


def parse(text: str, families: Iterable[str]) -> Counts:
    """Return the limits of 'family=N[,family=N…]'; ValueError with a sentence for anything else."""
    known = tuple(families)
    limits: dict[str, int] = {}
    for part in text.split(","):
        family, given, number = (piece.strip() for piece in part.partition("="))
        if not given:
            raise ValueError(f"{part.strip()!r} is not FAMILY=N")
        if family not in known:
            raise ValueError(f"{family!r} is no family of failures; they are {', '.join(known)}")
        if family in limits:
            raise ValueError(f"{family!r} is given twice")
        if "/" in number:
            raise ValueError(
                f"{part.strip()!r} has a time window, which this version cannot keep: give a bound for the job's life"
            )
        if not (number.isascii() and number.isdigit() and len(number) <= 6):
            raise ValueError(f"{number!r} is not a number of retries")
        limits[family] = int(number)
    return tuple(sorted(limits.items()))


def charge(spent: Counts, family: str, limits: Counts) -> tuple[Counts, str | None]:
    """Return the counts after one retry for ``family`` and None, or the same counts and why it is refused."""
    counts = dict(spent)
    used = counts.get(family, 0)
    limit = dict(limits).get(family)
    if limit is not None and used >= limit:
        return spent, f"the budget of family {family} is spent: {used} of {limit} retries (--retry-budget)"
    counts[family] = used + 1
    return tuple(sorted(counts.items())), None
