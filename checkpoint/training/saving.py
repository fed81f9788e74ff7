"""Save a ``TrainState`` as a published step, now or while training goes on. Collective: every rank calls it.

An error on any rank is a ``PublishError`` on every rank; steps published before are untouched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..errors import PublishError
from ..identity import identity
from ..publication import Publication, publish
from ..ranks import Ranks, ranks
from . import sharded
from .collect import COMMON, Collected, collect, own_name
from .state import TrainState
from .streams import telling

_FIT = "fit"

Place = str | os.PathLike[str] | None


def save(step: int, state: TrainState, directory: Place = None) -> None:
    """Publish ``step``; return when it is durable. Waits first for a save in flight and raises what went wrong there.

    ``directory`` defaults to the launcher's ``--checkpoint-dir``.
    """
    who = identity(os.environ)
    state.flight.settle(who)
    line = ranks(None, None, who)
    _writer(step, collect(state, line.rank, copied=False), line, directory, None)()


def async_save(step: int, state: TrainState, directory: Place = None) -> None:
    """Copy the state, and publish it as ``step`` while training goes on; return when it is copied.

    Needs as much host memory as this rank writes. The step does not count before it is committed. What goes wrong is
    raised on all ranks by their next ``save``, ``async_save`` or ``finish``; each of them waits for this one first.
    """
    who = identity(os.environ)
    state.flight.settle(who)
    line = state.flight.line(who)
    collected = collect(state, line.rank, copied=True)
    state.flight.start(_writer(step, collected, line, directory, state.flight.group))


def finish(state: TrainState) -> None:
    """Wait for the save in flight, if there is one. Call it at the end, before the process group is destroyed."""
    state.flight.settle(identity(os.environ))


def _writer(step: int, collected: Collected, line: Ranks, directory: Place, group: object) -> Callable[[], None]:
    """Return what publishes the collected state; ``PublishError`` for what is wrong with the place comes at once."""
    publication = publish(step, directory, gather=line.gather, rank=line.rank)

    def write() -> None:
        try:
            with publication as p:
                _write(p, collected, line, group)
        except PublishError:
            raise
        except Exception as e:
            raise PublishError(f"step {step} is not published: rank {line.rank}: {type(e).__name__}: {e}") from e

    return write


def _write(publication: Publication, collected: Collected, line: Ranks, group: object) -> None:
    """Write this rank's part. Whether all have one is known before DCP begins, in which none may be missing."""
    shapes = line.gather("" if collected.problem else f"{_FIT} {collected.shape}")
    if collected.problem is not None:
        raise collected.problem
    if "" in shapes:
        return  # whoever has the problem tells it when the publication ends
    if len(set(shapes)) > 1:
        other = next(rank for rank, shape in enumerate(shapes) if shape != shapes[0])
        raise PublishError(
            f"rank {other} has another model than rank 0, "
            "which writes for all: only FSDP2's shards may differ. Use publish() for stages of a pipeline"
        )
    if collected.shards is not None:
        sharded.write(publication, collected.shards, line.rank, group)
    torch: Any = import_module("torch")
    for name, value in ((COMMON, collected.common), (own_name(line.rank), collected.own)):
        if value is not None:
            path = publication.path(name)
            with open(path, "wb") as file, telling(file, str(path)) as lent:
                torch.save(value, lent)
