"""How the ranks of a publication tell each other how it went: one all-gather of a text, whatever carries it.

By default the script's own initialised ``torch.distributed`` group, found where the script has imported it and never
imported here; one process alone needs none. ``gather=`` brings another (MPI, JAX, threads in tests).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from .errors import PublishError
from .identity import Identity

Gather = Callable[[str], Sequence[str]]
"""Give this rank's text, get every rank's, in rank order. Collective: all ranks call it, in the same order."""


class _TorchDistributed(Protocol):
    def is_available(self) -> bool: ...
    def is_initialized(self) -> bool: ...
    def get_rank(self) -> int: ...
    def get_world_size(self) -> int: ...
    def all_gather_object(self, object_list: list[object], obj: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Ranks:
    """This rank and its line to the others."""

    rank: int
    gather: Gather


def ranks(gather: Gather | None, rank: int | None, who: Identity) -> Ranks:
    """Find the line to the other ranks; refuse to publish alone when the world has more than one."""
    if gather is not None:
        return Ranks(who.rank if rank is None else rank, gather)
    torch = cast("_TorchDistributed | None", sys.modules.get("torch.distributed"))
    if torch is not None and torch.is_available() and torch.is_initialized():
        return Ranks(torch.get_rank(), _through(torch))
    if who.world_size > 1:
        raise PublishError(
            f"WORLD_SIZE is {who.world_size}, but this process has no initialised torch.distributed group to agree "
            "through: publish after init_process_group, or give gather="
        )
    return Ranks(0, lambda text: [text])


def _through(torch: _TorchDistributed) -> Gather:
    def gather(text: str) -> Sequence[str]:
        texts: list[object] = [None] * torch.get_world_size()
        torch.all_gather_object(texts, text)
        return cast("list[str]", texts)

    return gather
