"""The weights of Hugging Face's libraries: one file, or shards with an index that says which tensor lies in which."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import cast

from . import safetensors
from .finding import Torn
from .folder import Folder
from .whole_file import parsed

DCP_SHARD = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")  # a rank's part, not weights by itself
FILE = re.compile(
    rf"(?!{DCP_SHARD.pattern})[^/.][^/]*\.safetensors|(pytorch|adapter|diffusion_pytorch)_model[^/]*\.bin"
)
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.safetensors|\.bin)")
CONFIGS = ("config.json", "adapter_config.json")  # save_pretrained writes one of them
INDEX = re.compile(r".+(\.safetensors|\.bin)\.index\.json")


@dataclass(slots=True)
class Weights:
    """The files of a checkpoint that hold its models' weights."""

    paths: list[str] = field(default_factory=list[str])  # that are there, indices included
    lacking: list[str] = field(default_factory=list[str])
    wrong: Torn | None = None  # an index that contradicts its shards


def weights_in(folder: Folder) -> Weights:
    """Find the weights in a checkpoint and in those of its sub-folders that have a model's configuration too."""
    found = Weights()
    lacking: set[str] = set()
    for path in sorted(folder.files):
        inside, _, name = path.rpartition("/")
        if inside and not any(f"{inside}/{config}" in folder.files for config in CONFIGS):
            continue
        if INDEX.fullmatch(name):
            found.paths.append(path)
            found.wrong = found.wrong or _by_index(folder, path, lacking)
        elif FILE.fullmatch(name):
            found.paths.append(path)
            lacking |= _beside_shard(path) - folder.files.keys()
    found.lacking = sorted(lacking)
    return found


def _beside_shard(path: str) -> set[str]:
    """Return the files that must be there if this one is: a shard's name says how many there are."""
    if (shard := SHARD.fullmatch(path)) is None:
        return set()
    stem, _, count, ending = shard.groups()
    most = min(int(count), 10_000)  # a name may say anything
    return {f"{stem}-{n:05d}-of-{count}{ending}" for n in range(1, most + 1)} | {f"{stem}{ending}.index.json"}


def _by_index(folder: Folder, path: str, lacking: set[str]) -> Torn | None:
    try:
        index = parsed(folder, path)
    except ValueError as error:
        return Torn(str(error))
    held = cast("dict[str, object]", index).get("weight_map") if isinstance(index, dict) else None
    if not isinstance(held, dict) or not held:
        return Torn(f"{path!a} names no weights")
    inside = path.rpartition("/")[0]
    shards: dict[str, set[str]] = {}
    for tensor, file in cast("dict[str, object]", held).items():
        shards.setdefault(f"{inside}/{file}" if inside else f"{file}", set()).add(tensor)
    lacking |= shards.keys() - folder.files.keys()
    for shard, tensors in sorted(shards.items()):
        if not shard.endswith(".safetensors") or shard not in folder.files:
            continue  # what a file of torch.save holds is not compared
        try:
            without = tensors - safetensors.tensors(folder, shard)
        except ValueError as error:
            return Torn(f"{shard!a} {error}")
        if without:
            return Torn(f"{shard!a} does not hold tensor {min(without)!a}, which {path!a} says lies there")
    return None
