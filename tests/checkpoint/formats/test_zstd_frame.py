"""Frames of Zstandard whose end was lost: seen by stepping over their blocks. Real ones: test_orbax."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuster.checkpoint.formats import zstd_frame
from remuster.checkpoint.formats.zstd import MAGIC

RAW, RLE, COMPRESSED, RESERVED = range(4)


def block(kind: int, data: bytes, last: bool = False, size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + data


def frame(*blocks: bytes) -> bytes:
    return MAGIC + b"\x00\x58" + b"".join(blocks)  # a window, no size


NOISE = os.urandom(400)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(frame(block(COMPRESSED, NOISE + b"\1", True)), "", id="one block"),
        pytest.param(frame(block(RAW, NOISE), block(RLE, b"\0", True, 5000)), "", id="zeros that were written"),
        pytest.param(
            frame(block(RAW, NOISE + bytes(60) + b"\1" + bytes(40), True)), "", id="some zeros in stored ones"
        ),
        pytest.param(frame(block(RAW, b"", True)), "", id="nothing"),
        pytest.param(frame(block(RAW, NOISE, True)) + NOISE, "", id="followed by something else"),
        pytest.param(b"plain" + bytes(200), "", id="no frame"),
        pytest.param(frame(block(COMPRESSED, NOISE, True))[:-1], "is not there", id="cut"),
        pytest.param(frame(block(RAW, NOISE)), "is not there", id="no last block"),
        pytest.param(frame(block(RAW, NOISE)) + bytes(300), "is not there", id="zeros after a block"),
        pytest.param(
            frame(block(COMPRESSED, NOISE + bytes(8), True)), "ends in zeros", id="zeros in a compressed block"
        ),
        pytest.param(frame(block(RAW, NOISE + bytes(90), True)), "ends in zeros", id="zeros in a stored block"),
        pytest.param(frame(block(RESERVED, NOISE, True)), "is not there", id="a kind that is none"),
    ],
)
def test_the_end_of_a_frame(tmp_path: Path, value: bytes, words: str) -> None:
    (tmp_path / "data").write_bytes(b"before" + value)
    with open(tmp_path / "data", "rb") as file:
        said = zstd_frame.wrong_with(file.fileno(), 6, len(value))
    assert (words in said) if words else not said
