"""Which objects of a script decide its next step. Holds references only; ``collect`` reads and sets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .flight import Flight


class Stateful(Protocol):
    """What schedulers, scalers, samplers and torchdata's loaders have in common."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state_dict: Any, /) -> Any: ...


@dataclass(slots=True, eq=False, kw_only=True)
class TrainState:
    """The parts of a training run that a checkpoint keeps; make it once, next to the objects themselves.

    ``data`` (a ``Cursor``, a StatefulDataLoader) and ``per_rank`` are kept for each rank, ``extra`` once, as rank 0 has
    it. ``accumulated`` is yours to set when you save between two optimizer steps: how many micro-batches have gone
    into the gradients, which are then kept too.
    """

    model: Any
    optimizer: Any
    scheduler: Stateful | None = None
    scaler: Stateful | None = None
    data: Stateful | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    per_rank: Mapping[str, Any] = field(default_factory=dict[str, Any])
    accumulated: int = 0
    flight: Flight = field(default_factory=Flight, init=False, repr=False)


def bare(model: Any) -> Any:
    """Return the model without DDP's wrapping, so that what is saved fits a model that is not wrapped."""
    return model.module if type(model).__name__ == "DistributedDataParallel" else model


def is_sharded(model: Any) -> bool:
    """Tell whether the parameters are DTensors, which every rank has a part of (FSDP2, tensor parallelism)."""
    if any(type(part).__name__ == "FullyShardedDataParallel" for part in model.modules()):
        raise TypeError("the model is wrapped by FSDP1, which is not known here: use fully_shard (FSDP2), or publish()")
    return any(is_dtensor(parameter) for parameter in model.parameters())


def is_dtensor(value: Any) -> bool:
    """Tell whether a tensor is a DTensor; its class has moved between torch's versions, its attributes have not."""
    return hasattr(value, "placements") and hasattr(value, "device_mesh")
