"""Whole lines that hold a text, however the bytes come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.sieve import Sieve
from remuster.agent.splice import HELD_MAX


def sieved(needles: tuple[bytes, ...], *pieces: bytes) -> bytes:
    sieve = Sieve(needles)
    sieve.add("k", b"[k]:")
    return b"".join(sieve.feed("k", piece) for piece in pieces) + sieve.end("k")


def test_lines() -> None:
    text = b"apple\nplum\n\nan orange\r\nbar 1\rbar apple 2\rbar 3\nlast apple"
    assert sieved((b"apple", b"orange"), text) == b"[k]:apple\n[k]:an orange\n[k]:bar apple 2\n[k]:last apple\n"


def test_bytes_that_are_no_text_are_kept() -> None:
    assert sieved((b"x",), b"\xffx\x00\x85\x1cy\n") == b"[k]:\xffx\x00\x85\x1cy\n"


PIECES = st.lists(st.text("ab\r\n", max_size=6).map(str.encode), max_size=12)


@given(PIECES)
def test_how_it_is_cut_makes_no_difference(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    assert sieved((b"aa", b"b"), *pieces) == sieved((b"aa", b"b"), text)
    lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    assert sieved((b"aa", b"b"), text) == b"".join(b"[k]:%b\n" % x for x in lines if b"aa" in x or b"b" in x)


def test_a_drawing_of_a_bar_comes_out_when_it_is_whole() -> None:
    """Red when only a line feed ends a line (``feed``): a bar without one would be cut into pieces of ``HELD_MAX``."""
    sieve = Sieve((b"%",))
    sieve.add("k", b"")
    assert sieve.feed("k", b"10 %\r20 ") == b"10 %\n"
    assert sieve.feed("k", b"%\r\n") == b"20 %\n"


def test_ranks_are_kept_apart() -> None:
    sieve = Sieve((b"x",))
    sieve.add("a", b"a:")
    sieve.add("b", b"b:")
    assert sieve.feed("a", b"one ") + sieve.feed("b", b"two ") == b""
    assert sieve.feed("a", b"x\n") == b"a:one x\n"
    assert sieve.end("b") == b""
    assert not sieve.empty()
    assert sieve.end("a") == b""
    assert sieve.empty()


def test_a_line_without_end_fills_no_memory_and_is_still_looked_at() -> None:
    """Red when ``HELD_MAX`` is not looked at, and when no overlap is kept of a piece (``feed``)."""
    sieve = Sieve((b"needle",))
    sieve.add("k", b"")
    block = b"." * 4096
    found = b""
    held = 0
    for _ in range(3 * HELD_MAX // len(block)):
        found += sieve.feed("k", block)
        held = max(held, len(sieve._parts["k"].held))
    assert found == b""
    assert held <= HELD_MAX + len(block)
    fill = HELD_MAX - len(sieve._parts["k"].held) - 3
    found = sieve.feed("k", b"." * fill + b"nee") + sieve.feed("k", b"dle\n")
    assert b"needle" in found
    assert len(found) <= HELD_MAX + len(block)
