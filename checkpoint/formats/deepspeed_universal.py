"""DeepSpeed's universal checkpoints (ds_to_universal): ``zero/<parameter>/`` with fp32.pt and the optimizer's moments.

The converter merges into ``zero/``, writes ``zero/optimizer_state.pt``, copies the model states beside it, and rewrites
``latest_universal`` at last (deepspeed/checkpoint/ds_to_universal.py, 0.19). The model states name the parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .inert_pickle import Inert
from .torch_zip import contents, judge_files

ZERO = "zero/"
WEIGHTS = "fp32.pt"
COMMON = ZERO + "optimizer_state.pt"


def claims(files: Collection[str]) -> bool:
    """Say whether these can only be a universal checkpoint's files."""
    return COMMON in files or any(path.startswith(ZERO) and path.endswith("/" + WEIGHTS) for path in files)


def judge(folder: Folder, question: Question) -> Finding:
    """See Format."""
    models = sorted(path for path in folder.files if path.endswith("_model_states.pt") and "/" not in path)
    parts = sorted(path for path in folder.files if path.startswith(ZERO))
    if not models:
        return Torn(
            "its model states are missing: the conversion did not come to its end", ("mp_rank_00_model_states.pt",)
        )
    looked = judge_files(folder, models + parts, replace(question, deep=False))
    if not isinstance(looked, str):
        return looked
    try:
        heads = {path: contents(folder, path, question.give_up) for path in models}
        return _judged(folder, heads, parts, question)
    except ValueError as error:
        return Torn(str(error))


def _judged(folder: Folder, heads: Mapping[str, Mapping[str, object]], parts: list[str], question: Question) -> Finding:
    first = next(iter(heads.values()))
    step, mp = first.get("global_steps"), first.get("mp_world_size")
    if any(head.get("global_steps") != step for head in heads.values()):
        return Torn("its model states are of different steps")
    if not isinstance(mp, int) or not 0 < mp < 10_000:
        return Unknown("its model states do not say how many ranks wrote it (mp_world_size)")
    shapes = {str(name): shape for head in heads.values() for name, shape in _shapes(head).items()}
    if not shapes:
        return Unknown("its model states do not name the parameters (param_shapes)")
    held: dict[str, set[str]] = {}
    for path in parts:
        name, _, state = path.removeprefix(ZERO).rpartition("/")
        if name:
            held.setdefault(name, set()).add(state)
    states = set[str]().union(*held.values())
    lacking = {COMMON, *(f"{ZERO}{name}/{WEIGHTS}" for name in {*shapes, *held})} - folder.files.keys()
    need = _models(heads, mp, first.get("dp_world_size"))
    if extra := sorted(heads.keys() - need):
        return Torn(f"{extra[0]!a} is of no rank of the {mp} model-parallel ones that wrote this")
    lacking |= need - folder.files.keys()
    for name, has in held.items():
        if has != {WEIGHTS}:  # a parameter that was never optimized has its weights only
            lacking |= {f"{ZERO}{name}/{state}" for state in states - has}
    if lacking:
        return Torn(f"{len(lacking)} files are missing, {min(lacking)!a} first", tuple(sorted(lacking)))
    if question.deep:
        common = contents(folder, COMMON, question.give_up)
        if not common or {"param", "dp_world_size"} & common.keys():
            return Torn(f"{COMMON!a} does not hold what all parameters have in common")
        for name, has in sorted(held.items()):
            for state in sorted(has):
                if wrong := _other(folder, f"{ZERO}{name}/{state}", shapes.get(name) if mp == 1 else None, question):
                    return Torn(wrong)
    how = judge_files(folder, [*heads, *parts], question)
    if not isinstance(how, str):
        return how
    return Whole(f"{how}, all of {len(shapes)} parameters", step=step if isinstance(step, int) else None)


def _models(names: Collection[str], mp: int, dp: object) -> set[str]:
    """Return the names of the model states that were copied: of ZeRO-3, or of the other stages."""
    plain = {f"mp_rank_{n:02d}_model_states.pt" for n in range(mp)}
    if not any(name.startswith("zero_pp_rank_") for name in names) or not isinstance(dp, int):
        return plain
    return {f"zero_pp_rank_{rank}_{name}" for rank in range(min(dp, 100_000)) for name in plain}


def _other(folder: Folder, path: str, shape: object, question: Question) -> str:
    """Say that a file holds no parameter, or one of another shape, or ""."""
    held = contents(folder, path, question.give_up)
    if path.endswith("/step.pt"):  # a bare tensor
        return f"{path!a} holds no step" if held else ""
    tensor = held.get("param")
    if not isinstance(tensor, Inert) or len(tensor.args) < 4:
        return f"{path!a} holds no parameter"
    has = tensor.args[2]  # _rebuild_tensor_v2(storage, offset, shape, …)
    return f"{path!a} holds a tensor of {has}, not {shape}: swapped or renamed" if shape not in (None, has) else ""


def _shapes(head: Mapping[str, object]) -> dict[str, object]:
    """Return the shapes of all optimized parameters, as tuples."""
    groups = head.get("param_shapes")
    found: dict[str, object] = {}
    for group in cast("list[object]", groups) if isinstance(groups, list) else []:
        for name, size in cast("dict[str, object]", group).items() if isinstance(group, dict) else ():
            found[name] = size.args[0] if isinstance(size, Inert) and size.args else None
    return found
