"""Read a ``TrainState`` into values that can be written, and set it from such values again. No collectives here.

What all ranks have alike is written once by rank 0 (``common``), what each has of its own by itself (``own``), what is
sharded by torch's DCP (``shards``). Called by ``saving`` and ``restoring``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .plain import plain, staged
from .rng import capture, put_back
from .state import TrainState, bare, is_dtensor, is_sharded

COMMON = "state.pt"
SHARDS = "dcp"
VERSION = 1  # of what stands in these files
PARTS: tuple[str, ...] = ("scheduler", "scaler", "data")  # those that a script need not have


def own_name(rank: int) -> str:
    """Return the file of what is kept for one rank."""
    return f"rank-{rank}.pt"


@dataclass(frozen=True, slots=True)
class Collected:
    """What one rank writes; ``problem`` is what kept it from reading its own state.

    ``shape`` names the parameters of a model that rank 0 writes for all: it must be the same on all ranks.
    """

    shape: str = ""
    common: dict[str, Any] | None = None
    own: dict[str, Any] | None = None
    shards: dict[str, Any] | None = None
    problem: Exception | None = None


def collect(state: TrainState, rank: int, copied: bool) -> Collected:
    """Read the state of this rank. Never raises: the other ranks are on their way to a meeting."""
    try:
        sharded = is_sharded(state.model)
        shape = "" if sharded else _shape(state.model)
        common = _common(state, sharded, copied) if rank == 0 else None
        shards = sharded_state(state) if sharded else None
        return Collected(shape, common, _own(state, copied), staged(shards) if copied and shards else shards)
    except Exception as e:
        return Collected(problem=e)


def sharded_state(state: TrainState) -> dict[str, Any]:
    """Return model and optimizer as DCP names them; what is in it is the training's own memory."""
    api: Any = import_module("torch.distributed.checkpoint.state_dict")
    model, optimizer = api.get_state_dict(state.model, state.optimizer)
    return {"model": model, "optimizer": optimizer}


def _shape(model: Any) -> str:
    named = [(name, tuple(parameter.shape)) for name, parameter in bare(model).named_parameters()]
    return hashlib.sha256(repr(named).encode()).hexdigest()


def _common(state: TrainState, sharded: bool, copied: bool) -> dict[str, Any]:
    parts: dict[str, Any] = {"scheduler": state.scheduler, "scaler": state.scaler}
    if not sharded:
        parts |= {"model": bare(state.model), "optimizer": state.optimizer}
    found = {name: part.state_dict() for name, part in parts.items() if part is not None}
    found["version"] = VERSION
    found["extra"] = {name: _read(part) for name, part in state.extra.items()}
    return {name: plain(value, name, copied) for name, value in found.items()}


def _own(state: TrainState, copied: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rng": capture(),
        "accumulated": state.accumulated,
        "gradients": _gradients(state) if state.accumulated else {},
        "per_rank": {name: _read(part) for name, part in state.per_rank.items()},
    }
    if state.data is not None:
        found["data"] = state.data.state_dict()
    return {name: plain(value, name, copied) for name, value in found.items()}


def _gradients(state: TrainState) -> dict[str, Any]:
    named = bare(state.model).named_parameters()
    found = {name: _local(one.grad) for name, one in named if one.grad is not None}
    if not found:
        raise ValueError(
            "accumulated is not 0, but no parameter has a gradient: FSDP2 keeps those of "
            "set_requires_gradient_sync(False) to itself. Save after an optimizer step, with accumulated = 0"
        )
    return found


def check_fit(state: TrainState, common: dict[str, Any], own: dict[str, Any], same_world: bool) -> None:
    """Raise ``ValueError`` if checkpoint and script do not name the same parts: half of a state is no state."""
    if common["version"] != VERSION:
        raise ValueError(
            f"it is of version {common['version']}, and this remuster reads {VERSION}: use the one that wrote it"
        )
    here = {name for name in PARTS if getattr(state, name) is not None}
    kept = {name for name in PARTS if name in common or name in own}
    if not same_world:
        here, kept = here - {"data"}, kept - {"data"}
    here |= {f"extra[{name!r}]" for name in state.extra}
    kept |= {f"extra[{name!r}]" for name in common["extra"]}
    if "per_rank" in own:
        here |= {f"per_rank[{name!r}]" for name in state.per_rank}
        kept |= {f"per_rank[{name!r}]" for name in own["per_rank"]}
    if kept != here:
        lacking, more = ", ".join(sorted(kept - here)), ", ".join(sorted(here - kept))
        raise ValueError(
            "it does not fit this TrainState: "
            + "; ".join(([f"it also has {lacking}"] if lacking else []) + ([f"it has no {more}"] if more else []))
        )


def set_sharded_state(state: TrainState, shards: dict[str, Any]) -> None:
    """Set model and optimizer from what ``sharded_state`` returned and DCP has read into."""
    api: Any = import_module("torch.distributed.checkpoint.state_dict")
    model, optimizer = shards["model"], shards["optimizer"]
    api.set_state_dict(state.model, state.optimizer, model_state_dict=model, optim_state_dict=optimizer)


def apply_common(state: TrainState, common: dict[str, Any]) -> None:
    """Set what all ranks have alike. The schedule comes after the optimizer whose rates it goes on from."""
    parts: dict[str, Any] = {"model": bare(state.model), "optimizer": state.optimizer}
    parts |= {"scheduler": state.scheduler, "scaler": state.scaler}
    for name, part in parts.items():
        if name in common:
            part.load_state_dict(common[name])
    for name, part in state.extra.items():
        _write(part, common["extra"][name])


def apply_own(state: TrainState, own: dict[str, Any]) -> None:
    """Set what this rank has of its own, the random states last: nothing after it draws."""
    if state.data is not None and "data" in own:
        state.data.load_state_dict(own["data"])
    for name, kept in own.get("per_rank", {}).items():
        _write(state.per_rank[name], kept)
    state.accumulated = own["accumulated"]
    parameters = dict(bare(state.model).named_parameters())
    for name, gradient in own["gradients"].items():
        parameter = parameters[name]
        parameter.grad = import_module("torch").zeros_like(parameter)
        _local(parameter.grad).copy_(gradient)
    if "rng" in own:
        put_back(own["rng"])


def _write(part: Any, kept: Any) -> None:
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(kept)
    else:
        part.set_state(kept)


def _read(part: Any) -> Any:
    """Read a part that has state_dict(), or a torch.Generator, which calls it get_state()."""
    return part.state_dict() if hasattr(part, "state_dict") else part.get_state()


def _local(tensor: Any) -> Any:
    return tensor.to_local() if is_dtensor(tensor) else tensor
