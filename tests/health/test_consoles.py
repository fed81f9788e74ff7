"""Lines of shared consoles → who wrote them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.health.consoles import LAUNCHER, Splitter, Writer, kernel_like, only_rank, style


def split(*lines: bytes) -> list[Writer]:
    splitter = Splitter(style(lines))
    return [splitter.writer(line)[0] for line in lines]


@pytest.mark.parametrize(
    ("first", "second", "writers"),
    [
        (b"[default0]:step", b"[default11]:step", [Writer("", -1, 0), Writer("", -1, 11)]),
        (b"[rank0]: a", b"[rank3]: b", [Writer("", 0), Writer("", 3)]),
        (b"0: a", b"13: b", [Writer("", 0), Writer("", 13)]),
        (b"[1,0]<stdout>:a", b"[1,5]<stderr>: b", [Writer("", 0), Writer("", 5)]),
        (b"[node7 rank57][default1]: a", b"[n2 rank3][default1]: b", [Writer("node7", 57), Writer("n2", 3)]),
        (b"0: [default1]:a", b"1: [default1]:b", [Writer("task0", -1, 1), Writer("task1", -1, 1)]),
        (b"worker-0  | a", b"worker-12 | b", [Writer("worker-0"), Writer("worker-12")]),
        (b"[pod/x-worker-0/torch] a", b"[pod/x-worker-1/torch] b", [Writer("x-worker-0"), Writer("x-worker-1")]),
        (b"gpu1: a", b"gpu2: b", [Writer("gpu1"), Writer("gpu2")]),
        (b"(W pid=8, ip=10.0.0.1) a", b"(W pid=9, ip=10.0.0.2) b",
         [Writer("10.0.0.1", -1, 0), Writer("10.0.0.2", -1, 1)]),
        (b"2026-03-11T04:02:00.123Z stderr F [rank0]: a", b"2026-03-11T04:02:00.124Z stdout F [rank1]: b",
         [Writer("", 0), Writer("", 1)]),
        (b"\x1b[31m2026-03-11 07:00:01,123 INFO [Rank 0] a", b"[E311 12:11:07.7 x.cpp:632] [Rank 2] b",
         [Writer("", 0), Writer("", 2)]),
    ],
)  # fmt: skip
def test_two_writers(first: bytes, second: bytes, writers: list[Writer]) -> None:
    assert split(first, second) == writers


@pytest.mark.parametrize(
    "lines",
    [
        (b"[rank7]: a", b"[rank7]: b", b"plain"),
        (b"classes:", b"0: cat", b"1: dog", b"step 1", b"step 2", b"step 3", b"step 4"),
        (b"rank 0 is the best", b"rank 1 is not"),
        (b"loss: 3", b"step: 4"),
        (b"", b""),
    ],
)
def test_one_writer(lines: tuple[bytes, ...]) -> None:
    assert not style(lines)


def test_what_a_rank_calls_itself_names_the_writer_that_a_launcher_has_set_apart() -> None:
    lines = [b"[default0]:step", b"[default1]:step", b"[default0]:[rank4]: ValueError", b"[default1]:[rank5]: KeyError"]
    splitter = Splitter(style(lines))
    for line in lines:
        splitter.writer(line)
    assert splitter.named() == {Writer("", -1, 0): 4, Writer("", -1, 1): 5}


def test_a_host_with_several_ranks_is_split_by_rank() -> None:
    lines = [b"gpu1: [rank0]: a", b"gpu1: [rank1]: b", b"gpu2: [rank2]: c", b"gpu2: torchrun says"]
    assert split(*lines) == [Writer("gpu1", 0), Writer("gpu1", 1), Writer("gpu2", 2), LAUNCHER]


def test_a_traceback_stays_with_the_line_before_it() -> None:
    lines = [
        b"[rank0] step 1", b"[rank1] failed:", b"Traceback (most recent call last):", b'  File "t.py", line 1, in f',
        b"ValueError: x", b"srun: error: task 1: Exited",
    ]  # fmt: skip
    assert [writer.rank for writer in split(*lines)] == [0, 1, 1, 1, 1, -1]


def test_the_prefix_goes_and_the_text_stays() -> None:
    splitter = Splitter(style([b"0: a", b"1: b"]))
    assert splitter.writer(b"1: [rank1]: text") == (Writer("", 1), b"[rank1]: text")
    assert splitter.writer(b"1: more") == (Writer("", 1), b"more")


def test_a_rank_that_names_itself() -> None:
    assert only_rank([b"[rank7]: x", b"y"]) == 7
    assert only_rank([b"[rank7]: x", b"[rank6]: y"]) == -1


def test_a_kernel_log() -> None:
    assert kernel_like([b"[ 12.3] NVRM: Xid", b"[Wed Mar 11 02:16:05 2026] mce: x", b"Mar 11 h kernel: y"])
    assert not kernel_like([b"[ 12.3] NVRM: Xid", b"RuntimeError: x", b"step 3"])


@given(st.lists(st.binary(max_size=120), max_size=12))
def test_any_bytes_do(lines: list[bytes]) -> None:
    splitter = Splitter(style(lines))
    for line in lines:
        writer, text = splitter.writer(line)
        assert line.endswith(text)
        assert isinstance(writer, Writer)
