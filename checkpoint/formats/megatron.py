"""Megatron Core's ``torch_dist`` and Megatron-LM's ``iter_NNNNNNN/`` directories, the older ``torch`` format included.

torch_dist: rank 0 writes ``common.pt``, the ranks DCP shards, the coordinator ``.metadata``, and at last rank 0
``metadata.json`` (megatron/core/dist_checkpointing/serialization.py, 0.16), which is the commit marker. The training
loop then rewrites ``latest_checkpointed_iteration.txt`` in place: half-written it reads 1 for 10, and it is no evidence
here. Megatron-LM's ``torch_dcp`` and ``fsdp_dtensor`` are DCP alone, without ``common.pt`` and ``metadata.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from typing import cast

from . import megatron_legacy as legacy
from .dcp import shards
from .dcp_metadata import METADATA, is_of_megatron
from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .torch_zip import contents, judge_files

CONFIG = "metadata.json"
COMMON = "common.pt"
LARGEST_CONFIG = 1 << 20
NAME = re.compile(r"iter_(\d{7,})|release")


class Megatron:
    """An iteration's directory of Megatron Core or Megatron-LM."""

    name = "megatron"
    unseen = (
        "what DCP's checks cannot see; in the older torch format: pipeline ranks' files in each other's place, and the "
        "files of two saves of the same iteration"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        if any(legacy.FILE.fullmatch(path) for path in files):
            return True
        has_shards = any(path == METADATA or path.endswith(".distcp") for path in files)
        signs = (_named(name), COMMON in files, CONFIG in files, has_shards)
        return signs.count(True) > 1

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        try:
            if any(legacy.FILE.fullmatch(path) for path in folder.files):
                return legacy.judge(folder, _named_step(folder), question)
            if (
                not {COMMON, CONFIG} & folder.files.keys()
                and METADATA in folder.files
                and not is_of_megatron(folder, METADATA, question.give_up)
            ):
                return shards(folder, "", question)
            return _judged(folder, question)
        except ValueError as error:
            return Torn(str(error))


def _named(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def _named_step(folder: Folder) -> int | None:
    found = NAME.fullmatch(folder.name)
    return int(found[1]) if found and found[1] else None


def _judged(folder: Folder, question: Question) -> Finding:
    if CONFIG not in folder.files:
        found = shards(folder, "", replace(question, deep=False))
        end = Torn(f"{CONFIG!a} is missing: the save did not come to its end", (CONFIG,))
        return end if isinstance(found, Whole) else found
    config = _config(folder)
    if (backend := config.get("sharded_backend")) != "torch_dist":
        return Unknown(f"{CONFIG!a} says that it is kept by {str(backend)[:40]!a}, which is not known here")
    step, world = None, None
    if config.get("common_backend", "torch") == "torch":
        if COMMON not in folder.files:
            return Torn(f"{COMMON!a} is missing", (COMMON,))
        how = judge_files(folder, [COMMON], question)
        if not isinstance(how, str):
            return how
        held = contents(folder, COMMON)
        step, world = legacy.step_of(held), legacy.size(legacy.arguments(held), "world_size")
    if wrong := legacy.other_step(folder.name, _named_step(folder), step):
        return Torn(wrong)
    found = shards(folder, "", replace(question, part=False))  # with common.pt, of rank 0: no node has a part
    if not isinstance(found, Whole):
        return found
    return Whole(f"{CONFIG}, {found.how}, and {COMMON}", step, world)  # ranks without a part of their own leave no file


def _config(folder: Folder) -> dict[str, object]:
    raw = folder.read(CONFIG, LARGEST_CONFIG)
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError(f"{CONFIG!a} is cut short or no JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{CONFIG!a} holds no settings")
    return cast("dict[str, object]", value)
