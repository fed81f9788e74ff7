"""``Accelerator.save_state``: a folder of any name, written file by file in place, without a marker over all.

Rank 0 writes models, optimizers, schedulers and samplers, each rank its ``random_states_R.pkl``, then rank 0 what the
script registered, ``custom_checkpoint_I.pkl``; nobody waits (accelerate/checkpointing.py, 1.15). Of several models the
others have numbers. Under FSDP and DeepSpeed model and optimizer lie in folders of theirs, and scripts may save models
as they like. Neither the number of ranks nor that of the objects is recorded, and no step.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from . import dcp
from .dcp_safetensors import of_huggingface
from .engine import judge_engine
from .finding import Finding, Question, Whole, as_part
from .folder import Folder
from .rank_files import UNRECORDED, judge_own, rank_files
from .weights import FILE, INDEX, weights_in
from .whole_file import judge_parts, worst_of

RANKED = r"random_states_(\d+)\.pkl"
OPTIMIZER = re.compile(r"optimizer(_\d+)?\.bin")
NAME = re.compile(r"checkpoint_\d+")
ENGINE = re.compile(r"pytorch_model(_\d+)?/[^/]+_model_states\.pt")  # DeepSpeed's
FSDP = re.compile(r"((?:pytorch_model_fsdp|optimizer)_\d+/).+")
OWN = re.compile(
    r"(optimizer|scheduler|sampler|dl_state_dict|pytorch_model_fsdp)(_\d+)?(_rank\d+)?\.bin"
    r"|custom_checkpoint_\d+\.pkl|scaler\.pt"
)
NUMBERED = re.compile(
    r"(model|optimizer|scheduler|sampler|dl_state_dict|pytorch_model|custom_checkpoint)(?:_(\d+))?\.(\w+)"
)
OTHERS = ("trainer_state.json", "rng_state")  # Trainer's, whose folders may hold an optimizer.bin too


class Accelerate:
    """A folder of ``save_state``."""

    name = "accelerate"
    unseen = (
        "the last scheduler, sampler, scaler, custom_checkpoint, or model and optimizer after the first, that is gone: "
        "how many there were is not recorded; the last ranks' random states where the number of ranks is not known; "
        "numbers changed in place in a file of safetensors, or two of these exchanged; files of another save"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        if any(re.fullmatch(RANKED, file) for file in files):
            return True
        if any(file.startswith(OTHERS) for file in files):
            return False
        return any(OPTIMIZER.fullmatch(file) or FSDP.match(file) for file in files) or (
            NAME.fullmatch(name) is not None
            and not of_huggingface(files)
            and any(FILE.fullmatch(file) or INDEX.fullmatch(file) or ENGINE.match(file) for file in files)
        )

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        files = folder.files
        engines = {file.partition("/")[0] for file in files if ENGINE.match(file)}
        sharded = {match[1] for file in files if (match := FSDP.match(file))} | dcp.beside(files)
        ranks = rank_files(files, RANKED, "random_states_{}.pkl".format, question.ranks, question.part)
        weights = weights_in(folder)
        own = {file for file in files if OWN.fullmatch(file)}
        lacking = {*weights.lacking, *ranks.lacking, *_gaps(files)}
        if not engines:
            held = {path for path in weights.paths if not INDEX.fullmatch(path)}
            if not held and not any("pytorch_model_fsdp" in path for path in (*sharded, *own)):
                lacking.add("model.safetensors")
            if not any(OPTIMIZER.fullmatch(file) for file in own) and "optimizer_0/" not in sharded:
                lacking.add("optimizer.bin")
        looked = judge_parts(folder, question, {*own, *weights.paths, *ranks.paths}, lacking, ranks.note)
        parts = [
            weights.wrong,
            judge_own(folder, ranks, question),
            *(judge_engine(folder, tag, question, by_pointer=False) for tag in sorted(engines)),
            *(dcp.shards(folder, prefix, question) for prefix in sorted(sharded)),
        ]
        if wrong := worst_of(parts if isinstance(looked, str) else [looked, *parts]):
            return wrong
        count = len(ranks.paths)
        how = f"model, optimizer and the random states of {count} rank{'s' * (count > 1)}, {looked}"
        how += f"; {UNRECORDED}" if question.ranks is None else ""
        return as_part(Whole(how, world=count, counted=True), parts, ranks.ranks)


def _gaps(files: Collection[str]) -> set[str]:
    """Return the files that numbers leave out: with ``optimizer_2.bin`` there must be ``optimizer_1.bin``."""
    found: dict[tuple[str, str], set[int]] = {}
    for file in files:
        if match := NUMBERED.fullmatch(file):
            found.setdefault((match[1], match[3]), set()).add(int(match[2] or 0))
    lacking: set[str] = set()
    for (stem, ending), numbers in found.items():
        for number in set(range(min(max(numbers), 10_000))) - numbers:
            first = stem if stem != "custom_checkpoint" else "custom_checkpoint_0"
            lacking.add(f"{first}.{ending}" if not number else f"{stem}_{number}.{ending}")
    return lacking
