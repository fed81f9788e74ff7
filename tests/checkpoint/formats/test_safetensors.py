"""Files of safetensors: what their header promises is held against what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_files import safetensors_bytes, safetensors_file

from remuster.checkpoint.formats import safetensors
from remuster.checkpoint.formats.finding import Question
from remuster.checkpoint.formats.folder import Folder

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}


def wrong(tmp_path: Path, data: bytes) -> str:
    (tmp_path / "m.safetensors").write_bytes(data)
    return safetensors.wrong_with(Folder(tmp_path, "m.safetensors"), "m.safetensors", Question())


@pytest.mark.parametrize(
    ("header", "size"),
    [
        pytest.param({"a": A, "b": B}, 32, id="two tensors"),
        pytest.param({"b": B, "a": A, "__metadata__": {"format": "pt"}}, 32, id="in any order"),
        pytest.param({"s": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}, 8, id="a number"),
        pytest.param({"e": {"dtype": "F32", "shape": [0, 9], "data_offsets": [0, 0]}}, 0, id="an empty tensor"),
        pytest.param({"x": {"dtype": "F3_NEW", "shape": [5], "data_offsets": [0, 2]}}, 2, id="a type of tomorrow"),
        pytest.param({"x": {"dtype": "F4", "shape": [6], "data_offsets": [0, 3]}}, 3, id="half a byte each"),
    ],
)
def test_a_whole_file(tmp_path: Path, header: object, size: int) -> None:
    assert wrong(tmp_path, safetensors_bytes(header, bytes(size))) == ""


@pytest.mark.parametrize(
    ("header", "size", "words"),
    [
        pytest.param({"a": A, "b": B}, 31, "has 31 bytes of tensors; its header promises 32", id="cut short"),
        pytest.param({"a": A, "b": B}, 33, "has 33 bytes", id="too long"),
        pytest.param({"b": B}, 32, "do not follow each other (at byte 0)", id="a hole"),
        pytest.param({"a": A, "b": {**B, "data_offsets": [20, 28]}}, 28, "at byte 24", id="one over the other"),
        pytest.param({"a": {**A, "shape": [2, 4]}}, 24, "its shape and type contradict", id="another shape"),
        pytest.param({"a": {**A, "data_offsets": [24, 0]}}, 24, "contradict", id="backwards"),
        pytest.param({"a": {"dtype": "F32"}}, 0, "does not say what tensor 'a' is", id="no shape"),
        pytest.param({"a": {**A, "shape": [True, 6]}}, 24, "does not say", id="a shape that is no number"),
        pytest.param([], 0, "names no tensors", id="a list"),
    ],
)
def test_a_header_that_lies(tmp_path: Path, header: object, size: int, words: str) -> None:
    assert words in wrong(tmp_path, safetensors_bytes(header, bytes(size)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\x10", "ends within its header"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "ends within its header"),
        (bytes(64), "a header that is not JSON"),
        ((4).to_bytes(8, "little") + b"{{{{", "a header that is not JSON"),
        (safetensors_bytes(json.loads("[" * 900 + "]" * 900), b""), "names no tensors"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "a header that is not JSON"),
    ],
)
def test_bytes_that_are_no_such_file(tmp_path: Path, data: bytes, words: str) -> None:
    assert words in wrong(tmp_path, data)


def test_every_file_that_was_cut_short_is_seen(tmp_path: Path) -> None:
    data = safetensors_file(tmp_path / "whole.safetensors", ("a", "b")).read_bytes()
    assert wrong(tmp_path, data) == ""
    for size in range(len(data)):
        assert wrong(tmp_path, data[:size]), size


ROWS = {"dtype": "F32", "shape": [8, 64], "data_offsets": [0, 2048]}
ZERO = {"dtype": "F32", "shape": [64], "data_offsets": [2048, 2304]}


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        pytest.param(0, "holds zeros only", id="nothing but zeros"),
        pytest.param(1000, "ends in 1304 zeros, from within tensor 'w' on", id="from within a row on"),
        pytest.param(1024, "", id="a vocabulary that was padded with rows"),
        pytest.param(2048, "", id="a bias that is zero"),
        pytest.param(1900, "", id="few zeros"),
    ],
)
def test_zeros_at_the_end(tmp_path: Path, kept: int, words: str) -> None:
    said = wrong(tmp_path, safetensors_bytes({"w": ROWS, "z": ZERO}, b"\1" * kept + bytes(2304 - kept)))
    assert (words in said) if words else not said
