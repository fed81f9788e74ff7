"""What the console shows of several ranks: whole lines, and never two ranks in one."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.splice import HELD_MAX, HOLD_S, PAINT_S, REPAINT_S, Splicer

NOW = 1000.0


def seen(shown: bytes) -> list[bytes]:
    """Return what is left of each line when all is written: what was drawn over is not."""
    return [[b"", *(part for part in line.split(b"\r") if part)][-1] for line in shown.split(b"\n")]


def two(label_a: bytes = b"", label_b: bytes = b"") -> Splicer:
    splicer = Splicer()
    splicer.add("a", label_a)
    splicer.add("b", label_b)
    return splicer


def test_a_single_rank_passes_through() -> None:
    splicer = Splicer()
    splicer.add("a", b"")
    assert splicer.feed("a", b"no line\r\xff", NOW) == b"no line\r\xff"
    assert splicer.patience_s("a", NOW) is None
    assert splicer.end("a") == b""


def test_lines_are_completed_before_they_are_shown() -> None:
    splicer = two()
    assert splicer.feed("a", b"one\ntw", NOW) == b"one\n"
    assert splicer.feed("b", b"other\n", NOW) == b"other\n"
    assert splicer.feed("a", b"o\n", NOW) == b"two\n"


def test_a_silent_rank_shows_its_part_and_the_next_rank_starts_a_line() -> None:
    splicer = two()
    assert splicer.feed("a", b"password: ", NOW) == b""
    assert splicer.patience_s("a", NOW) == HOLD_S
    assert splicer.silent("a", NOW) == b"password: "
    assert splicer.patience_s("a", NOW) is None
    assert splicer.feed("b", b"line\n", NOW) == b"\nline\n"
    assert splicer.feed("a", b"ok\n", NOW) == b"ok\n"


def test_a_rank_goes_on_with_its_own_line() -> None:
    splicer = two(b"[a]:")
    splicer.feed("a", b"50", NOW)
    assert splicer.silent("a", NOW) == b"[a]:50"
    assert splicer.feed("a", b" %\nnext\n", NOW) == b" %\n[a]:next\n"


@pytest.mark.parametrize(
    ("data", "shown", "held"),
    [
        (b"\r 10%\r 20%\r 30%", b"\r 20%\r", b" 30%"),  # nobody would see the first
        (b" 10%\r", b"", b" 10%\r"),  # perhaps the first half of \r\n
        (b"line\r\nmore", b"line\r\n", b"more"),
    ],
)
def test_carriage_returns(data: bytes, shown: bytes, held: bytes) -> None:
    splicer = two()
    assert splicer.feed("a", data, NOW) == shown
    assert splicer.silent("a", NOW) == held


def test_a_bar_is_painted_now_and_then_and_at_its_end() -> None:
    splicer = two(b"[a]:", b"[b]:")
    shown = b""
    for i in range(500):  # 10 s at 50 a second
        shown += splicer.feed("a", b"\r%d of 500 \xe2\x96\x88" % i, NOW + i / 50)
    shown += splicer.feed("a", b"\r500 of 500\n", NOW + 10)
    assert 90 < shown.count(b"of 500") < 110
    assert shown.endswith(b"\r[a]:500 of 500\n")
    assert b"\r[a]:\r" not in shown
    assert shown.startswith(b"[a]:0 of 500")


def test_a_bar_whose_line_is_taken_by_another_gets_a_line_a_second() -> None:
    splicer = two(b"[a]:", b"[b]:")
    shown = b""
    for i in range(500):
        shown += splicer.feed("a", b"\rtrain %d" % i, NOW + i / 50) + splicer.feed("b", b"\reval %d" % i, NOW + i / 50)
    lines = shown.split(b"\n")
    assert 8 <= len(lines) <= 12  # 10 s
    assert sum(b"train" in line for line in lines) >= 4
    assert sum(b"eval" in line for line in lines) >= 4
    assert not any(b"train" in line and b"eval" in line for line in lines)


def test_a_bar_that_stands_still_is_shown_up_to_date() -> None:
    splicer = two()
    splicer.feed("b", b"\r1", NOW)
    assert splicer.silent("b", NOW) == b"\r1"
    assert splicer.feed("a", b"\r50%", NOW) == b""
    assert splicer.patience_s("a", NOW) == HOLD_S
    assert splicer.silent("a", NOW) == b"\n\r50%"
    assert splicer.feed("a", b"\r51%", NOW) == b""
    assert splicer.patience_s("a", NOW) == pytest.approx(PAINT_S)
    assert splicer.feed("b", b"\r2", NOW) == b""
    assert splicer.patience_s("b", NOW) == pytest.approx(REPAINT_S)  # it would take a line of its own


def test_a_bar_takes_no_more_memory_than_a_line() -> None:
    splicer = two()
    splicer.feed("a", b"\r0\r1\r", NOW)
    for i in range(100_000):
        assert splicer.feed("a", b"%d\r" % i, NOW) == b""
    assert splicer.end("a") == b"\r99999\r"


def test_what_moves_the_cursor_is_never_left_out() -> None:
    splicer = two()
    nested = b"\n\r inner 1\x1b[A\r outer 1\r outer 2\x1b[32m!\x1b[0m\r outer 3\x1b[K\n"
    assert splicer.feed("a", nested, NOW) == b"\n\r inner 1\x1b[A\r outer 3\x1b[K\n"


@pytest.mark.parametrize("part", [b"\r", b"x", b"\x1b[", b"\x1b[1;1", b"a\r", b"\x1b[A\r"])
def test_no_output_is_slow_to_look_at(part: bytes) -> None:
    """64 KiB of whatever cost milliseconds: nothing here is quadratic in what a rank has written."""
    splicer = two(b"[a]:", b"[b]:")
    begun = time.process_time()
    splicer.feed("a", part * (HELD_MAX // len(part)) + b"!", NOW)
    splicer.end("a")
    assert time.process_time() - begun < 1


def test_a_rank_alone_on_a_terminal_is_shown_at_once() -> None:
    splicer = Splicer()
    splicer.add("out", b"", live=True)
    splicer.add("err", b"", live=True)
    assert splicer.feed("out", b"(Pdb) ", NOW) == b"(Pdb) "
    assert splicer.feed("out", b"p\rq", NOW) == b"p\rq"
    assert splicer.patience_s("out", NOW) is None


def test_labels_stand_before_every_line_and_after_every_return() -> None:
    splicer = two(b"[a]:", b"[b]:")
    assert splicer.feed("a", b"x\n\ny\n", NOW) == b"[a]:x\n[a]:\n[a]:y\n"
    assert splicer.feed("a", b"1\r2", NOW) == b"[a]:1\r"
    assert splicer.feed("a", b"\r3", NOW + PAINT_S) == b"[a]:2\r"
    assert splicer.feed("a", b"\r\n", NOW) == b"[a]:3\r\n"
    assert splicer.feed("b", b"dos\r\nline\r\n", NOW) == b"[b]:dos\r\n[b]:line\r\n"


def test_a_long_line_is_not_held_for_ever() -> None:
    splicer = two()
    assert splicer.feed("a", b"x" * (HELD_MAX - 1), NOW) == b""
    assert splicer.feed("a", b"yz", NOW) == b"x" * (HELD_MAX - 1) + b"yz"
    assert splicer.feed("b", b"b\n", NOW) == b"\nb\n"


@pytest.mark.parametrize("glyph", ["é", "€", "🚀"])
def test_a_character_is_not_cut(glyph: str) -> None:
    raw = glyph.encode()
    splicer = two()
    for i in range(1, len(raw)):
        splicer.feed("a", b"ab" + raw[:i], NOW)
        assert splicer.silent("a", NOW) == b"ab"
        assert splicer.patience_s("a", NOW) is None
        assert splicer.feed("a", raw[i:] + b"\n", NOW) == raw + b"\n"


def test_bytes_that_are_no_text_are_shown_in_the_end() -> None:
    splicer = two()
    splicer.feed("a", b"caf\xe9", NOW)  # Latin-1
    assert splicer.silent("a", NOW) == b"caf"
    assert splicer.end("a") == b"\xe9"
    splicer = two()
    splicer.feed("b", b"\x80\x80\x80\x80", NOW)
    assert splicer.silent("b", NOW) == b"\x80\x80\x80\x80"


def test_the_agent_speaks_on_its_own_line() -> None:
    splicer = two()
    splicer.feed("a", b"...", NOW)
    splicer.silent("a", NOW)
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
        pieces.append((key, splicer.feed(key, data, NOW + i * PAINT_S / 2)))
        if i % 3 == 0:
            pieces.append((key, splicer.silent(key, NOW)))
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
        assert seen(own[key]) == seen(b"".join(data for k, data in steps if k == key))


@given(st.lists(st.sampled_from([b"word", b"\n", b"\r", b"\r\n", b"\xc3"]), max_size=20))
def test_every_labelled_line_begins_with_its_label(parts: list[bytes]) -> None:
    splicer = two(b"[a]:", b"[b]:")
    shown = b"".join(
        splicer.feed("a", p, NOW) + (splicer.silent("a", NOW) if i % 2 else b"") for i, p in enumerate(parts)
    )
    shown += splicer.end("a")
    for line in re.split(rb"\r\n|\n|\r", shown.removesuffix(b"\n").removesuffix(b"\r")):
        assert not line or line.startswith(b"[a]:")
    assert seen(re.sub(rb"\[a\]:", b"", shown)) == seen(b"".join(parts))
