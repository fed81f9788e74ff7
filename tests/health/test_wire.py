"""Facts to bytes and back; error files; both bounded and suspicious."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health import errorfile, wire
from remuster.health.errors import BadEvidence
from remuster.health.evidence import (
    AgentDied,
    ErrorFile,
    Fact,
    Fault,
    Fenced,
    GuardianDied,
    Left,
    Pace,
    RankExit,
    StartError,
    Told,
)
from remuster.health.observed import (
    Bundle,
    Early,
    FabricPort,
    Gpu,
    HookWord,
    KernelLine,
    Lacked,
    OomKill,
    Position,
    SchedulerWord,
    Sighting,
    Silence,
    Slow,
    Stack,
)

text = st.text(max_size=60)
number = st.integers(-(2**31), 2**31)
large = st.integers(-1, 2**63 - 1)
seconds = st.floats(0, 1e9)
numbers = st.lists(number).map(tuple)
counted = st.lists(st.tuples(text, large)).map(tuple)
errors = st.none() | st.builds(ErrorFile, text, text, number, text)
exits = st.builds(
    RankExit, number, number, number, number, seconds, st.booleans(), errors, st.lists(text).map(tuple), number, text
)
facts: st.SearchStrategy[Fact] = st.one_of(
    exits,
    st.builds(StartError, number, number, number, text),
    st.builds(Fenced, seconds),
    st.builds(GuardianDied, seconds),
    st.builds(AgentDied, number),
    st.builds(Left, number, text),
    st.builds(Told, seconds),
    st.builds(Pace, number, st.integers(0, 2**63 - 1), seconds),  # all that ``heartbeat`` takes
    st.builds(Fault, text),
    st.builds(Sighting, number, seconds, text, text),
    st.builds(Early, number, seconds, text, text),
    st.builds(KernelLine, seconds, text),
    st.builds(
        Gpu,
        text,
        text,
        number,
        numbers,
        st.lists(st.tuples(number, seconds)).map(tuple),
        counted,
        number,
        st.booleans(),
    ),
    st.builds(OomKill, text, number, large, large),
    st.builds(FabricPort, text, number, text, counted),
    st.builds(Silence, number, large, seconds, seconds, text),
    st.builds(Slow, number, seconds),
    st.builds(Stack, number, text, st.lists(text).map(tuple)),
    st.builds(Position, number, text, large, large, text),
    st.builds(SchedulerWord, text),
    st.builds(HookWord, text),
    st.builds(Bundle, text),
    st.builds(Lacked, text, text),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(facts, max_size=8).map(tuple))
def test_there_and_back(some: tuple[Fact, ...]) -> None:
    raw = wire.encode(some)
    assert len(raw) <= wire.MAX_BYTES
    assert wire.decode(raw) == some


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400) | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9).map(
    lambda body: json.dumps({"v": 1, "facts": body}).encode()))  # fmt: skip
def test_any_bytes_are_facts_or_bad(raw: bytes) -> None:
    with contextlib.suppress(BadEvidence):
        wire.decode(raw)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "more than"),
        (b"[" * 60_000, "not JSON"),
        (b"[]", "not an object"),
        (b'{"v":2,"facts":[]}', "newer"),
        (b'{"v":true,"facts":[]}', "'v'"),
        (b'{"v":1}', "no list"),
    ],
)
def test_bad_bytes_say_why(raw: bytes, says: str) -> None:
    with pytest.raises(BadEvidence, match=says):
        wire.decode(raw)


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        ({"is": "left", "signal": "9"}, "'signal'"),
        ({"is": "tomorrow"}, "unknown kind"),
        ({"is": "fenced", "at_s": None}, "'at_s'"),
        ({"is": "gpu", "uuid": "u", "bus": "b", "number": 0, "xids": [[79]]}, "'xids'"),
        ({"is": "exit", "rank": 1}, "'local_rank'"),
        (7, "not an object"),
    ],
)
def test_a_fact_that_cannot_be_read_costs_no_other(fact: object, says: str) -> None:
    raw = json.dumps({"v": 1, "facts": [fact, {"is": "left", "signal": 15}]}).encode()
    lacked, left = wire.decode(raw)
    assert isinstance(lacked, Lacked)
    assert says in lacked.why
    assert left == Left(15)


def end(rank: int, *, stopping: bool = False, lines: int = 120, trace: str = "") -> RankExit:
    tail = tuple(f'{i} "quoted" ' + "x" * 200 for i in range(lines))
    return RankExit(rank, rank, 1, 1, 1.0, stopping, ErrorFile("m", trace), tail)


def test_tails_are_trimmed_first_and_those_of_stopped_ranks_before_others() -> None:
    some = (end(0, stopping=True), end(1), end(2, stopping=True), end(3, trace="t" * 9000))
    raw = wire.encode(some)
    assert len(raw) <= wire.MAX_BYTES
    back = [fact for fact in wire.decode(raw) if isinstance(fact, RankExit)]
    assert len(back[1].tail) > len(back[0].tail)
    assert back[1].tail[-1] == some[1].tail[-1], "the last line stays"
    assert back[3].error == some[3].error


def test_then_tracebacks_then_messages_then_facts() -> None:
    long = tuple(
        RankExit(i, i, 1, 1, 1.0, error=ErrorFile("m" * 9000, "t" * 16000), tail=("x" * 4000,) * 50) for i in range(16)
    )
    back = wire.decode(wire.encode(long))
    assert len(back) == 16
    many = tuple(Fault("w" * 300) for _ in range(2000))
    kept = wire.decode(wire.encode(many))
    assert isinstance(kept[-1], Lacked)
    assert kept[-1].why.endswith("of 2000 facts did not fit")


@pytest.mark.parametrize(
    ("body", "message", "trace", "stamp"),
    [
        ({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback\nValueError: boom",
          "timestamp": "1795951311"}}}, "ValueError: boom", "Traceback\nValueError: boom", 1795951311),
        ({"message": {"message": "E: x", "errorCode": 7, "extraInfo": {"timestamp": 12}}}, "E: x", "", 12),
        ({"message": "plain", "timestamp": 99}, "plain", "", 99),
        ({"message": "plain", "timestamp": "soon"}, "plain", "", 0),
        ({"message": {"message": "\x1b[31mred"}}, "red", "", 0),
    ],
)  # fmt: skip
def test_error_files(body: object, message: str, trace: str, stamp: int) -> None:
    assert errorfile.parse(json.dumps(body).encode(), "/p") == (ErrorFile(message, trace, stamp, "/p"), "")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "no message"),
        (b'{"message": 3}', "no message"),
        (b'{"message": {"message": null}}', "no message"),
        (b"[" * 200_000, "not JSON"),
        (b" " * (errorfile.MAX_BYTES + 1), "more than"),
    ],
)
def test_malformed_error_files_yield_a_note(raw: bytes, says: str) -> None:
    error, note = errorfile.parse(raw, "/logs/error.json")
    assert error is None
    assert says in note
    assert "/logs/error.json" in note


def test_error_files_are_bounded_at_the_front() -> None:
    error, _ = errorfile.parse(json.dumps({"message": "x" * 500_000 + "\nValueError: end"}).encode())
    assert error is not None
    assert len(error.message) <= errorfile.MAX_TEXT
    assert error.message.endswith("ValueError: end")


def test_reading_a_file(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    assert errorfile.read(file) is None
    file.write_text('{"message": "boom"}')
    assert errorfile.read(file) == ErrorFile("boom", path=str(file))
    file.write_text("half a fi")
    found = errorfile.read(file)
    assert found is not None
    assert found.message.endswith("not JSON")
    found = errorfile.read(tmp_path)
    assert found is not None
    assert "Is a directory" in found.message
