"""Lightning's ``*.ckpt``: a file of torch.save that was moved to its name when whole, or a folder of shards.

The file is written elsewhere and moved; where that is another file system it is copied, and may be torn. Folders come
from its FSDP strategies (torch.distributed.checkpoint, then ``meta.pt``) and from DeepSpeed's, which saves below
``checkpoint/`` (lightning/pytorch/strategies, 2.6).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from . import dcp, torch_zip
from .dcp_metadata import METADATA
from .deepspeed import sort
from .engine import judge_engine
from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .whole_file import worst_of

ENDING = ".ckpt"
VERSION = "pytorch-lightning_version"
TAG = "checkpoint"  # of DeepSpeed's engine
META = "meta.pt"
STEP_IN_NAME = re.compile(r"(?:^|[^a-zA-Z_])(?:global_)?step=(\d+)")


class Lightning:
    """A checkpoint of Lightning's Trainer."""

    name = "lightning"
    unseen = "in a folder of shards: see dcp; a folder that was saved into again and is now half of each save"

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return name.endswith(ENDING) or (META in files and any(f.endswith(".distcp") for f in files))

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        if folder.is_file:
            return _judge_file(folder, question)
        if META in folder.files or any(file == METADATA or file.endswith(".distcp") for file in folder.files):
            return _judge_shards(folder, question)
        if any(file.startswith(f"{TAG}/") for file in folder.files):
            return _judge_engine(folder, question)
        return Unknown("a folder that neither Lightning's FSDP strategies nor its DeepSpeed strategy leaves like this")


def _judge_file(folder: Folder, question: Question) -> Finding:
    path = folder.name
    how = torch_zip.judge_files(folder, [path], question)
    if not isinstance(how, str):
        return how
    try:
        held = torch_zip.contents(folder, path, question.give_up)
    except ValueError as error:
        return Unknown(f"{path!a} is a whole file of torch.save, but what it holds cannot be read: {error}")
    if VERSION not in held:
        return Whole(how, step=torch_zip.step_of(held))
    if "optimizer_states" not in held:
        return Torn("it holds no optimizer: one saved with save_weights_only is not one to resume from")
    return _with_step(folder, held, how, None)


def _judge_shards(folder: Folder, question: Question) -> Finding:
    # Its own strategies save with collectives: no node has a part.
    shards, meta = dcp.shards(folder, "", replace(question, part=False)), _judge_meta(folder, question)
    if not isinstance(shards, Whole) or not isinstance(meta, Whole):
        return worst_of((shards, meta)) or shards
    return Whole(f"{META}, {shards.how}", step=meta.step, world=shards.world)


def _judge_meta(folder: Folder, question: Question) -> Finding:
    if META not in folder.files:
        return Torn(f"{META!a} is missing, which rank 0 writes last", (META,))
    if words := torch_zip.wrong_with(folder, META, question):
        return Torn(words)
    try:
        held = torch_zip.contents(folder, META, question.give_up)
    except ValueError as error:
        return Unknown(f"{META!a} cannot be read: {error}")
    return _with_step(folder, held, META, None)


def _judge_engine(folder: Folder, question: Question) -> Finding:
    states = judge_engine(folder, TAG, question, by_pointer=True)
    if not isinstance(states, Whole):
        return states
    model = min(sort(folder.files, f"{TAG}/").model.values())
    try:
        held = torch_zip.contents(folder, model, question.give_up)
    except ValueError as error:
        return Unknown(f"{model!a} cannot be read: {error}")
    found = _with_step(folder, {"global_step": states.step, **held}, states.how, states.world)
    return replace(found, ranks=states.ranks) if isinstance(found, Whole) else found


def _with_step(folder: Folder, held: Mapping[str, object], how: str, world: int | None) -> Finding:
    step = torch_zip.step_of(held, ("global_step",))
    named = STEP_IN_NAME.search(folder.name)
    if step is not None and named is not None and int(named[1]) != step:
        return Torn(f"it was saved at global_step {step}, but its name says {named[1]}")
    return Whole(how, step=step, world=world)
