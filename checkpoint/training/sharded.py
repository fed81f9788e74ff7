"""Sharded state through torch.distributed.checkpoint (DCP), written into a publication, read without running pickles.

DCP's own reader unpickles ``.metadata`` and every value that is no tensor. Here the one makes DCP's own records only,
and the others are read by ``torch.load(weights_only=True)``. Called by ``saving`` and ``restoring``.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ..publication import Publication
from .collect import SHARDS
from .streams import telling

METADATA = ".metadata"

_RECORDS = {
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    "pathlib": ("PosixPath",),
    "pathlib._local": ("PosixPath",),  # Python 3.13
}


def write(publication: Publication, shards: dict[str, Any], rank: int, group: Any) -> None:
    """Write this rank's shards. Collective; raises on a rank that failed, and on the others does nothing more."""
    dcp: Any = import_module("torch.distributed.checkpoint")
    folder = publication.folder(SHARDS)
    filesystem: Any = import_module("torch.distributed.checkpoint.filesystem")

    class Telling(filesystem.FileSystem):  # type: ignore[misc]
        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Generator[Any, None, None]:
            with filesystem.FileSystem.create_stream(self, path, mode) as stream, telling(stream, str(path)) as lent:
                yield lent

    writer = dcp.FileSystemWriter(folder, sync_files=False)  # the publication does that, for all files alike
    writer.fs = Telling()
    try:
        dcp.save(shards, storage_writer=writer, process_group=group)
    except dcp.CheckpointException as e:  # no Exception, and the same on all ranks
        if rank in e.failures:
            raise e.failures[rank][0] from e
        return
    mine = re.compile(rf"__{rank}_[0-9]+\.distcp")
    names = [name for name in sorted(os.listdir(folder)) if mine.fullmatch(name)]
    for name in [METADATA, *names] if rank == 0 else names:
        publication.path(f"{SHARDS}/{name}")


def read(shards: dict[str, Any], step: Path) -> None:
    """Read into ``shards``, in place, whatever world they were written by. Collective; raises on all ranks."""
    dcp: Any = import_module("torch.distributed.checkpoint")
    planner: Any = import_module("torch.distributed.checkpoint.default_planner")
    traverse: Any = import_module("torch.distributed.checkpoint._traverse")
    torch: Any = import_module("torch")

    class Reader(dcp.FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_: Any, **__: Any) -> Any:
            with open(step / SHARDS / METADATA, "rb") as file:
                return _Records(file).load()

    class Planner(planner.DefaultLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: Any) -> None:
            loaded = torch.load(value, weights_only=True)
            traverse.set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], loaded)

    try:
        dcp.load(shards, storage_reader=Reader(step / SHARDS), planner=Planner())
    except dcp.CheckpointException as e:  # no Exception, and the same on all ranks
        rank, (error, _) = min(e.failures.items())
        raise RuntimeError(f"rank {rank} could not read its shards: {type(error).__name__}: {error}") from e


class _Records(pickle.Unpickler):
    """Makes the records that DCP describes its shards with, and refuses to look anything else up."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if global_name in _RECORDS.get(module_name, ()):
            return getattr(import_module(module_name), global_name)
        torch: Any = import_module("torch")
        if module_name == "torch" and isinstance(found := getattr(torch, global_name, None), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"{METADATA} names {module_name}.{global_name}, which is no record of DCP's")
