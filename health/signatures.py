"""Signs of failure in text: what a signature is, and how lines are matched against the tables of them.

A signature is data: a pattern over one line, the class it speaks for, the role of that line, where upstream the text
is written, an example, and a near miss that it must not match. The tables are ``signs_*.py``; other sources of text
(kernel log, scheduler) come as further tables. Patterns name identifiers, never line numbers or whole sentences, and
are linear: no nested or adjacent unbounded repeats. Each is compiled when a line first holds a word of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache

from .needles import grouped, needles
from .own_signatures import NONE, OwnSign, OwnSignatures, first
from .placed import means
from .tail import clean
from .tracebacks import Raised, find, strip

MAX_LINES = 2000
UNNAMED = "exception"  # the sign of an exception that no signature reads
FILE_TIMER = "file-timer"  # the sign of a rank that was killed for being late


class Role(Enum):
    """What a matching line is to the failure."""

    ROOT = "root"  # a cause
    VICTIM = "victim"  # a cry about somebody else's end
    WRAPPER = "wrapper"  # repeats or announces a cause that stands elsewhere
    NOISE = "noise"  # frightening and meaningless: no other signature may read this line


OWN = 100  # the site has said what it means
HARDWARE = 90
SPECIFIC = 70  # an identifier that has one meaning
TYPED = 50  # an exception type that has one meaning
HANG = 35  # a wait that ran out: what was waited for is the cause
GENERIC = 30  # an exception of any other type
CRY = 20  # somebody else is gone
FAINT = 10  # a cry without a reason in it


@dataclass(frozen=True, slots=True)
class Signature:
    """One sign. ``raised``: only an exception's line is read, from its type on. ``beside``: it counts only where the
    signature of that name was seen too. ``check`` looks at the numbers of a match."""

    name: str
    cls: str
    role: Role
    weight: int
    pattern: str
    source: str
    example: str
    near_miss: str
    raised: bool = False
    beside: str = ""
    check: Callable[[re.Match[str]], bool] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A signature seen in line ``index``; ``raised`` is the exception that this line ends, if it does."""

    sign: str
    cls: str
    role: Role
    weight: int
    index: int
    line: str
    raised: Raised | None = None
    own: OwnSign | None = None  # the site's, if it is one


def match(lines: Sequence[str], own: OwnSignatures = NONE) -> tuple[Hit, ...]:
    """Return what the lines show, in their order. Never raises; time grows with the text and no faster.

    A line that one of the site's ``own`` signatures fits is read by no other.
    """
    lines = [clean(line) for line in lines[-MAX_LINES:]]
    raised = {exception.index: exception for exception in find(lines)}
    ours = own.within(lines)
    hits: list[Hit] = []
    for index, line in enumerate(lines):
        if (said := first(ours, line)) is not None:
            if not said.ignored:
                hits.append(Hit(said.name, said.cls, Role.ROOT, OWN, index, line, raised.get(index), said))
        elif line and not line.startswith("frame #"):  # of a C++ stack: many, and nothing is told by them
            hits += _match_line(index, line, raised.get(index))
    seen = {hit.sign for hit in hits}
    return tuple(hit for hit in hits if hit.own or not _beside()[hit.sign] or _beside()[hit.sign] in seen)


def words() -> tuple[str, ...]:
    """Return the plain words of which a line that any signature reads holds one; not those of exceptions' lines."""
    return tuple(word for word, _ in _words()[0])


def prepare() -> None:
    """Read the tables now, so that the first failure is judged nearly as soon as later ones."""
    _words()
    _beside()


@lru_cache(maxsize=1)
def table() -> tuple[Signature, ...]:
    """Return every signature, noise first."""
    from . import (
        signs_device,
        signs_network,
        signs_program,
        signs_python,
        signs_scheduler,
        signs_slurm,
        signs_storage,
        signs_store,
    )

    themes = (
        *(signs_network, signs_store, signs_device, signs_scheduler, signs_slurm, signs_storage),
        *(signs_program, signs_python),
    )
    every = (signature for theme in themes for signature in theme.TABLE)
    return tuple(sorted(every, key=lambda signature: signature.role is not Role.NOISE))


@lru_cache(maxsize=1)
def _beside() -> dict[str, str]:
    return {UNNAMED: "", **{signature.name: signature.beside for signature in table()}}


@cache
def _pattern(place: int) -> re.Pattern[str]:
    return re.compile(table()[place].pattern)


@lru_cache(maxsize=1)
def _words() -> tuple[tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], ...], tuple[int, ...]]:
    """Return the words that lines are searched for, in groups, with the places of the signatures that need one of
    them; and the places of the signatures for exceptions."""
    places: dict[str, list[int]] = {}
    raised: list[int] = []
    for place, signature in enumerate(table()):
        if signature.raised:
            raised.append(place)
            continue
        for word in needles(signature.pattern) or ("",):  # '' stands in every line
            places.setdefault(word, []).append(place)
    groups = grouped(places)
    return tuple((gram, tuple((word, tuple(places[word])) for word in words)) for gram, words in groups), tuple(raised)


def _candidates(line: str, raised: Raised | None) -> list[int]:
    groups, for_raised = _words()
    found = set(for_raised) if raised else set[int]()
    for gram, words in groups:
        if gram in line:
            for word, places in words:
                if word in line:
                    found.update(places)
    return sorted(found)


def _match_line(index: int, line: str, raised: Raised | None) -> list[Hit]:
    hits: list[Hit] = []
    for place in _candidates(line, raised):
        signature, pattern = table()[place], _pattern(place)
        if raised and signature.raised:
            found = pattern.match(raised.text)
        else:
            found = pattern.search(line) or pattern.search(strip(line))  # the beginning may stand behind a prefix
        if found is None or (signature.check and not signature.check(found)):
            continue
        if signature.role is Role.NOISE:
            return []
        cls = means(signature.cls, raised) if raised and signature.raised else signature.cls
        hits.append(Hit(signature.name, cls, signature.role, signature.weight, index, line, raised))
    if raised and raised.ignored:
        return []
    if raised and not hits:
        hits.append(Hit(UNNAMED, means("user_exception", raised), Role.ROOT, GENERIC, index, line, raised))
    return hits
