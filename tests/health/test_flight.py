"""Dumps of torch's flight recorder: real ones are understood, hostile ones do nothing and are said to be none."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health import flight, plain_pickle
from remuster.health.errors import BadEvidence
from remuster.health.observed import Position
from remuster.health.plain_pickle import NotPlain

REAL = Path(__file__).parent / "dumps"  # torch 2.13's _dump_fr_trace after three all_reduces of gloo


def entry(number: int, state: str, group: str = "0", **more: object) -> dict[str, object]:
    made = {"process_group": (group, "default_pg"), "collective_seq_id": number, "profiling_name": "nccl:all_reduce"}
    return {**made, "state": state, "is_p2p": False, **more}


def dump(*entries: dict[str, object], **more: object) -> dict[str, object]:
    return {"version": "2.10", "pg_config": {}, "entries": list(entries), **more}


@pytest.mark.parametrize("name", ["gloo.pickle", "gloo.json"])
def test_what_torch_writes(name: str) -> None:
    assert flight.positions((REAL / name).read_bytes(), 3) == (Position(3, "0(default_pg)", 3, 3),)


@pytest.mark.parametrize("protocol", range(1, 6))
def test_where_a_rank_stands(protocol: int) -> None:
    """The recorder's own count goes on where the buffer of entries is short; p2p numbers are another count."""
    states = (entry(7, "completed"), entry(8, "started", profiling_name="nccl:broadcast"), entry(9, "scheduled"))
    other = (entry(2, "completed", "1"), entry(99, "scheduled", "1", is_p2p=True))
    status = {"0": {"last_enqueued_collective": 11, "last_completed_collective": 7}}
    raw = pickle.dumps(dump(*states, *other, pg_status=status), protocol)
    assert flight.positions(raw, 5) == (
        Position(5, "0(default_pg)", 11, 7, "nccl:broadcast"),
        Position(5, "1(default_pg)", 2, 2),
    )


def test_a_group_without_entries_is_known_by_its_count() -> None:
    raw = json.dumps(dump(pg_status={"4": {"last_enqueued_collective": 3, "last_completed_collective": -1}})).encode()
    assert flight.positions(raw, 0) == (Position(0, "4", 3, -1),)


class Call:
    """Executes a command when it is unpickled."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __reduce__(self) -> object:
        return os.system, (self.what,)


def laughs(times: int) -> bytes:
    """Return a few bytes that stand for 10^times strings."""
    value: object = "lol"
    for _ in range(times):
        value = [value] * 10
    return pickle.dumps({"entries": [value], "pg_status": value})


HOSTILE = {
    "nothing": b"",
    "text": b"hello",
    "cut short": pickle.dumps(dump(entry(1, "completed")))[:-20],
    "deep JSON": b'{"entries":' + b"[" * 200_000,
    "a huge memo index": b"\x80\x02}r\xff\xff\xff\xff.",
    "a huge text": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "a huge number": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 50,
    "endless": b"\x80\x02" + b"N0" * (1 << 20) + b".",
    "unhashable": b"\x80\x02}(]Nu.",
    "an empty stack": b"0.",
    "no mark": b"\x80\x02t.",
    "a list as dict": b"\x80\x02](Nu.",
    "a number of 5000 digits": b"L" + b"9" * 5000 + b"L\n.",
    "no fields": pickle.dumps([1, 2]),
    "no dump": pickle.dumps({"a": 1}),
    "strange JSON": b'{"entries": 5}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_dump_is_said_to_be_none(name: str) -> None:
    since = time.monotonic()
    with pytest.raises(BadEvidence, match="flight recorder's dump"):
        flight.positions(HOSTILE[name], 0)
    assert time.monotonic() - since < 10


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(protocol: int, tmp_path: Path) -> None:
    raw = pickle.dumps(dump(entry(1, "completed", frames=[Call(f"touch {tmp_path}/executed")])), protocol)
    with pytest.raises(BadEvidence, match="makes no plain value"):
        flight.positions(raw, 0)
    assert list(tmp_path.iterdir()) == []
    pickle.loads(raw)
    assert [path.name for path in tmp_path.iterdir()] == ["executed"], "the bait is none"


def test_no_instruction_makes_or_calls_an_object() -> None:
    """All that could are named by the interpreter's own table: what is taken is what that says makes plain values."""
    calling = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID"}
    calling |= {"EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}
    for code in pickletools.opcodes:
        if code.name in calling:
            with pytest.raises(NotPlain, match="makes no plain value"):
                plain_pickle.loads(b"\x80\x02" + code.code.encode("latin-1") + b"os\nsystem\n" * 3)


@pytest.mark.parametrize("times", [5, 40])
def test_few_bytes_that_stand_for_many_take_no_time(times: int) -> None:
    since = time.monotonic()
    assert flight.positions(laughs(times), 0) == ()
    assert time.monotonic() - since < 5


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 200), 1 << 200) | st.floats(allow_nan=False) | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    | st.tuples(inner, inner, inner) | st.tuples() | st.tuples(inner),
    max_leaves=30,
)  # fmt: skip


@given(PLAIN, st.integers(3, 5))
def test_plain_values_come_back_as_they_were(value: object, protocol: int) -> None:
    assert plain_pickle.loads(pickle.dumps([value, value], protocol)) == [value, value]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_dump_or_none(raw: bytes) -> None:
    for start in (b"", b"\x80\x02}", b"\x80\x02](", b"{"):
        try:
            flight.positions(start + raw, 0)
        except BadEvidence:
            continue
