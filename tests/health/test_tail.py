"""The last lines of a log, whatever bytes it holds; exceptions in them."""
# ruff: noqa: E501  messages as they are written upstream

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health.tail import MAX_BYTES, MAX_LINE, clean, last_lines
from remuster.health.tracebacks import find, strip


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", ()),
        (b"one\n\ntwo", ("one", "two")),
        (b"\x1b[1;31mKey\x1b[0mError: 'x'\n", ("KeyError: 'x'",)),
        (b"\x1b]0;title\x07text\n", ("text",)),
        (b"caf\xc3", ("caf\ufffd",)),
        (b"\xa9 begins inside a character", ("\ufffd begins inside a character",)),
        (b"windows\r\n", ("windows",)),
        (b"\rE: 0%| | 0/9\rE: 11%|# | 1/9 [00:01]\rE: 22%|## | 2/9 [00:02]", ("E: 22%|## | 2/9 [00:02]",)),
        (b"KeyError: 'a'\rE: 22%|## | 2/9 [00:02]\n", ("KeyError: 'a'", "E: 22%|## | 2/9 [00:02]")),
        (b"E: 1%|# | 1/9 [00:01]Traceback (most recent call last):\rE: 2%|#| 2/9", (
            "E: 1%|# | 1/9 [00:01]Traceback (most recent call last):", "E: 2%|#| 2/9")),
        (b"nul\x00\x07bell", ("nulbell",)),
        ("a\x9b31mb \u202ec\u2066 d\u2028e".encode(), ("a31mb c de",)),
    ],
)  # fmt: skip
def test_last_lines(data: bytes, lines: tuple[str, ...]) -> None:
    assert last_lines(data) == lines


def test_bounds() -> None:
    assert last_lines(b"".join(b"%d\n" % i for i in range(500)), 3) == ("497", "498", "499")
    (line,) = last_lines(b"head" + b"x" * 50_000 + b"tail\n")
    assert len(line) <= MAX_LINE
    assert (line[:4], line[-4:]) == ("head", "tail")
    whole = last_lines(b"y" * (MAX_BYTES + 10) + b"\n" + b"z\n")
    assert whole == ("z",)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes(data: bytes) -> None:
    for line in last_lines(data):
        assert line
        assert "\x1b" not in line
        assert "\n" not in line
        assert len(line) <= MAX_LINE


@pytest.mark.parametrize("text", ["\x1b[" * 500_000, "\x1b" * 1_000_000, "a" * 1_000_000, "\r" * 1_000_000])
def test_cleaning_is_linear(text: str) -> None:
    start = time.process_time()
    clean(text)
    last_lines(text.encode())
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("[rank0]:   File x", "  File x"),
        ("2026-03-11T04:02:00.5Z stderr F [default0]:KeyError", "KeyError"),
        ("Mar  1 04:12:31 node-a4 python[3]: KeyError", "KeyError"),
        ("(RayTrainWorker pid=77, ip=10.0.0.1) KeyError", "KeyError"),
        ("worker-1  | KeyError", "KeyError"),
        ("KeyError: 'x'", "KeyError: 'x'"),
        ("Epoch 3:  12%|##  | 61/500", "Epoch 3:  12%|##  | 61/500"),
    ],
)
def test_prefixes(line: str, rest: str) -> None:
    assert strip(line) == rest


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/w/train.py", line 3, in main
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/w/data.py", line 9, in load
    | KeyError: 'x'
    +------------------------------------"""


def test_exceptions_of_a_group() -> None:
    text = GROUP.split("\n")
    assert [(r.type, r.frame) for r in find(text)] == [
        ("ExceptionGroup", "train.py:main"),
        ("KeyError", "data.py:load"),
    ]


def test_frames_of_libraries_are_named_only_when_there_is_no_other() -> None:
    text = ["Traceback (most recent call last):", '  File "/w/t.py", line 1, in mine', '  File "/e/site-packages/q.py", line 2, in '
            "theirs", "ValueError: x", '  File "/e/site-packages/q.py", line 2, in theirs', "TypeError: y"]  # fmt: skip
    assert [r.frame for r in find(text)] == ["t.py:mine", "q.py:theirs"]


@pytest.mark.parametrize(
    "line", ["INFO: started", "ERROR: bad", "Error: no such thing", "step: 3", "Exceptionally: good"]
)
def test_what_is_no_exception(line: str) -> None:
    assert find([line]) == ()
