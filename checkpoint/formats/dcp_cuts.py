"""Of how many ranks are the parts of tensors that each rank's own metadata names? Pure.

Where ranks save without collectives nothing records how many there were, and torch (2.13) loads the part of a rank of
more of them without a word: what is not in it stays as it was. So the cuts themselves are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from .dcp_metadata import Cut


def not_covered(cuts: Iterable[Cut]) -> str:
    """Say of which tensor the parts of all ranks are not all of it, or ""."""
    parts: dict[str, dict[tuple[int, ...], int]] = {}
    whole: dict[str, int] = {}
    for cut in cuts:
        parts.setdefault(cut.name, {})[cut.place] = prod(cut.part)
        whole[cut.name] = prod(cut.size)
    lacks = next((name for name in parts if sum(parts[name].values()) < whole[name]), None)
    return "" if lacks is None else f"the ranks' parts of {lacks!a} are not all of it: more ranks wrote it"


def other_cut(cuts: Iterable[Cut], rank: int, world: int) -> str:
    """Say which tensor is not cut as FSDP2 does for that rank of so many, or "".

    Along one dimension a rank has ceil(N / world) of it, the last ones less or nothing (torch.chunk). With a mesh of
    more dimensions that is not so, and how many ranks there were cannot be told.
    """
    for cut in cuts:
        along = [at for at, (part, size) in enumerate(zip(cut.part, cut.size, strict=True)) if part != size]
        if not along:
            continue
        at, size = along[0], cut.size[along[0]]
        most = -(-size // world)
        start = min(rank * most, size)
        length = min(most, size - start)
        if len(along) > 1 or cut.part[at] != length or (length and cut.place[at] != start):
            return f"{cut.name!a} is not cut as for rank {rank} of {world}"
    return ""
