"""Colossal-AI's booster with ``shard=True``: a folder each for model and optimizer, with an index of its shards.

Shards and ``*.index.json`` are written in place, the index last, by the master; pipeline stages keep theirs in
``tmp_index_files/`` until the master has joined them (colossalai/checkpoint_io, 0.5). No marker covers both folders.
Colossal-AI's own training scripts write ``running_states.json`` (epoch, step) beside them when all is saved; a
directory without it is refused. What is saved with ``shard=False`` is single files of torch.save, not of this format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import cast

from . import safetensors
from .finding import Finding, Question, Torn, Whole, missing
from .folder import Folder
from .inert_pickle import Inert
from .torch_zip import STEP_KEYS, contents, judge_files, step_of

STATES = "running_states.json"
INDEX = re.compile(r"([^/]+)/(?:[^./][^/]*\.)?(pytorch_model|pytorch_optim|model|optimizer)[^/]*\.index\.json")
OPTIMIZER = ("pytorch_optim", "optimizer")  # the latter with use_async=True, in safetensors
SHARD = re.compile(r"([^/]+)/(pytorch_model|pytorch_optim)([^/]*-\d{5}|_group)\.bin")
STAGES = "tmp_index_files"
LARGEST_JSON = 256 << 20
TORCH = (".bin", ".pt", ".pth")


class ColossalAI:
    """A step's directory, as Colossal-AI's own training scripts lay it out."""

    name = "colossalai"
    unseen = (
        "the lr_scheduler and other files of the script that are gone; shards of safetensors whose content was changed "
        "in place; the model's shards of two saves"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return any("/pytorch_optim" in path and _is_its(path) for path in files) or (
            any(_is_its(path) for path in files) and not any("/" not in path and path != STATES for path in files)
        )

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        try:
            return _judged(folder, question)
        except ValueError as error:
            return Torn(str(error))


def _is_its(path: str) -> bool:
    return INDEX.fullmatch(path) is not None or SHARD.fullmatch(path) is not None


def _judged(folder: Folder, question: Question) -> Finding:
    if empty := sorted(path for path, size in folder.files.items() if not size):
        return Torn(f"{empty[0]!a} is empty")
    indices = {path: found for path in sorted(folder.files) if (found := INDEX.fullmatch(path))}
    parts = {"optimizer" if found[2] in OPTIMIZER else "model" for found in indices.values()}
    if absent := sorted({"model", "optimizer"} - parts):
        return Torn(
            f"the index of the {' and the '.join(absent)} (*.index.json) is missing: the save did not come to its end"
        )
    if left := next((path for path in folder.files if STAGES in path.split("/")), ""):
        return Torn(f"{left!a} is there: the indices of the pipeline's stages were not joined yet")
    need: dict[str, set[str]] = {}
    states_of: set[str] = set()  # files that an optimizer's index names
    for index, found in indices.items():
        for key, file in _named(folder, index, found[2] in OPTIMIZER).items():
            need.setdefault(f"{found[1]}/{file}", set()).add(key)
            states_of |= {f"{found[1]}/{file}"} if found[2] in OPTIMIZER else set()
    if lacking := tuple(sorted({STATES, *need} - folder.files.keys())):
        return Torn(missing(lacking), lacking)
    states = _json(folder, STATES)
    if step_of(states, (*STEP_KEYS, "epoch")) is None:
        return Torn(f"{STATES!a} says neither step nor epoch")
    files = sorted(path for path in folder.files if path.endswith(TORCH) or "." not in path.rpartition("/")[2])
    how = judge_files(folder, files, question)
    if not isinstance(how, str):
        return how
    headed = [path for path in need if path.endswith(".safetensors")]
    for path in headed:
        if wrong := safetensors.wrong_with(folder, path, question):
            return Torn(wrong)
        try:
            held = safetensors.tensors(folder, path)
            # states of the optimizer are indexed by parameter, but kept by names made of its number and theirs
            absent = [] if path in states_of else sorted(need[path] - held)
        except ValueError as error:
            return Torn(f"{path!a} {error}")
        if absent:
            return Torn(f"{path!a} does not hold {absent[0]!a}, which its index says lies there")
    if question.deep and (wrong := _contradiction(folder, need)):
        return Torn(wrong)
    if headed:
        how += f", headers and sizes of {len(headed)} file(s) of safetensors"
    return Whole(f"the indices of model and optimizer, {STATES}, {how}", step=step_of(states))


def _named(folder: Folder, index: str, of_optimizer: bool) -> dict[str, str]:
    """Return the file that each weight, and the parameter groups, lie in."""
    value = _json(folder, index)
    weights, meta = value.get("weight_map"), value.get("metadata")
    if not isinstance(weights, dict) or not weights or not isinstance(meta, dict):
        raise ValueError(f"{index!a} names no shards")
    named = {str(key): str(file) for key, file in cast("dict[str, object]", weights).items()}
    if of_optimizer:
        named["param_groups"] = str(cast("dict[str, object]", meta).get("param_groups"))
    return named


def _contradiction(folder: Folder, need: dict[str, set[str]]) -> str:
    """Say which file of torch.save does not hold what an index says lies in it."""
    for path, keys in sorted(need.items()):
        if path.endswith(TORCH) and keys != {"param_groups"}:
            has = {str(key) for key in contents(folder, path)}
            if absent := sorted(keys - has):
                return f"{path!a} does not hold {absent[0]!a}, which its index says lies there"
            if "/pytorch_optim" not in path and any(not isinstance(x, Inert) for x in contents(folder, path).values()):
                return f"{path!a} holds something else than tensors"
        elif path.endswith(TORCH) and contents(folder, path):
            return f"{path!a} holds no parameter groups"
    return ""


def _json(folder: Folder, path: str) -> dict[str, object]:
    try:
        value: object = json.loads(folder.read(path, LARGEST_JSON))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path!a} is cut short or no JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path!a} holds no JSON object")
    return cast("dict[str, object]", value)
