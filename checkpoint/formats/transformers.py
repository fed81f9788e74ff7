"""Trainer of Hugging Face's transformers: ``checkpoint-N``, written file by file in place, without a marker over all.

Rank 0 writes the model, the optimizer, the scheduler, its random state and, last of its own, ``trainer_state.json``; it
waits for no other rank, each of which writes its ``rng_state_R.pth`` (transformers/trainer.py, 5.24). Under DeepSpeed
and FSDP model and optimizer lie in folders of theirs. Nothing records how many ranks there were.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import cast

from . import dcp
from .dcp_safetensors import of_huggingface
from .engine import judge_engine
from .finding import Finding, Question, Torn, Whole, as_part
from .folder import Folder
from .rank_files import UNRECORDED, RankFiles, judge_own, rank_files
from .weights import FILE, INDEX, weights_in
from .whole_file import judge_parts, parsed, worst_of

STATE = "trainer_state.json"
ALONE = "rng_state.pth"
RANKED = r"rng_state_(\d+)\.pth"
NAME = re.compile(r"checkpoint-(\d+)")
ENGINE = re.compile(r"(global_step\d+)/.+")  # DeepSpeed's
FSDP = re.compile(r"((?:pytorch_model_fsdp|optimizer)_\d+/).+")
OWN = re.compile(
    r"(optimizer|scheduler|scaler)\.pt|optimizer\.bin|pytorch_model_fsdp\.bin|training_args\.bin|[^/]+\.json"
)


class Transformers:
    """A ``checkpoint-N`` of Trainer."""

    name = "transformers"
    unseen = (
        "numbers changed in place in a file of safetensors; the same file of another save at the same step; a whole "
        "model of safetensors that is another one; configuration and tokenizer files that are gone"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        if any(file.startswith("random_states_") for file in files):
            return False  # Accelerate's, whatever its name
        if any(file in (STATE, ALONE) or re.fullmatch(RANKED, file) for file in files):
            return True
        if of_huggingface(files):
            return False
        return NAME.fullmatch(name) is not None and any(
            FILE.fullmatch(file)
            or INDEX.fullmatch(file)
            or file == "optimizer.pt"
            or ENGINE.match(file)
            or FSDP.match(file)
            for file in files
        )

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        files = folder.files
        engines = {match[1] for file in files if (match := ENGINE.match(file))}
        sharded = {match[1] for file in files if (match := FSDP.match(file))} | dcp.beside(files)
        ranks = _ranks(folder, question)
        weights = weights_in(folder)
        if STATE in files and not engines and not sharded and not ranks.paths and not _holds_optimizer(files):
            return Torn("it holds no optimizer: one saved with save_only_model is not one to resume from")
        lacking = {*weights.lacking, *ranks.lacking, *_lacking(files, bool(engines), sharded, weights.paths)}
        own = {file for file in files if OWN.fullmatch(file)}
        looked = judge_parts(folder, question, {*own, *weights.paths, *ranks.paths}, lacking, ranks.note)
        state = _judge_state(folder) if STATE in files else None
        parts = [
            weights.wrong,
            judge_own(folder, ranks, question),
            *(judge_engine(folder, tag, question, by_pointer=True) for tag in sorted(engines)),
            *(dcp.shards(folder, prefix, question) for prefix in sorted(sharded)),
            state,
        ]
        if wrong := worst_of(parts if isinstance(looked, str) else [looked, *parts]):
            return wrong
        count = len(ranks.paths)
        how = f"{STATE}, model, optimizer and the random states of {count} rank{'s' * (count > 1)}, {looked}"
        how += f"; {UNRECORDED}" if question.ranks is None else ""
        step = state.step if isinstance(state, Whole) else None
        return as_part(Whole(how, step=step, world=count, counted=True), parts, ranks.ranks)


def _holds_optimizer(files: Collection[str]) -> bool:
    return any(file in ("optimizer.pt", "optimizer.bin", "scheduler.pt") for file in files)


def _ranks(folder: Folder, question: Question) -> RankFiles:
    """Find the ranks' random states. A single rank's has a name of its own: numbers are of two or more."""
    world, named = question.ranks, "rng_state_{}.pth".format
    found = rank_files(folder.files, RANKED, named, world)
    if found.paths:
        return rank_files(folder.files, RANKED, named, max(2, world or 2), question.part)
    if world in (None, 1):
        return RankFiles((ALONE,), (), "") if ALONE in folder.files else RankFiles((), (ALONE,), "")
    if ALONE in folder.files:
        return RankFiles((), found.lacking, f" (one rank wrote this checkpoint, and {world} are to come)")
    return found


def _lacking(files: Collection[str], engine: bool, sharded: Collection[str], weights: Collection[str]) -> set[str]:
    """Return what every such checkpoint has, but not this one."""
    needed = {STATE}
    if not engine:
        needed.add("scheduler.pt")
        fsdp = "pytorch_model_fsdp.bin" in files or "pytorch_model_fsdp_0/" in sharded
        if "optimizer.bin" not in files and "optimizer_0/" not in sharded:
            needed.add("optimizer_0/.metadata" if fsdp else "optimizer.pt")
        if not fsdp and all(INDEX.fullmatch(path) for path in weights):
            needed.add("model.safetensors")
    if any(re.fullmatch(r"adapter_model\.(safetensors|bin)", path) for path in weights):
        needed.add("adapter_config.json")
    return needed - set(files)


def _judge_state(folder: Folder) -> Finding:
    """Judge what rank 0 writes last; it has the step."""
    try:
        state = parsed(folder, STATE)
    except ValueError as error:
        return Torn(str(error))
    step = cast("dict[str, object]", state).get("global_step") if isinstance(state, dict) else None
    if not isinstance(step, int) or isinstance(step, bool):
        return Torn(f"{STATE} does not say its global_step")
    named = NAME.fullmatch(folder.name)
    if named is not None and int(named[1]) != step:
        return Torn(f"{STATE} says global_step {step}, but the folder is named {folder.name!a}")
    return Whole(STATE, step=step)
