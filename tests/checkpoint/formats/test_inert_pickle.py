"""Pickles are read without constructing anything, whatever they say and wherever they end."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import os
import pickle
import pickletools
import time
import zipfile
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES
from hypothesis import given
from hypothesis import strategies as st

from remuster.checkpoint.errors import GaveUp
from remuster.checkpoint.formats.inert_pickle import Inert, NotReadable, loads

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(PLAIN, st.integers(3, 5))  # before protocol 3 bytes were made by a call
def test_plain_values_come_back(value: object, protocol: int) -> None:
    assert loads(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_values_of_every_protocol_come_back(protocol: int) -> None:
    value = {"a": [1, 2.5, -(1 << 70), "text\n'é", None, True], "b": ({"c": ()},), 3: "x" * 300}
    assert loads(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_objects_are_named_and_not_made(protocol: int) -> None:
    found = loads(pickle.dumps(argparse.Namespace(tensor_model_parallel_size=2), protocol))
    assert isinstance(found, Inert)
    assert found.name == "argparse.Namespace"
    assert found.state == {"tensor_model_parallel_size": 2}


@pytest.mark.parametrize("protocol", range(6))
def test_ordered_dicts_are_dicts(protocol: int) -> None:
    assert loads(pickle.dumps(collections.OrderedDict(a=1, b=2), protocol)) == {"a": 1, "b": 2}


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    found = loads(pickle.dumps([Hostile(f"touch {mark}")], protocol))
    assert isinstance(found, list)
    assert found[0].args == (f"touch {mark}",)
    assert not mark.exists()


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_cut_short_anywhere_is_not_readable(protocol: int) -> None:
    whole = pickle.dumps({"state": [argparse.Namespace(a=(1, 2)), "text", {"k": 1 << 80}]}, protocol)
    loads(whole)
    for length in range(len(whole)):
        with pytest.raises(NotReadable):
            loads(whole[:length])


def test_dcps_metadata_cut_short_anywhere_is_not_readable() -> None:
    whole = (SAMPLES / "dcp/complete/step-00000005/.metadata").read_bytes()
    for length in range(0, len(whole), 41):
        with pytest.raises(NotReadable):
            loads(whole[:length])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(NotReadable):
        loads(raw)


@given(st.data())
def test_a_real_pickle_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray((SAMPLES / "dcp/complete/step-00000005/.metadata").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NotReadable):
        loads(bytes(raw))


LAUGHS = b"\x80\x04)" + b"2\x86" * 200  # a tuple of the same tuple twice, 200 times over: 2^200 if it were hashed


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x04}" + LAUGHS[2:] + b"K\x01s.",
        b"\x80\x04\x8f(" + LAUGHS[2:] + b"\x90.",
        b"\x80\x04(" + LAUGHS[2:] + b"\x91.",
        b"\x80\x02}" + b"\x8b" + (2000).to_bytes(4, "little") + b"\x01" * 2000 + b"K\x01s.",  # a huge number as key
        b"(.",  # only a mark
        b"K\x01K\x02.",  # two values
        b"j\xff\xff\xff\x7f.",  # a huge index into an empty memo
        b"\x80\x04\x82\x01.",  # an extension's code
        b"K\x01K\x01K\x01s.",  # an item put into a number
    ],
)
def test_what_no_checkpoint_needs_is_refused_at_once(raw: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(NotReadable):
        loads(raw)
    assert time.monotonic() - began < 5


def test_depth_is_no_danger() -> None:
    depth = 200_000
    value = loads(b"]" * depth + b"a" * (depth - 1) + b".")
    assert isinstance(value, list)
    objects = b"\x80\x02" + b"cmod\nName\n" + b")\x81" + (b"cmod\nName\n)\x81" * 2000) + b"b" * 2000 + b"."
    assert isinstance(loads(objects), Inert)


def test_a_huge_index_into_the_memo_costs_nothing() -> None:
    assert loads(b"K\x07r\xff\xff\xff\x7f.") == 7


def test_reading_ends_when_it_is_told_to() -> None:
    with pytest.raises(GaveUp):
        loads(pickle.dumps(list(range(100_000))), lambda: True)


def test_torchs_own_pickle_is_read() -> None:
    path = SAMPLES / "deepspeed/z2/global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt"
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        raw = next(archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl"))
    found = loads(raw)
    assert isinstance(found, dict)
    assert found["ds_version"] == "0.19.8"
    assert len(list(pickletools.genops(raw))) > 100
