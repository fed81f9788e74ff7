"""Looks for the signs of ``live.py`` in one stream of a living rank, as its bytes come: pure, fast, bounded.

Blocks may end anywhere. Almost all output means nothing, so no line is cut before a block has been found to hold a
word of some sign; and that is searched for in what is left of the block without the bytes that most of its text is
made of: a tenth to a third of it, where a substring search costs as much less. Each sign is told once, and once more
when it first raises the alarm. The site's own signs are looked for in the same way, and raise none. What is kept
between blocks is the line that has no end yet, of one that is too long its last bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from .live import LIVE
from .needles import needles
from .own_signatures import NONE, OwnSign, OwnSignatures, first
from .signatures import Role, Signature, table
from .tail import clean

LONGEST = 8 << 10  # bytes of a line that are waited for; what is longer is read in parts
KEPT = 1 << 10  # of such a part, for a sign that stands across its end
AROUND = 3 << 10  # bytes read around a word in a line that is long but whole
# Digits, blanks, marks, the letters that English has most of; with m, K and escape a colour code is gone as a whole.
_COMMON = b"0123456789 \t\r\n.,:;=-_/()[]{}+%|'\"#\\<>@*!?etaoinsmK\x1b"
_SHORTEST = 3  # of a word without these: less tells nothing
_ESCAPE = re.compile(rb"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]")


class Seen(NamedTuple):
    """A sign, its line, and the byte of the stream at which that line (coloured ones: its block) begins."""

    sign: str
    line: str
    at: int
    alarm: bool


class _Sign(NamedTuple):
    name: str
    shows: Callable[[str], object]  # whether a line has it
    shape: re.Pattern[str] | None = None
    own: bool = False


class _Word(NamedTuple):
    text: bytes
    bones: bytes  # what is left of it without the common bytes; empty when that is too little
    signs: tuple[_Sign, ...]


class _Tables(NamedTuple):
    words: tuple[tuple[bytes, tuple[_Word, ...]], ...]  # by what the bones of all of them hold
    noise: tuple[Callable[[str], object], ...]


class Scanner:
    """One stream. Not for several threads at once. ``own``: the site's signs."""

    def __init__(self, own: OwnSignatures = NONE) -> None:
        self._tables = _tables(own)
        self._told: set[str] = set()
        self._alarmed: set[str] = set()
        self._rest = b""
        self._torn = False  # the beginning of ``_rest`` is not that of a line
        self._at = 0  # of the stream, where ``_rest`` begins

    def feed(self, data: bytes) -> tuple[Seen, ...]:
        """Take the next bytes; return what their whole lines show."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut and len(self._rest) + len(data) <= LONGEST:
            self._rest += data
            return ()
        found: list[Seen] = []
        if cut:
            whole = self._rest + data[:cut]
            self._look(whole, found)
            self._rest, self._torn, self._at = data[cut:], False, self._at + len(whole)
        else:
            self._rest += data
        if len(self._rest) > LONGEST:
            self._look(self._rest, found)
            self._at += len(self._rest) - KEPT
            self._rest, self._torn = self._rest[-KEPT:], True
        return tuple(found)

    def lose(self, count: int) -> tuple[Seen, ...]:
        """Take note that ``count`` bytes are gone; what stood before them is looked at as it is."""
        found = self.end()
        self._torn, self._at = True, self._at + count
        return found

    def end(self) -> tuple[Seen, ...]:
        """Return what the last line shows, which has no end."""
        found: list[Seen] = []
        self._look(self._rest, found)
        self._at += len(self._rest)
        self._rest, self._torn = b"", False
        return tuple(found)

    def again(self) -> None:
        """Let every sign raise the alarm once more: that of before was withdrawn."""
        self._alarmed.clear()

    def _look(self, text: bytes, found: list[Seen]) -> None:
        bones = text.translate(None, _COMMON)
        words = [word for bone, group in self._tables.words if bone in bones for word in group if word.bones in bones]
        if not words:
            return
        coloured = b"\x1b[" in text
        if coloured:
            text = _ESCAPE.sub(b"", text)
        for word in words:
            if (place := text.find(word.text)) >= 0:
                wanted = [sign for sign in word.signs if self._wants(sign)]
                self._follow(word.text, place, wanted, text, coloured, found)

    def _wants(self, sign: _Sign) -> bool:
        name = sign.name
        return name not in self._told or (sign.shape is not None and name not in self._alarmed)

    def _follow(
        self, word: bytes, place: int, wanted: list[_Sign], text: bytes, coloured: bool, found: list[Seen]
    ) -> None:
        """Read the lines that hold ``word``, until nothing is wanted of them any more."""
        while place >= 0 and wanted:
            begin = text.rfind(b"\n", 0, place) + 1
            begin = max(begin, text.rfind(b"\r", begin, place) + 1)
            end = text.find(b"\n", place)
            end = len(text) if end < 0 else end
            bar = text.find(b"\r", place, end)
            end = end if bar < 0 else bar
            whole = begin > 0 or not self._torn
            first, last = max(begin, place - AROUND), min(end, place + AROUND)
            line = clean(text[first:last].decode("utf-8", "replace"))
            for sign in wanted:
                alarm = whole and first == begin and sign.shape is not None and sign.shape.search(line) is not None
                self._judge(sign, line, self._at + (0 if coloured else begin), alarm, found)
            wanted = [sign for sign in wanted if self._wants(sign)]
            place = text.find(word, end)

    def _judge(self, sign: _Sign, line: str, at: int, alarm: bool, found: list[Seen]) -> None:
        name = sign.name
        if (name in self._told and not alarm) or (alarm and name in self._alarmed):
            return
        if not sign.shows(line) or (not sign.own and any(noise(line) for noise in self._tables.noise)):
            return
        self._told.add(name)
        if alarm:
            self._alarmed.add(name)
        found.append(Seen(name, line, at, alarm))


@lru_cache(maxsize=2)
def _tables(own: OwnSignatures) -> _Tables:
    """Sort the signs by the words that they need."""
    every = {signature.name: signature for signature in table()}
    by_word: dict[str, list[_Sign]] = {}
    for live in LIVE:
        signature = every[live.sign]
        sign = _Sign(live.sign, _reader(signature), re.compile(live.shape) if live.shape else None)
        for word in needles(signature.pattern):
            by_word.setdefault(word, []).append(sign)
    for one in own.signs:
        if not one.ignored:
            sign = _Sign(f"site signature: {one.pattern}", _counts(own, one), own=True)
            by_word.setdefault(one.word, []).append(sign)
    groups: dict[bytes, list[_Word]] = {}
    bare = {text: text.encode().translate(None, _COMMON) for text in by_word}
    for text in sorted(by_word, key=lambda text: len(bare[text])):
        bones = bare[text] if len(bare[text]) >= _SHORTEST else b""
        bone = next((bone for bone in groups if bone and bone in bones), bones)
        groups.setdefault(bone, []).append(_Word(text.encode(), bones, tuple(by_word[text])))
    noise = [re.compile(s.pattern).search for s in table() if s.role is Role.NOISE and not s.raised]
    ignored = [_counts(own, one) for one in own.signs if one.ignored]
    return _Tables(tuple((bone, tuple(words)) for bone, words in groups.items()), (*noise, *ignored))


def _counts(own: OwnSignatures, one: OwnSign) -> Callable[[str], bool]:
    """Return what tells whether it is this sign of the site's that counts for a line."""
    return lambda line: first(own.signs, line) is one


def _reader(signature: Signature) -> Callable[[str], object]:
    pattern, check = re.compile(signature.pattern), signature.check
    if check is None:
        return pattern.search

    def shows(line: str) -> bool:
        found = pattern.search(line)
        return found is not None and check(found)

    return shows
