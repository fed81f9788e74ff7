"""Numbers of ranks, and of CPUs, for people: ``ranks 0-2,4-799``. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 8  # ranges; more of them fit into no line that anybody reads


def named(ranks: Iterable[int], most: int = MOST) -> str:
    """Return 'rank 3', 'ranks 0-2,4-799', or the first ranges and how many ranks there are besides."""
    found = _ranges(ranks)
    more = sum(last - first + 1 for first, last in found[most:])
    alone = len(found) == 1 and found[0][0] == found[0][1]
    return f"rank{'' if alone else 's'} {_spelled(found[:most])}{f' and {more} more' if more else ''}"


def listed(numbers: Iterable[int]) -> str:
    """Return numbers as the kernel writes a list of CPUs: 0-3,8."""
    return _spelled(_ranges(numbers))


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for n in sorted(set(numbers)):
        if found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        else:
            found.append((n, n))
    return found


def _spelled(ranges: list[tuple[int, int]]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
