"""What the console shows of several ranks: whole lines, and never two ranks in one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.splice import HELD_MAX, Splicer


def two(label_a: bytes = b"", label_b: bytes = b"") -> Splicer:
    splicer = Splicer()
    splicer.add("a", label_a)
    splicer.add("b", label_b)
    return splicer


def test_a_single_rank_passes_through() -> None:
    splicer = Splicer()
    splicer.add("a", b"")
    assert splicer.feed("a", b"no line\r\xff") == b"no line\r\xff"
    assert not splicer.holds("a")
    assert splicer.end("a") == b""


def test_lines_are_completed_before_they_are_shown() -> None:
    splicer = two()
    assert splicer.feed("a", b"one\ntw") == b"one\n"
    assert splicer.feed("b", b"other\n") == b"other\n"
    assert splicer.feed("a", b"o\n") == b"two\n"


def test_a_silent_rank_shows_its_part_and_the_next_rank_starts_a_line() -> None:
    splicer = two()
    assert splicer.feed("a", b"password: ") == b""
    assert splicer.holds("a")
    assert splicer.silent("a") == b"password: "
    assert not splicer.holds("a")
    assert splicer.feed("b", b"line\n") == b"\nline\n"
    assert splicer.feed("a", b"ok\n") == b"ok\n"


def test_a_rank_goes_on_with_its_own_line() -> None:
    splicer = two(b"[a]:")
    splicer.feed("a", b"50")
    assert splicer.silent("a") == b"[a]:50"
    assert splicer.feed("a", b" %\nnext\n") == b" %\n[a]:next\n"


@pytest.mark.parametrize(
    ("data", "shown", "held"),
    [
        (b"\r 10%\r 20%\r 30%", b"\r 10%\r 20%\r", b" 30%"),
        (b" 10%\r", b"", b" 10%\r"),  # perhaps the first half of \r\n
        (b"line\r\nmore", b"line\r\n", b"more"),
    ],
)
def test_carriage_returns(data: bytes, shown: bytes, held: bytes) -> None:
    splicer = two()
    assert splicer.feed("a", data) == shown
    assert splicer.silent("a") == held


def test_labels_stand_before_every_line_and_after_every_return() -> None:
    splicer = two(b"[a]:", b"[b]:")
    assert splicer.feed("a", b"x\n\ny\n") == b"[a]:x\n[a]:\n[a]:y\n"
    assert splicer.feed("a", b"1\r2\r3") == b"[a]:1\r[a]:2\r"
    assert splicer.feed("a", b"\r\n") == b"[a]:3\r\n"
    assert splicer.feed("b", b"dos\r\nline\r\n") == b"[b]:dos\r\n[b]:line\r\n"


def test_a_long_line_is_not_held_for_ever() -> None:
    splicer = two()
    assert splicer.feed("a", b"x" * (HELD_MAX - 1)) == b""
    assert splicer.feed("a", b"yz") == b"x" * (HELD_MAX - 1) + b"yz"
    assert splicer.feed("b", b"b\n") == b"\nb\n"


@pytest.mark.parametrize("glyph", ["é", "€", "🚀"])
def test_a_character_is_not_cut(glyph: str) -> None:
    raw = glyph.encode()
    splicer = two()
    for i in range(1, len(raw)):
        splicer.feed("a", b"ab" + raw[:i])
        assert splicer.silent("a") == b"ab"
        assert not splicer.holds("a")
        assert splicer.feed("a", raw[i:] + b"\n") == raw + b"\n"


def test_bytes_that_are_no_text_are_shown_in_the_end() -> None:
    splicer = two()
    splicer.feed("a", b"caf\xe9")  # Latin-1
    assert splicer.silent("a") == b"caf"
    assert splicer.end("a") == b"\xe9"
    splicer = two()
    splicer.feed("b", b"\x80\x80\x80\x80")
    assert splicer.silent("b") == b"\x80\x80\x80\x80"


def test_the_agent_speaks_on_its_own_line() -> None:
    splicer = two()
    splicer.feed("a", b"...")
    splicer.silent("a")
    assert splicer.say(b"restarting\n") == b"\nrestarting\n"
    assert splicer.say(b"again\n") == b"again\n"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.binary(max_size=12) | st.sampled_from([b"\n", b"\r", b"\r\n", b"\xe2\x82"])
        )
    )
)
def test_nothing_is_lost_and_no_line_is_spliced(steps: list[tuple[str, bytes]]) -> None:
    splicer = Splicer()
    for key in "abc":
        splicer.add(key, b"")
    pieces: list[tuple[str, bytes]] = []
    for i, (key, data) in enumerate(steps):
        pieces.append((key, splicer.feed(key, data)))
        if i % 3 == 0:
            pieces.append((key, splicer.silent(key)))
    pieces += [(key, splicer.end(key)) for key in "abc"]
    before, owner = b"\n", ""
    own: dict[str, bytes] = dict.fromkeys("abc", b"")
    for key, piece in pieces:
        if not piece:
            continue
        added = owner not in ("", key) and not before.endswith(b"\n")
        if added:
            assert piece.startswith(b"\n")
        own[key] += piece[1:] if added else piece
        before, owner = piece, key
    for key in "abc":
        assert own[key] == b"".join(data for k, data in steps if k == key)


@given(st.lists(st.sampled_from([b"word", b"\n", b"\r", b"\r\n", b"\xc3"]), max_size=20))
def test_every_labelled_line_begins_with_its_label(parts: list[bytes]) -> None:
    splicer = two(b"[a]:", b"[b]:")
    shown = b"".join(splicer.feed("a", p) + (splicer.silent("a") if i % 2 else b"") for i, p in enumerate(parts))
    shown += splicer.end("a")
    for line in re.split(rb"\r\n|\n|\r", shown.removesuffix(b"\n").removesuffix(b"\r")):
        assert not line or line.startswith(b"[a]:")
    assert re.sub(rb"\[a\]:", b"", shown) == b"".join(parts)
