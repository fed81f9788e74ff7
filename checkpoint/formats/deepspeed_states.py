"""What DeepSpeed's files of states say of themselves: how many ranks, which step, whose part. Pure, but for reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from .finding import Question
from .folder import Folder
from .inert_pickle import Inert
from .torch_zip import contents

MOST_RANKS = 1_000_000


@dataclass(frozen=True, slots=True)
class Head:
    """The model states' own numbers."""

    path: str
    step: int | None
    dp: int | None
    mp: int
    experts: tuple[int, ...]  # of each layer with experts
    groups: tuple[dict[str, int], ...]  # parameters of each group of ZeRO and their elements, as they are shared out
    is_zero: bool
    is_bf16: bool
    is_pipeline: bool
    optimized: int | None  # parameters, where no ZeRO shares them out


@dataclass(frozen=True, slots=True)
class Optim:
    """One rank's optimizer states."""

    partitions: tuple[int, ...]  # ranks that share each group; () for ZeRO-3
    held: tuple[dict[str, int], ...]  # parameters of each group that this rank has elements of; () where not recorded
    version: str


def head(path: str, held: Mapping[str, object]) -> Head:
    """Read the numbers in a file of model states. ValueError: they are none."""
    shapes = held.get("param_shapes")
    config = _dict(held.get("ds_config"))
    optimizer = held.get("optimizer")
    return Head(
        path=path,
        step=_number(held, "global_steps", path),
        dp=_number(held, "dp_world_size", path),
        mp=_number(held, "mp_world_size", path) or 1,
        experts=_numbers(held.get("num_experts")),
        groups=tuple({name: _elements(size) for name, size in _dict(group).items()} for group in _list(shapes)),
        is_zero=isinstance(shapes, list) and optimizer is None,
        is_bf16=bool(_dict(config.get("bf16") or config.get("bfloat16")).get("enabled")),
        is_pipeline=held.get("module", 0) is None,
        optimized=_optimized(_dict(optimizer)) if optimizer is not None else None,
    )


def differ(heads: Iterable[Head]) -> str:
    """Say in which number the model states of two ranks differ, or ""."""
    first, *others = heads
    for other in others:
        for what, a, b in (
            ("global_steps", first.step, other.step),
            ("dp_world_size", first.dp, other.dp),
            ("mp_world_size", first.mp, other.mp),
        ):
            if a != b:
                return f"{first.path!a} and {other.path!a} are of two saves: {what} is {a} in one and {b} in the other"
    return ""


def optim(folder: Folder, path: str, question: Question) -> Optim:
    """Read the numbers in a file of optimizer states."""
    held = contents(folder, path, question.give_up)
    if "optimizer_state_dict" not in held:
        raise ValueError(f"{path!a} holds no optimizer states")
    inner = _dict(held["optimizer_state_dict"])
    mappings = [_dict(group) for group in _list(inner.get("param_slice_mappings"))]
    return Optim(
        partitions=_numbers(inner.get("partition_count")),
        held=tuple({name: _whole(_dict(part).get("numel")) for name, part in group.items()} for group in mappings),
        version=str(held.get("ds_version")),
    )


def optims_contradict(model: Head, optims: Sequence[tuple[str, Optim]], part: bool = False) -> str:
    """Say which rank's optimizer states cannot be of this save or of that rank. ``optims``: by data-parallel rank.

    Of a ``part`` they are not of all ranks.
    """
    first_path, first = optims[0]
    for path, one in optims:
        if model.dp and one.partitions and max(one.partitions) != model.dp:
            return f"{path!a} was written by {max(one.partitions)} data-parallel ranks, {model.path!a} by {model.dp}"
        if (one.partitions, one.version, len(one.held)) != (first.partitions, first.version, len(first.held)):
            return f"{first_path!a} and {path!a} are of two saves: their partition counts or versions differ"
    for n, elements in enumerate(model.groups[: len(first.held)]):
        by_all = first.partitions[n : n + 1] == (model.dp,)  # not so for experts, which fewer ranks share
        if by_all and (wrong := _shared_out(elements, [(path, one.held[n]) for path, one in optims], part)):
            return wrong
    return ""


def _shared_out(elements: Mapping[str, int], parts: Sequence[tuple[str, Mapping[str, int]]], some: bool) -> str:
    """See that the ranks' parts of one group follow each other and together are all of it, or ``some``."""
    order = {name: at for at, name in enumerate(elements)}
    last = 0
    left = dict(elements)
    for path, held in parts:
        if not held.keys() <= elements.keys():
            return f"{path!a} holds parameters that the model states do not have"
        if held and min(order[name] for name in held) < last:
            return f"{path!a} holds an earlier part of the parameters than the rank before it: swapped or renamed"
        last = max((order[name] for name in held), default=last)
        for name, count in held.items():
            left[name] -= count
    if odd := next((name for name, count in left.items() if count and not (some and count > 0)), None):
        return f"the ranks' optimizer states do not hold all of {odd!a}, or hold some of it twice"
    return ""


def is_other(folder: Folder, path: str, expert: int | None, question: Question) -> str:
    """Say that the file of an expert, or of a pipeline's layer, holds something else than its name says, or ""."""
    held = contents(folder, path, question.give_up)
    if "dp_world_size" in held or "optimizer_state_dict" in held:
        return f"{path!a} holds other states than its name says"
    marks = {_after(str(name), ".deepspeed_experts.") for name in held} - {""}
    if expert is not None and marks and marks != {str(expert)}:
        return f"{path!a} holds expert {min(marks)}"
    return ""


def layers_lack(folder: Folder, paths: Sequence[str], heads: Sequence[Head], question: Question) -> str:
    """Say that the layers of a pipeline hold fewer parameters than are optimized, so that some are gone."""
    if any(one.optimized is None for one in heads):
        return ""
    optimized = sum(one.optimized or 0 for one in heads)
    stored = sum(len(contents(folder, path, question.give_up)) for path in paths)
    if stored < optimized:
        return f"its {len(paths)} layers hold {stored} tensors, but {optimized} parameters are optimized: some are gone"
    return ""


def _optimized(optimizer: Mapping[str, object]) -> int | None:
    """Return how many parameters an optimizer's state_dict has, also inside the wrapper for bf16."""
    inner = _dict(optimizer.get("optimizer_state_dict")) or optimizer
    groups = _list(inner.get("param_groups"))
    return sum(len(_list(_dict(group).get("params"))) for group in groups) if groups else None


def _after(name: str, mark: str) -> str:
    _, found, rest = name.partition(mark)
    return rest.split(".")[0] if found else ""


def _number(held: Mapping[str, object], key: str, path: str) -> int | None:
    value = held.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value <= (MOST_RANKS if key.endswith("size") else 1 << 62):
        raise ValueError(f"{path!a} says {key} is {str(value)[:40]!a}, which cannot be")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(n for n in _list(value) if isinstance(n, int) and 0 <= n <= MOST_RANKS)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _elements(size: object) -> int:
    """Return how many elements a torch.Size spans."""
    sides = size.args[0] if isinstance(size, Inert) and size.args else size
    return prod(map(_whole, cast("tuple[object, ...]", sides))) if isinstance(sides, (tuple, list)) else 0


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _dict(value: object) -> dict[str, object]:
    if isinstance(value, Inert):
        value = value.items or value.state
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
