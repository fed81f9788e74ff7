"""What is kept of long outputs: the same as of short ones, and no more than a bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.health.excerpt import BUDGET, WHOLE, Excerpt, Signs

STEP = b"2026-03-11 07:00:01 INFO step %d loss 3.12 lr 0.0001\n"
TRACE = b'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\nmypkg.Odd: no words of ours\n'


def excerpt(data: bytes, block: int = 1 << 16) -> Excerpt:
    made = Excerpt(Signs())
    number, at = 1, 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + block) + 1 or len(data)
        part = data[at:end]
        made.feed(part, range(number, number + part.count(b"\n") + 1))
        number, at = number + part.count(b"\n"), end
    return made


def steps(first: int, last: int) -> bytes:
    return b"".join(STEP % n for n in range(first, last))


def test_a_short_output_is_kept_whole() -> None:
    assert excerpt(b"a\n\x1b[31mb\nc").lines() == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("trouble", [TRACE, b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"])
@pytest.mark.parametrize("block", [1 << 12, 1 << 16, 1 << 20])
def test_trouble_in_the_middle_is_kept_with_its_number(trouble: bytes, block: int) -> None:
    made = excerpt(steps(0, 20_000) + trouble + steps(20_000, 60_000), block)
    lines = dict(made.lines())
    for i, line in enumerate(trouble.decode().splitlines(), 20_001):
        assert lines[i] == line
    assert lines[20_000].endswith("step 19999 loss 3.12 lr 0.0001")  # what stood before it
    assert max(lines) == 60_000 + trouble.count(b"\n")
    assert len(lines) < WHOLE


def test_one_line_among_a_million_that_are_alike_is_kept() -> None:
    spam = b"".join(b"RuntimeError: retry %d failed with error\n" % n for n in range(60_000))
    middle = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    texts = [text for _, text in excerpt(spam + middle + spam).lines()]
    assert any("CUDA out of memory" in text for text in texts)
    assert texts[-1] == "RuntimeError: retry 59999 failed with error"


def test_what_is_kept_is_bounded_whatever_is_fed() -> None:
    signs = [b"CUDA error %d: " % n + bytes([65 + n % 26]) * (n % 3000) + b" ncclRemoteError\n" for n in range(4000)]
    kept = excerpt(b"".join(signs)).lines()
    assert sum(len(text) for _, text in kept) < 2 * BUDGET
    assert len(kept) <= 2 * WHOLE


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"")), max_size=300), st.integers(20, 4000))
def test_any_bytes_in_any_blocks_do(lines: list[bytes], block: int) -> None:
    made = excerpt(b"\n".join(lines) + b"\n", block)
    assert all(1 <= number <= len(lines) + 1 for number, _ in made.lines())
