"""Of how many ranks are the parts of tensors that each rank's own metadata names? Pure.

Where ranks save without collectives nothing records how many there were, and torch (2.13) loads the part of a rank of
more of them without a word: what is not in it stays as it was. So the cuts themselves are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from .dcp_metadata import Cut

Shape = tuple[int, ...]


def not_whole(cuts: Iterable[Cut]) -> str:
    """Say of which tensor the parts of all ranks are not all of it, each as often as any other, or "".

    With HSDP each part is held by several ranks, all parts by as many: where it is not so, some of its ranks are not
    here, and another number of them would look for other parts.
    """
    parts: dict[tuple[str, Shape], Counter[tuple[Shape, Shape]]] = {}
    for cut in cuts:
        held = parts.setdefault((cut.name, cut.size), Counter())
        if prod(cut.part):
            held[cut.place, cut.part] += 1
    for (name, size), held in parts.items():
        there, whole = sum(prod(part) for _, part in held), prod(size)
        if there < whole:
            return f"the ranks' parts of {name!a} are not all of it: more ranks wrote it"
        if there > whole:
            return f"the ranks' parts of {name!a} lie over each other: they are of two saves, by other numbers of ranks"
        if len(set(held.values())) > 1:
            return f"the ranks' parts of {name!a} are there unequally often: another number of ranks wrote it"
    return ""


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
