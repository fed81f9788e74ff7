"""What a ``.metadata`` of torch.distributed.checkpoint promises: which pieces lie where. Pure, but for reading it.

It is a pickle of ``Metadata`` (torch/distributed/checkpoint/metadata.py): ``state_dict_metadata`` says what each tensor
is and how it was cut, ``storage_data`` where each piece lies. The two must agree, or loading would end in a KeyError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from ..digest import never
from .folder import Folder
from .inert_pickle import LARGEST_KEY, Inert, loads

METADATA = ".metadata"
LARGEST = 256 << 20


class Unread(Exception):
    """It has a form that is not known here: nothing may be concluded from it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a tensor, or a pickled object, as it lies in a shard."""

    name: str
    place: tuple[int, ...]  # of the part in its tensor; () for what is no tensor
    file: str  # relative to the metadata
    offset: int
    length: int  # bytes; 0 only of an empty tensor in safetensors
    transformed: bool  # by an extension, so that it is not torch.save's any more

    @property
    def end(self) -> int:
        """Return the byte after its last."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a tensor: where it begins, and how long it is, in each dimension."""

    name: str
    size: tuple[int, ...]  # of the whole tensor
    place: tuple[int, ...]
    part: tuple[int, ...]


def read_pieces(folder: Folder, path: str, give_up: Callable[[], bool] = never) -> list[Piece]:
    """Return all pieces. ValueError: the metadata is damaged (NotReadable: it is no whole pickle). ``Unread``."""
    metadata = _unpickled(folder, path, give_up)
    fields = _fields(metadata)
    storage, tensors = fields.get("storage_data"), fields.get("state_dict_metadata")
    if not isinstance(storage, dict) or not isinstance(tensors, dict):
        raise Unread("it is not the Metadata of torch.distributed.checkpoint")
    if not storage:
        raise Unread("it names no data")
    pieces = [_piece(index, info) for index, info in cast("dict[object, object]", storage).items()]
    _compare(cast("dict[object, object]", tensors), pieces)
    _see_overlap(pieces)
    return pieces


def read_cuts(folder: Folder, path: str, give_up: Callable[[], bool] = never) -> list[Cut]:
    """Return how tensors were cut, as far as this metadata has it. ValueError and ``Unread`` as ``read_pieces``."""
    tensors = _fields(_unpickled(folder, path, give_up)).get("state_dict_metadata")
    cuts: list[Cut] = []
    for name, about in cast("dict[object, object]", tensors).items() if isinstance(tensors, dict) else ():
        size, chunks = _place(_fields(about).get("size")), _fields(about).get("chunks")
        for chunk in cast("list[object]", chunks) if isinstance(chunks, list) else ():
            place, part = (_place(_fields(chunk).get(what)) for what in ("offsets", "sizes"))
            if not len(place) == len(part) == len(size):
                raise Unread("its chunks are of a form that is not known here")
            cuts.append(Cut(str(name), size, place, part))
    return cuts


def is_of_megatron(folder: Folder, path: str, give_up: Callable[[], bool] = never) -> bool:
    """Say whether Megatron Core's planner made it, which writes metadata.json after it. ValueError: no whole pickle."""
    fields = _fields(_unpickled(folder, path, give_up))
    return fields.get("planner_data") is None or "mcore_data" in fields  # torch's own planner leaves a dict


def _unpickled(folder: Folder, path: str, give_up: Callable[[], bool]) -> object:
    """Read a metadata once for all that is asked of it: that of many ranks takes a while."""
    if path not in folder.parsed:
        folder.parsed[path] = loads(folder.read(path, LARGEST), give_up)
    return folder.parsed[path]


def _piece(index: object, info: object) -> Piece:
    key, held = _fields(index), _fields(info)
    name, file = key.get("fqn"), held.get("relative_path")
    offset, length = held.get("offset"), held.get("length")
    if not isinstance(name, str) or not isinstance(file, str):
        raise Unread("its storage_data is of a form that is not known here")
    if not isinstance(offset, int) or not isinstance(length, int):
        raise Unread("its storage_data is of a form that is not known here")
    if "\0" in name or "\0" in file or offset < 0 or length < 0:
        raise ValueError(f"it says that {name!a} is {length} bytes at {offset} of {file!a}")
    return Piece(name, _place(key.get("offset")), file, offset, length, bool(held.get("transform_descriptors")))


def _compare(tensors: dict[object, object], pieces: list[Piece]) -> None:
    """See that all parts of all tensors are stored somewhere."""
    stored = {(piece.name, piece.place) for piece in pieces}
    for name, about in tensors.items():
        chunks = _fields(about).get("chunks")
        places = (
            [_place(_fields(chunk).get("offsets")) for chunk in cast("list[object]", chunks)]
            if isinstance(chunks, list)
            else [()]
        )
        for place in places:
            if (name, place) not in stored:
                raise ValueError(f"it does not say where {name!a} lies" + (f" from {place} on" if place else ""))


def _see_overlap(pieces: Iterable[Piece]) -> None:
    last: Piece | None = None
    for piece in sorted(pieces, key=lambda piece: (piece.file, piece.offset)):
        if last and last.file == piece.file and (last.end > piece.offset or last.offset == piece.offset):
            if last.transformed or piece.transformed:
                raise Unread("pieces that an extension has transformed lie over each other, as in safetensors")
            if last.offset < piece.offset:  # those at one offset are in safetensors
                raise ValueError(f"{last.name!a} and {piece.name!a} lie over each other in {piece.file!a}")
        last = piece


def _place(size: object) -> tuple[int, ...]:
    """Return what a torch.Size holds; () for none."""
    if not isinstance(size, Inert) or not size.args:
        return ()
    numbers = cast("tuple[object, ...]", size.args[0]) if isinstance(size.args[0], tuple) else (None,)
    if len(numbers) > LARGEST_KEY or not all(isinstance(number, int) for number in numbers):
        raise ValueError("it gives a piece no place in its tensor")
    return cast("tuple[int, ...]", numbers)


def _fields(value: object) -> dict[str, object]:
    state = value.state if isinstance(value, Inert) else None
    return cast("dict[str, object]", state) if isinstance(state, dict) else {}
