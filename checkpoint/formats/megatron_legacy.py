"""Megatron-LM's older ``torch`` format: ``mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt``, written in place, no marker.

Which of them there must be follows from the arguments of the run, which each of them holds (``args``:
tensor_model_parallel_size and so on; megatron/training/checkpointing.py, get_checkpoint_name). With the distributed
optimizer there is a ``distrib_optim.pt`` beside each. ``args.rank`` tells which rank wrote a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .inert_pickle import Inert
from .torch_zip import contents, judge_files

MAIN = "model_optim_rng.pt"
OPTIM = "distrib_optim.pt"
FILE = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/(model_optim_rng|distrib_optim|layer_wise_optimizer_\d+)\.pt")
MOST_RANKS = 100_000


@dataclass(frozen=True, slots=True)
class _Sizes:
    tensor: int
    pipeline: int
    expert: int

    def folders(self) -> list[str]:
        """Return the names of all ranks' directories."""
        return [
            f"mp_rank_{t:02d}" + (f"_{p:03d}" if self.pipeline > 1 else "") + (f"_{e:03d}" if self.expert > 1 else "")
            for t in range(self.tensor)
            for p in range(self.pipeline)
            for e in range(self.expert)
        ]


def judge(folder: Folder, named: int | None, question: Question) -> Finding:
    """Judge such a directory; ``named``: the iteration in its name. ValueError: a file cannot be read."""
    files = sorted(path for path in folder.files if FILE.fullmatch(path))
    looked = judge_files(folder, files, replace(question, deep=False))
    if not isinstance(looked, str):
        return looked
    mains = [path for path in files if path.endswith("/" + MAIN)]
    if not mains:
        main = f"{files[0].partition('/')[0]}/{MAIN}"
        return Torn(f"{main!a} is missing", (main,))
    held = {path: contents(folder, path, question.give_up) for path in (mains if question.deep else mains[:1])}
    first, content = next(iter(held.items()))
    args = arguments(content)
    tensor, pipeline = size(args, "tensor_model_parallel_size"), size(args, "pipeline_model_parallel_size")
    if tensor is None or pipeline is None:
        return Unknown(f"{first!a} does not say by how many tensor and pipeline ranks it was written (args)")
    expert = size(args, "expert_model_parallel_size") or 1
    if expert > 1 and size(args, "expert_tensor_parallel_size") not in (None, tensor):
        return Unknown("experts are split otherwise than the rest, so that it is not known which files there must be")
    if tensor * pipeline * expert > MOST_RANKS:
        return Torn(f"{first!a} says that {tensor * pipeline * expert} ranks wrote it, which cannot be")
    sizes = _Sizes(tensor, pipeline, expert)
    need = {f"{name}/{MAIN}" for name in sizes.folders()}
    wants_optim = bool(args.get("use_distributed_optimizer")) and not args.get("no_save_optim")
    if wants_optim or any(path.endswith("/" + OPTIM) for path in files):
        need |= {f"{name}/{OPTIM}" for name in sizes.folders()}
    if extra := [path for path in files if path not in need and path.endswith((MAIN, OPTIM))]:
        return Torn(
            f"{extra[0]!a} is of no rank: {tensor} tensor, {pipeline} pipeline, {expert} expert ranks wrote this"
        )
    if lacking := tuple(sorted(need - folder.files.keys())):
        return Torn(f"{len(lacking)} of {len(need)} files are missing, {lacking[0]!a} first", lacking)
    step = step_of(content)
    if wrong := other_step(folder.name, named, step) or _contradiction(held, sizes):
        return Torn(wrong)
    how = judge_files(folder, files, question)
    if not isinstance(how, str):
        return how
    return Whole(f"{how}, all that the run's arguments ask for", step, size(args, "world_size"))


def _contradiction(held: Mapping[str, Mapping[str, object]], sizes: _Sizes) -> str:
    first, content = next(iter(held.items()))
    for path, other in held.items():
        if step_of(other) != step_of(content):
            return f"{first!a} is of iteration {step_of(content)}, {path!a} of {step_of(other)}"
        args, found = arguments(other), FILE.fullmatch(path)
        if size(args, "tensor_model_parallel_size") != sizes.tensor:
            return f"{first!a} and {path!a} are of runs with different arguments"
        rank = args.get("rank")
        if found and isinstance(rank, int) and rank % sizes.tensor != int(found[1]):  # tensor ranks count fastest
            return (
                f"{path!a} was written by rank {rank}, which is tensor rank {rank % sizes.tensor}: swapped or renamed"
            )
    return ""


def arguments(held: Mapping[str, object]) -> Mapping[str, object]:
    """Return the run's arguments, an argparse.Namespace, or nothing."""
    args = held.get("args")
    state = args.state if isinstance(args, Inert) else None
    return cast("dict[str, object]", state) if isinstance(state, dict) else {}


def size(args: Mapping[str, object], key: str) -> int | None:
    """Return a number of ranks from the arguments."""
    value = args.get(key)
    return value if isinstance(value, int) and value > 0 else None


def step_of(held: Mapping[str, object]) -> int | None:
    """Return the iteration that a file of rank 0, or of any rank, says it is of."""
    value = held.get("iteration")
    return value if isinstance(value, int) and value >= 0 else None


def other_step(name: str, named: int | None, step: int | None) -> str:
    """Say that the content is of another iteration than the directory's name, or ""."""
    if None in (named, step) or named == step:
        return ""
    return f"it is named {name!a}, but its content is of iteration {step}"
