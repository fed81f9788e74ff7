"""Numbers of ranks for people: ``ranks 0-2,4-799``. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 8  # ranges; more of them fit into no line that anybody reads


def named(ranks: Iterable[int], most: int = MOST) -> str:
    """Return 'rank 3', 'ranks 0-2,4-799', or the first ranges and how many ranks there are besides."""
    ranges: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1] = (ranges[-1][0], rank)
        else:
            ranges.append((rank, rank))
    more = sum(last - first + 1 for first, last in ranges[most:])
    said = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:most])
    alone = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"rank{'' if alone else 's'} {said}{f' and {more} more' if more else ''}"
