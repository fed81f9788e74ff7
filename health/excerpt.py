"""What is worth keeping of an output of any length: the lines around signs of failure, and the last ones. Pure.

Bounded in memory whatever is fed, and linear in time. Lines that are alike but for their digits are looked at once, so
that a log of a million steps costs little more than to split it; where they hold a word of the tables, the first few of
them and the newest are kept, with what stands around them. ``remuster explain`` makes one for each rank.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache

from . import kernel, signatures
from .own_signatures import NONE, OwnSignatures
from .tail import MAX_BYTES, MAX_LINES, split

BEFORE, AFTER = 40, 16  # lines around a sign: a traceback stands before its exception
TRACE = 60  # after a traceback's header
FIRST, NEWEST = 3, 6  # windows kept of signs that are alike
ALIKE = 64  # lines alike but for digits, from which on only the newest is kept
KINDS = 8192  # of lines that are remembered
KINDS_SIZE = 4 << 20  # bytes of them
LONG = 512  # bytes of a line by which it is counted
WINDOWS = 160
LINE = 16 << 10
BUDGET = 256 << 10  # bytes kept beside the last lines
WHOLE = 1500  # lines of an output that is kept as it is
HEADER = b"Traceback (most recent"
_DIGITS = b"0123456789"

Line = tuple[int, bytes]  # number in its file, from 1


class Signs:
    """What lines without their digits are signs of, remembered for all excerpts of one reading; ``own``: the site's."""

    def __init__(self, own: OwnSignatures = NONE) -> None:
        self._words = _plain_words(own)
        self._known: dict[bytes, bytes] = {}
        self._size = 0

    def of(self, lines: list[bytes]) -> dict[bytes, bytes]:
        """Return what each of these lines is a sign of, b"" for nothing; an empty answer when none is of anything."""
        if len(self._known) > KINDS or self._size > KINDS_SIZE:
            self._known, self._size = {}, 0
        there = set(lines)
        fresh = there - self._known.keys()
        text = b"\n".join(fresh)
        self._size += len(text)
        among = [word for word in self._words if word in text]  # one search for many lines
        self._known |= {line: _sign(line, among) for line in fresh}
        return self._known if any(map(self._known.__getitem__, there)) else {}


class Excerpt:
    """Takes blocks of whole lines in their order; ``lines`` says what was kept."""

    def __init__(self, signs: Signs, budget: int = BUDGET) -> None:
        self._signs = signs
        self._budget = budget
        self._whole: list[Line] = []
        self._size = 0
        self._tail: deque[Line] = deque(maxlen=2 * MAX_LINES)
        self._first: dict[bytes, list[list[Line]]] = {}
        self._newest: dict[bytes, deque[list[Line]]] = {}
        self._alike: Counter[bytes] = Counter()
        self._owed: list[tuple[list[Line], int]] = []  # windows that the next lines belong to, and how many do
        self.count = 0

    def feed(self, block: bytes, numbers: Sequence[int]) -> None:
        """Take a block of lines; ``numbers`` has the number of each. A last line may lack its end."""
        block = block.removesuffix(b"\n")
        lines = block.split(b"\n")
        whole = self.count <= WHOLE and self._size <= self._budget
        self.count += len(lines)
        self._size += len(block)
        if self.count <= WHOLE and self._size <= self._budget:
            self._whole += [(numbers[i], _cut(line)) for i, line in enumerate(lines)]
            return
        if whole and self._whole:  # no longer: what was kept is looked through as what comes is
            earlier, self._whole = self._whole, []
            self._sift(b"\n".join(line for _, line in earlier), [n for n, _ in earlier])
        self._sift(block, numbers)

    def _sift(self, block: bytes, numbers: Sequence[int]) -> None:
        lines = block.split(b"\n")
        for window, owed in self._owed:
            window += [(numbers[i], _cut(lines[i])) for i in range(min(owed, len(lines)))]
        self._owed = [(window, owed - len(lines)) for window, owed in self._owed if owed > len(lines)]
        for i, key, sign in self._suspects(block):
            self._look(lines, numbers, i, key[-LONG:], sign)
        self._tail.extend((numbers[i], _cut(lines[i])) for i in range(max(0, len(lines) - 2 * MAX_LINES), len(lines)))
        while sum(map(len, self._first.values())) + sum(map(len, self._newest.values())) > WINDOWS:
            self._give_up_one()

    def _suspects(self, block: bytes) -> list[tuple[int, bytes, bytes]]:
        """Return the lines that hold a word of the tables: place, text without digits, that word."""
        plain = block.translate(None, _DIGITS).split(b"\n")
        signs = self._signs.of(plain)
        return [(i, key, signs[key]) for i, key in enumerate(plain) if signs[key]] if signs else []

    def _look(self, lines: list[bytes], numbers: Sequence[int], i: int, key: bytes, sign: bytes) -> None:
        if key in self._alike or len(self._alike) < KINDS:
            self._alike[key] += 1
        often = self._alike[key] > ALIKE
        before, after = (0, 0) if often else (2, TRACE) if sign == HEADER else (BEFORE, AFTER)
        window: list[Line] = list(self._tail)[-(before - i) :] if before > i else []
        window += [(numbers[j], _cut(lines[j])) for j in range(max(0, i - before), min(len(lines), i + 1 + after))]
        if i + 1 + after > len(lines):
            self._owed = [*self._owed[-NEWEST:], (window, i + 1 + after - len(lines))]
        first = self._first.setdefault(sign, [])
        if often:
            self._newest[key] = deque([window], 1)
        elif len(first) < FIRST:
            first.append(window)
        else:
            self._newest.setdefault(sign, deque(maxlen=NEWEST)).append(window)

    def _give_up_one(self) -> None:
        """Give up a window of the sign that has most of them: of its newest the oldest, else its last first one."""
        sign = max(self._newest, key=lambda k: len(self._newest[k]), default=None)
        if sign is None or len(self._newest[sign]) == 1 < max(map(len, self._first.values())):
            sign = max(self._first, key=lambda k: len(self._first[k]))
            self._first[sign].pop()
        else:
            self._newest[sign].popleft()
            if not self._newest[sign]:
                del self._newest[sign]

    def lines(self) -> list[tuple[int, str]]:
        """Return what was kept: (number, text), cleaned, in order; as many as one reading takes."""
        if self._whole:
            return _texts(self._whole)
        kept = dict(self._last())
        room = self._budget
        newest = [window for windows in self._newest.values() for window in reversed(windows)]
        firsts = [window for windows in self._first.values() for window in windows]
        for window in (*firsts[: len(firsts) // 2], *newest, *firsts[len(firsts) // 2 :]):
            fresh = {number: line for number, line in window if number not in kept}
            size = sum(len(line) for line in fresh.values())
            if len(kept) + len(fresh) <= WHOLE and size <= room:
                kept |= fresh
                room -= size
        return _texts(sorted(kept.items()))

    def _last(self) -> Iterable[Line]:
        size = 0
        last: list[Line] = []
        for number, line in reversed(self._tail):
            size += len(line) + 1
            if last and size > MAX_BYTES:
                break
            last.append((number, line))
        return reversed(last)


def _texts(lines: Iterable[Line]) -> list[tuple[int, str]]:
    return [(number, text) for number, raw in lines for text in split(raw.decode("utf-8", "replace")) if text]


def _cut(line: bytes) -> bytes:
    return line if len(line) <= LINE else line[: LINE // 4] + b" ... " + line[-(LINE * 3 // 4) :]


def _sign(plain: bytes, among: Iterable[bytes]) -> bytes:
    """Return the first word that a line without its digits holds, b"" when it has none."""
    return next((word for word in among if word in plain), b"")


@lru_cache(maxsize=2)
def _plain_words(own: OwnSignatures) -> tuple[bytes, ...]:
    # The longest first: a line that is kept for 'Error' alone is one of many.
    exceptions = (b"Error", b"Exception", b"Interrupt", b"Failure", b"OutOfMemory", HEADER)
    ours = [one.word for one in own.signs]
    words = (*signatures.words(), *kernel.words(), *ours)
    found = {word.encode().translate(None, _DIGITS) for word in words}.union(exceptions)
    return tuple(sorted(found, key=lambda word: (-len(word), word)))
