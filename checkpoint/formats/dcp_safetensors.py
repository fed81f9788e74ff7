"""Shards of torch.distributed.checkpoint that hold safetensors, and the folders of its HuggingFaceStorageWriter.

``FileSystemWriter(serialization_format=SAFETENSORS)`` writes into each ``__R_K.distcp`` what is no tensor, as
torch.save does, and behind that all tensors as one file of safetensors. ``.metadata`` says of each of these where that
file begins, the same of all, and how many bytes its numbers have (torch/distributed/checkpoint/filesystem.py, 2.13).
Its own FileSystemReader cannot load that; a script must.

``HuggingFaceStorageWriter`` leaves no ``.metadata``: one file for each rank, and nothing that says how many there are
or that all are done; where it joins them, the whole model beside them, and at last an index of that (hf_storage.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from functools import partial
from typing import cast

from . import safetensors
from .dcp_metadata import Piece
from .finding import Finding, Question, Torn, Unknown, missing
from .folder import Folder
from .together import first_wrong
from .weights import DCP_SHARD, weights_in

JOINED = "sharded/"  # where the ranks' files are if they were joined


def packed(pieces: Iterable[Piece]) -> dict[str, list[Piece]]:
    """Return the pieces that certainly lie in safetensors, by shard; a tensor that is alone in one is not told so."""
    last: dict[str, list[Piece]] = {}
    for piece in pieces:
        held = last.get(piece.file)
        if held is None or piece.offset > held[0].offset:
            last[piece.file] = [piece]
        elif piece.offset == held[0].offset:
            held.append(piece)
    return {file: held for file, held in last.items() if len(held) > 1}


def begin(fd: int, start: int) -> bool:
    """Say whether safetensors begin there, with the length of their header, as no file of torch.save does."""
    first = os.pread(fd, 9, start)
    return int.from_bytes(first[:8], "little") <= safetensors.LARGEST_HEADER and first[8:] == b"{"


def wrong_in(folder: Folder, path: str, held: list[Piece], question: Question) -> str:
    """Say what is wrong with the tensors of one shard, or "" when nothing is that could be seen."""
    try:
        lengths, said = safetensors.lengths(folder, path, held[0].offset, question)
        places = _places(said)
    except ValueError as error:
        return f"{path!a} {error}"
    for piece in held:
        if lengths.get(piece.name) != piece.length:
            return f"{path!a} does not hold the {piece.length} bytes of {piece.name!a} that .metadata places there"
        if places.get(piece.name, piece.place) != piece.place:  # of two parts of a tensor torch keeps the last one
            return f"{path!a} holds another part of {piece.name!a} than the one that .metadata places there"
    return ""


def _places(said: object) -> dict[str, tuple[object, ...]]:
    """Return where in its tensor each part lies, as torch says it in the header."""
    told = cast("dict[str, object]", said).get("DCP_SHARDING_INFO") if isinstance(said, dict) else None
    try:
        parts: object = json.loads(told) if isinstance(told, str) else {}
    except (ValueError, RecursionError):
        raise ValueError("has a header that does not say where its tensors belong") from None
    found: dict[str, tuple[object, ...]] = {}
    for name, part in cast("dict[str, object]", parts).items() if isinstance(parts, dict) else ():
        offsets = cast("dict[str, object]", part).get("saved_offsets") if isinstance(part, dict) else None
        if isinstance(offsets, list):
            found[name] = tuple(cast("list[object]", offsets))
    return found


def of_huggingface(files: Collection[str]) -> bool:
    """Say whether there is a file that HuggingFaceStorageWriter alone names so."""
    return any(DCP_SHARD.fullmatch(file.removeprefix(JOINED)) for file in files)


def judge_huggingface(folder: Folder, question: Question) -> Finding:
    """Judge what HuggingFaceStorageWriter left: torn, or not known, as nothing shows that it is whole."""
    weights = weights_in(folder)
    shards = {file for file in folder.files if DCP_SHARD.fullmatch(file.removeprefix(JOINED))}
    read = sorted({*shards, *(path for path in weights.paths if path.endswith(".safetensors"))})
    if weights.lacking:
        return Torn(missing(weights.lacking), tuple(weights.lacking))
    wrong = first_wrong([partial(_wrong_alone, folder, path) for path in read], question)
    if wrong or weights.wrong:
        return Torn(wrong) if wrong else cast("Torn", weights.wrong)
    if any(file.startswith(JOINED) for file in shards):
        return Unknown("it holds a model that HuggingFaceStorageWriter joined, and not what a job resumes from")
    return Unknown(
        f"the {len(shards)} files of HuggingFaceStorageWriter are whole, but nothing says how many there must be: "
        "save with torch's own FileSystemWriter, or publish them with remuster.checkpoint"
    )


def _wrong_alone(folder: Folder, path: str, question: Question) -> str:
    try:
        safetensors.lengths(folder, path, 0, question)
    except ValueError as error:
        return f"{path!a} {error}"
    return ""
