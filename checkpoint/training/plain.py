"""Plain values only: what goes into a file here can be read by ``torch.load(weights_only=True)``, which runs no code.

What cannot is refused while it is saved, by its name, and not when it is needed. Called by ``collect``.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from .state import is_dtensor

_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_MAPS: dict[type, Callable[[dict[Any, Any]], Any]] = {dict: dict, OrderedDict: OrderedDict, Counter: Counter}
_ROWS: dict[type, Callable[[list[Any]], Any]] = {list: list, tuple: tuple, set: set}


class NotPlain(TypeError):
    """A value that could be saved, but not be read again without running code."""


def plain(value: Any, name: str, copied: bool) -> Any:
    """Return ``value`` as plain containers and tensors; with ``copied`` nothing in it is shared with the script."""
    torch: Any = import_module("torch")
    kinds = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))
    others = (torch.Size, torch.dtype, torch.device)

    def walk(one: Any, at: str) -> Any:
        kind = cast("type[object]", type(one))
        if kind in _LEAVES or kind in others:
            return one
        if kind in kinds:
            return _alone(one, copied)
        if kind in _MAPS:
            made = {walk(key, at): walk(item, f"{at}[{key!r}]") for key, item in one.items()}
            return _MAPS[kind](made)
        if kind in _ROWS:
            return _ROWS[kind]([walk(item, f"{at}[{i}]") for i, item in enumerate(one)])
        if is_dtensor(one):
            raise NotPlain(f"{at} is a DTensor: only the model and its optimizer may be sharded")
        raise NotPlain(
            f"{at} is a {kind.__module__}.{kind.__qualname__}, and a checkpoint holds tensors, numbers, texts and "
            "plain containers only: let state_dict() return those"
        )

    return walk(value, name)


def staged(value: Any) -> Any:
    """Copy a sharded state dict into the host's memory, so that training may go on while it is written."""
    torch: Any = import_module("torch")

    def walk(one: Any) -> Any:
        kind = cast("type[object]", type(one))
        if issubclass(kind, dict):
            return {key: walk(item) for key, item in one.items()}
        if issubclass(kind, list | tuple):
            items = [walk(item) for item in one]
            return items if issubclass(kind, list) else tuple(items)
        if isinstance(one, torch.Tensor):
            return one.detach().to("cpu", copy=True)
        return copy.deepcopy(one)

    return walk(value)


def _alone(tensor: Any, copied: bool) -> Any:
    """Detach a tensor; one that is a part of a larger storage is copied, else the whole storage would be written."""
    tensor = tensor.detach()
    if copied:
        return tensor.to("cpu", copy=True)
    if tensor.layout == import_module("torch").strided:
        own = tensor.numel() * tensor.element_size()
        return tensor if tensor.untyped_storage().nbytes() <= own else tensor.clone()
    return tensor
