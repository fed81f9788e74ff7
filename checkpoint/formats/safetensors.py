"""Files of safetensors: a header in JSON that says where each tensor lies, then the tensors. They carry no checksum.

So a file that was cut short, or whose header is damaged, is seen; a tensor whose numbers were changed in place is not,
except for zeros from the middle of a tensor's row to the end, as a file system leaves them that lost power.
The rules are those of the format's own reader: https://github.com/huggingface/safetensors#format (0.8).
"""

from __future__ import annotations

import json
import os
from math import prod
from typing import cast

from ..digest import OVERDUE
from ..errors import GaveUp
from .finding import Question
from .folder import Folder

LARGEST_HEADER = 100_000_000  # bytes, as its own reader has it

MOST_NUMBERS = 64  # dimensions

BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
FLOATS = ("F64", "F32", "F16", "BF16")
FEWEST_ZEROS = 512  # that mean anything


def wrong_with(folder: Folder, path: str, question: Question) -> str:
    """Say what is wrong with one file, or "" when nothing is that could be seen."""
    try:
        named, _ = _header(folder, path)
        if question.deep and (tail := _zeros(folder, path, question)) >= FEWEST_ZEROS:
            _see_zeros(named, tail)
    except ValueError as error:
        return f"{path!a} {error}"
    return ""


def tensors(folder: Folder, path: str) -> frozenset[str]:
    """Return the names of the tensors in a file. ValueError: it is not whole; the words go on after its name."""
    return frozenset(_header(folder, path)[0])


def lengths(folder: Folder, path: str, start: int, question: Question) -> tuple[dict[str, int], object]:
    """Return the bytes of each tensor from ``start`` to the end of a file, and what the header says beside. ValueError.

    That may be a rank's part, so zeros only may be meant.
    """
    named, said = _header(folder, path, start)
    if question.deep and (tail := _zeros(folder, path, question)) >= FEWEST_ZEROS:
        _see_zeros(named, tail, may_be_all=True)
    ends = {name: _ends(cast("dict[str, object]", about)) for name, about in named.items()}
    return {name: end - begin for name, (begin, end) in ends.items()}, said


def _header(folder: Folder, path: str, start: int = 0) -> tuple[dict[str, object], object]:
    """Return what the header says of each tensor, in a file that has the size for them from ``start`` on, and more."""
    with folder.opened(path) as (fd, end):
        size = end - start
        if size <= 0:
            raise ValueError(f"has only {end} bytes" if end else "is empty")
        length = int.from_bytes(os.pread(fd, 8, start), "little")
        if size < 8 or length > size - 8:
            raise ValueError(f"ends within its header ({size} bytes)")
        if length > LARGEST_HEADER:
            raise ValueError(f"has a header of {length} bytes, which is no safetensors file's")
        raw = _read(fd, start + 8, length)
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("has a header that is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("has a header that names no tensors")
    named = cast("dict[str, object]", header)
    said = named.pop("__metadata__", None)
    _fill(named, size - 8 - length)
    return named, said


def _zeros(folder: Folder, path: str, question: Question) -> int:
    """Return how many zeros the file ends with."""
    with folder.opened(path) as (fd, size):
        end = size
        while end:
            if question.give_up():
                raise GaveUp(OVERDUE)
            start = max(0, end - (1 << 20 if end < size else 1 << 12))
            block = os.pread(fd, end - start, start)
            if kept := len(block.rstrip(b"\0")):
                return size - start - kept
            end = start
    return size


def _see_zeros(named: dict[str, object], zeros: int, may_be_all: bool = False) -> None:
    """Raise ValueError if no trained model ends in so many zeros: whole tensors of them, and rows, can be meant."""
    abouts = [(name, cast("dict[str, object]", about)) for name, about in named.items()]
    floats = [(name, about) for name, about in abouts if about["dtype"] in FLOATS]
    held = max((_ends(about)[1] for _, about in abouts), default=0)
    if zeros >= held and floats and not may_be_all:
        raise ValueError("holds zeros only")
    for name, about in floats:
        begin, end = _ends(about)
        *rows, length = cast("list[int]", about["shape"]) or [1]
        width = BITS[str(about["dtype"])] // 8
        if begin < held - zeros < end and rows and -((held - zeros - begin) // -width) % length:
            raise ValueError(f"ends in {zeros} zeros, from within tensor {name!a} on, as after a loss of power")


def _ends(about: dict[str, object]) -> tuple[int, int]:
    begin, end = cast("list[int]", about["data_offsets"])
    return begin, end


def _read(fd: int, start: int, length: int) -> bytes:
    raw = bytearray()
    while len(raw) < length and (block := os.pread(fd, length - len(raw), start + len(raw))):
        raw += block
    return bytes(raw)


def _fill(named: dict[str, object], held: int) -> None:
    """See that the tensors lie one after the other and fill the file, and that each is as long as its shape says."""
    pieces: list[tuple[int, int]] = []
    for name, about in named.items():
        fields = cast("dict[str, object]", about) if isinstance(about, dict) else {}
        offsets, shape, kind = (
            _whole_numbers(fields, "data_offsets"),
            _whole_numbers(fields, "shape"),
            fields.get("dtype"),
        )
        if offsets is None or len(offsets) != 2 or shape is None or not isinstance(kind, str):
            raise ValueError(f"has a header that does not say what tensor {name!a} is")
        begin, end = offsets
        bits = BITS.get(kind)  # None: a type that is newer than this table
        if bits is not None and 8 * (end - begin) != bits * prod(shape):
            raise ValueError(f"has {end - begin} bytes for tensor {name!a}, which its shape and type contradict")
        pieces.append((begin, end))
    at = 0
    for begin, end in sorted(pieces):
        if begin != at or end < begin:
            raise ValueError(f"has a header whose tensors do not follow each other (at byte {at})")
        at = end
    if at != held:
        raise ValueError(f"has {held} bytes of tensors; its header promises {at}")


def _whole_numbers(fields: dict[str, object], key: str) -> list[int] | None:
    value = fields.get(key)
    if not isinstance(value, list):
        return None
    numbers = cast("list[object]", value)
    ok = len(numbers) <= MOST_NUMBERS and all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 63 for number in numbers
    )
    return cast("list[int]", value) if ok else None
