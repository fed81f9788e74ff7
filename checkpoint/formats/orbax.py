"""Orbax (JAX): a folder that is renamed when whole, with the time of that in ``_CHECKPOINT_METADATA``.

While it is written its name, and its items' names, hold ``.orbax-checkpoint-tmp``; on storage that cannot rename
``commit_success.txt`` takes that place (orbax-checkpoint 0.12, which writes it on a disk too). The items named in the
metadata must be there; arrays lie in a B+tree, which is followed (``ocdbt``). The arrays' bytes carry no checksum.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import cast

from . import ocdbt
from .finding import Finding, Question, Torn, Whole, missing
from .folder import Folder
from .whole_file import parsed

METADATA = "_CHECKPOINT_METADATA"
ITEM = "_METADATA"
SUCCESS = "commit_success.txt"
SUCCESSFUL = b"Checkpoint commit was successful"
LARGEST = 1 << 16
TEMPORARY = ".orbax-checkpoint-tmp"
PART = re.compile(r"(.*/)?ocdbt\.process_(\d{1,6})(?=/|$)")  # of one process, before they were taken into one tree
PROCESS = re.compile(r"(?:.*/)?array_metadatas/process_(\d{1,6})")
PARSED = re.compile(r"(?:.*/)?(_METADATA|_sharding|array_metadatas/process_\d+|\.zarray|zarr\.json)")
JSON = "JsonCheckpointHandler"  # writes a file "metadata"
TREES = ("StandardCheckpointHandler", "PyTreeCheckpointHandler")


class Orbax:
    """A step folder of Orbax."""

    name = "orbax"
    unseen = (
        "bytes of arrays changed in place (but for lost ends), or exchanged between pieces of one length; arrays that "
        "are kept outside the B+tree (use_ocdbt=False); the part of an index beyond 4 MiB; _sharding gone"
    )

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        if TEMPORARY in name:
            return True
        marks = (METADATA, "manifest.ocdbt", SUCCESS)
        return any(file.rpartition("/")[2] in marks or TEMPORARY in file for file in files)

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        files = folder.files
        if TEMPORARY in folder.name:
            return Torn("it is a temporary folder: the save did not come to its end")
        if left := next((path for path in sorted(files) if TEMPORARY in path), ""):
            return Torn(f"{left!a} is in a temporary folder: the save did not come to its end")
        if METADATA not in files:
            return Torn(f"{METADATA} is missing", (METADATA,))
        try:
            items = _items(folder)
            for path in sorted(files):
                if PARSED.fullmatch(path):
                    _see_content(path, parsed(folder, path))
                elif path.rpartition("/")[2] == SUCCESS and not folder.read(path, LARGEST).startswith(SUCCESSFUL):
                    return Torn(f"{path!a} does not say that the commit was successful")
            lacking = sorted(_lacking(folder, items))
        except ValueError as error:
            return Torn(str(error))
        if lacking:
            return Torn(missing(lacking), tuple(lacking))
        return _judge_trees(folder, question)


def _items(folder: Folder) -> Mapping[str, str]:
    """Return the prefix of each item and what saved it. ValueError: the metadata is not whole, or not of a commit."""
    metadata = parsed(folder, METADATA)
    fields = cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {}
    time = fields.get("commit_timestamp_nsecs")
    if not isinstance(time, int) or time <= 0:
        raise ValueError(f"{METADATA} has no commit time: the save did not come to its end")
    handlers = fields.get("item_handlers")
    if isinstance(handlers, dict):
        return {f"{item}/": f"{handler}" for item, handler in cast("dict[str, object]", handlers).items()}
    return {"": handlers if isinstance(handlers, str) else ""}  # saved as one, without items


def _lacking(folder: Folder, items: Mapping[str, str]) -> set[str]:
    files, lacking = folder.files, set[str]()
    for prefix, handler in items.items():
        if handler.endswith(JSON) and prefix + "metadata" in files:
            parsed(folder, prefix + "metadata")
        tree = handler.endswith(TREES)
        if prefix + ITEM not in files and (tree or not any(file.startswith(prefix) for file in files)):
            lacking.add(prefix + ITEM)
        if prefix + ITEM in files:
            about = parsed(folder, prefix + ITEM)
            fields = cast("dict[str, object]", about) if isinstance(about, dict) else {}
            if tree and "tree_metadata" not in fields:
                raise ValueError(f"{prefix + ITEM!a} does not describe a tree")
            if fields.get("use_ocdbt"):
                lacking |= {prefix + "manifest.ocdbt"} - files.keys()
    if any(file.endswith("/" + SUCCESS) for file in files):  # an item has it, and the whole gets it last
        lacking |= {SUCCESS} - files.keys()
    parts = {match[0]: int(match[2]) for file in files if (match := PART.match(file))}
    lacking |= {f"{part}/manifest.ocdbt" for part in parts} - files.keys()
    wrote = _processes(files)
    for prefix in {file[: file.rindex("process_")] for file in files if PROCESS.fullmatch(file)}:
        lacking |= {f"{prefix}process_{n}" for n in range(max((*wrote, *parts.values())) + 1)} - files.keys()
    return lacking


def _see_content(path: str, about: object) -> None:
    """Raise ValueError if a file of JSON holds what belongs into another."""
    fields = cast("dict[str, object]", about) if isinstance(about, dict) else None
    if PROCESS.fullmatch(path) and "array_metadatas" not in (fields or {}):
        raise ValueError(f"{path!a} does not describe arrays")
    if path.endswith("_sharding") and (fields is None or any(not isinstance(value, str) for value in fields.values())):
        raise ValueError(f"{path!a} does not describe how arrays were sharded")


def _processes(files: Collection[str]) -> set[int]:
    return {int(match[1]) for file in files if (match := PROCESS.fullmatch(file))}


def _judge_trees(folder: Folder, question: Question) -> Finding:
    """Follow the arrays' trees: the one that is loaded, and those of the processes, in whose files its pieces lie."""
    world = len(_processes(folder.files)) or None
    if not question.deep:
        return Whole("its commit time and its items", world=world)
    values, followed = 0, True
    for path in sorted(folder.files):
        inside, _, name = path.rpartition("/")
        if name != "manifest.ocdbt":
            continue
        try:
            tree = ocdbt.follow(folder, path.removesuffix(name), question.give_up)
        except ocdbt.Broken as error:
            return Torn(str(error), (error.lacking,) if error.lacking else ())
        followed = followed and tree.followed
        values += 0 if PART.fullmatch(inside) else tree.values
    how = (
        f"its commit time, its items, and of their arrays the CRC-32C of the index and the presence of {values} pieces"
    )
    if not followed:
        how += "; the index is too large, or too new, to be followed to its end"
    return Whole(how, world=world)
