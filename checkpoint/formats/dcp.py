"""torch.distributed.checkpoint (FSDP2 and others): shards ``__R_K.distcp``, and ``.metadata``, written last.

Ranks write their shards in place; then the coordinator writes ``.metadata.tmp``, fsyncs and renames it
(torch/distributed/checkpoint/filesystem.py, 2.13), so ``.metadata`` is a commit marker. It names, for every tensor, a
file, an offset and a length. The shards carry no checksum of their own: content that was changed in place is not seen.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .inert_pickle import Inert, NotReadable, loads

METADATA = ".metadata"
LARGEST = 256 << 20


class Dcp:
    """A directory of torch.distributed.checkpoint."""

    name = "dcp"

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return any(file in (METADATA, METADATA + ".tmp") or file.endswith(".distcp") for file in files)

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        return shards(folder)


def shards(folder: Folder, prefix: str = "") -> Finding:
    """Judge the shards below ``prefix`` by the metadata there."""
    path = prefix + METADATA
    if path not in folder.files:
        only = " (only .metadata.tmp: the save did not come to its end)" if path + ".tmp" in folder.files else ""
        return Torn(f"{path!a} is missing{only}", (path,))
    try:
        need = _promised(folder.read(path, LARGEST))
    except NotReadable as error:
        return Torn(f"{path!a} cannot be read: {error}")
    except ValueError as error:
        return Unknown(f"{path!a}: {error}")
    lacking = tuple(sorted(prefix + file for file in need if prefix + file not in folder.files))
    short = [
        f"{prefix + file!a} has {folder.files[prefix + file]} bytes; {METADATA} needs {end}"
        for file, end in sorted(need.items())
        if folder.files.get(prefix + file, end) < end
    ]
    if short:
        return Torn(short[0])
    if lacking:
        return Torn(f"{len(lacking)} of {len(need)} shard files are missing, {lacking[0]!a} first", lacking)
    world = len({file.split("_")[2] for file in need if file.startswith("__")}) or None
    return Whole(f"{METADATA}, and the sizes of the {len(need)} shard files that it names", world=world)


def _promised(raw: bytes) -> dict[str, int]:
    """Return each file that the metadata names, and where the last piece in it ends, in bytes."""
    metadata = loads(raw)
    state = metadata.state if isinstance(metadata, Inert) else None
    storage = cast("dict[str, object]", state).get("storage_data") if isinstance(state, dict) else None
    if not isinstance(storage, dict) or not storage:
        raise ValueError("it names no data")
    need: dict[str, int] = {}
    for info in cast("dict[object, object]", storage).values():
        held = info.state if isinstance(info, Inert) else None
        fields = cast("dict[str, object]", held) if isinstance(held, dict) else {}
        path, offset, length = fields.get("relative_path"), fields.get("offset"), fields.get("length")
        if not isinstance(path, str) or not isinstance(offset, int) or not isinstance(length, int):
            raise ValueError("its storage_data is of a form that is not known here")
        need[path] = max(need.get(path, 0), offset + length)
    return need
