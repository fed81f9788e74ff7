"""The site's own signs of failure and meanings of XIDs, which ``--signatures FILE`` holds. Pure; the launcher reads it.

A pattern is plain text in which ``*`` stands for anything within the line, and no regular expression. The lines that it
is laid on come from programs that nobody has checked, on every node, and a search for pieces of text, one behind the
other, takes time that grows with the line and no faster, whatever either holds; a bracket in a message is no trap.

    {"schema_version": 1,
     "signatures": [{"pattern": "SITE-42: * gave up", "class": "fs_transient", "note": "the site's data reader"}],
     "xids": {"31": "gpu_lost", "94": "watch"}}

Of a rank's lines, one that a pattern fits is read by it alone: its class takes the place of what the tables of
``signatures.py`` say of that line, and decides over what they say of the rank's others. With ``ignore`` in a class's
place the line says nothing. The first pattern that fits counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from . import xid
from .classes import SUCCESS, all_classes
from .xid import RECOVERY, Xid

SCHEMA = 1
LARGEST = 128 << 10  # bytes of the file
MOST = 64  # patterns; as many XIDs
LONGEST, LONGEST_NOTE = 200, 120  # characters
PIECES = 8  # of a pattern, between its stars
LEAST = 4  # letters or marks in a row that one piece must have, digits and blanks not counted: less is in every line
IGNORE = "ignore"
_WORDS = (xid.Role.WATCH.value, xid.Role.IGNORE.value)  # of an XID, beside classes
_KEYS = ("schema_version", "signatures", "xids")
_ENTRY = ("pattern", "class", "note")


class BadSignatures(ValueError):
    """The text is no list of signatures: what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class OwnSign:
    """One pattern of the site's. ``cls`` is a class of the list, or 'ignore'."""

    pattern: str
    cls: str
    note: str  # what it is, for people; the pattern where nothing was said

    @property
    def name(self) -> str:
        """Its name in evidence."""
        return f"site signature: {self.note}"

    @property
    def ignored(self) -> bool:
        """Whether its lines say nothing."""
        return self.cls == IGNORE

    @property
    def word(self) -> str:
        """Plain text that every line it fits holds."""
        return max(self.pattern.split("*"), key=_telling)

    def fits(self, line: str) -> bool:
        """Return whether the pieces of the pattern stand in the line, in their order."""
        at = 0
        for piece in self.pattern.split("*"):
            found = line.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return True


@dataclass(frozen=True, slots=True)
class OwnSignatures:
    """Everything that one file says."""

    signs: tuple[OwnSign, ...] = ()
    xids: tuple[tuple[int, str], ...] = ()  # (number, class or 'watch' or 'ignore'), sorted

    @property
    def digest(self) -> str:
        """What two files that mean the same have in common: 16 hex digits."""
        said = ([(one.pattern, one.cls, one.note) for one in self.signs], self.xids)
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]

    def within(self, lines: Iterable[str]) -> tuple[OwnSign, ...]:
        """Return those signs that may fit one of the lines: one search of each for all lines together."""
        if not self.signs:
            return ()
        text = "\n".join(lines)
        return tuple(one for one in self.signs if one.word in text)


NONE = OwnSignatures()


def first(signs: Sequence[OwnSign], line: str) -> OwnSign | None:
    """Return the sign that counts for a line."""
    return next((one for one in signs if one.fits(line)), None)


@lru_cache(maxsize=4)
def xids_of(own: OwnSignatures) -> Mapping[int, Xid] | None:
    """Return the catalogue of XIDs as the site has it; None where it is as it was."""
    return xid.override(dict(own.xids)) if own.xids else None


def parse(raw: bytes) -> OwnSignatures:
    """Return what a file says; BadSignatures, with a sentence, for anything but a list of signatures."""
    body = _object(_json(raw), "the file")
    _only(body, "the file", _KEYS)
    if type(body.get("schema_version")) is not int or body["schema_version"] != SCHEMA:
        raise BadSignatures(f'it does not say "schema_version": {SCHEMA}; write that beside "signatures"')
    signs, xids = body.get("signatures", []), body.get("xids", {})
    if not isinstance(signs, list):
        raise BadSignatures('"signatures" is no list; write [{"pattern": …, "class": …, "note": …}]')
    found = [_sign(entry, n) for n, entry in enumerate(cast("list[object]", signs), 1)]
    _bounded(len(found), "signatures")
    for n, one in enumerate(found, 1):
        before = next((m for m, other in enumerate(found[: n - 1], 1) if other.pattern == one.pattern), 0)
        if before:
            raise BadSignatures(f"signatures {before} and {n} have the same pattern, {one.pattern!r}; take one out")
    numbers = _object(xids, '"xids"')
    _bounded(len(numbers), '"xids"')
    return OwnSignatures(tuple(found), tuple(sorted(_xid(code, means) for code, means in numbers.items())))


def _json(raw: bytes) -> object:
    if len(raw) > LARGEST:
        raise BadSignatures(f"it has {len(raw)} bytes, more than {LARGEST}; keep the signatures that are needed")
    try:
        return json.loads(raw.decode(), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise BadSignatures(f"it is not UTF-8 at byte {error.start}; write it anew") from None
    except json.JSONDecodeError as error:
        raise BadSignatures(f"it is not JSON: {error.msg}, line {error.lineno} column {error.colno}; mend it") from None
    except RecursionError:
        raise BadSignatures("it is not JSON of this kind: it nests too deeply; mend it") from None
    except BadSignatures:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise BadSignatures(f"it is not JSON of this kind: {error}; mend it") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """Make an object of its pairs; of a key that is there twice JSON would keep the last without a word."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise BadSignatures(f"{_shown(key)} is there twice; take one out")
        found[key] = value
    return found


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadSignatures(f"{what} is no object; write {{…}}")
    return cast("dict[str, object]", value)


def _only(body: Mapping[str, object], what: str, keys: Sequence[str]) -> None:
    for key in body:
        if key not in keys:
            raise BadSignatures(f"{what} has {_shown(key)}, which is not known; the keys are {', '.join(keys)}")


def _sign(entry: object, n: int) -> OwnSign:
    what = f"signature {n}"
    body = _object(entry, what)
    _only(body, what, _ENTRY)
    for key in ("pattern", "class"):
        if key not in body:
            raise BadSignatures(f'{what} has no "{key}"; write one')
    pattern, cls = _text(body["pattern"], f"the pattern of {what}", LONGEST), body["class"]
    pattern = "*".join(piece.strip() for piece in pattern.split("*")).strip("*")
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    pieces = pattern.split("*")
    if len(pieces) > PIECES:
        raise BadSignatures(f"the pattern of {what} has {len(pieces)} pieces, more than {PIECES}; use fewer *")
    if "  " in pattern:
        raise BadSignatures(f"the pattern of {what} has several blanks in a row; write * in their place")
    if max(map(_telling, pieces)) < LEAST:
        raise BadSignatures(
            f"the pattern of {what}, {pattern!r}, fits too many lines: write a piece with {LEAST} letters or marks"
        )
    if not isinstance(cls, str) or cls not in (IGNORE, *_classes()):
        near = _near(cls, (IGNORE, *_classes()))
        raise BadSignatures(f"the class of {what}, {_shown(cls)}, is none of failures, nor {IGNORE!r}{near}")
    note = _text(body["note"], f"the note of {what}", LONGEST_NOTE) if "note" in body else pattern
    return OwnSign(pattern, cls, " ".join(note.split()))


def _text(value: object, what: str, most: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadSignatures(f"{what} is no text; put some in quotes")
    if len(value) > most:
        raise BadSignatures(f"{what} has {len(value)} characters, more than {most}; make it shorter")
    if not value.isprintable():
        raise BadSignatures(f"{what} holds a line's end, a tab or another control character; write * in its place")
    return value


def _xid(code: str, means: object) -> tuple[int, str]:
    if not (code.isascii() and code.isdigit() and len(code) <= 4 and not code.startswith("0")):
        raise BadSignatures(f'{_shown(code)} in "xids" is no number of an XID; write 1 to 9999, in quotes')
    if int(code) == RECOVERY:
        raise BadSignatures(f"XID {RECOVERY} is the driver's own word on what a GPU needs, and means nothing else")
    if not isinstance(means, str) or means not in (*_WORDS, *_classes()):
        near = _near(means, (*_WORDS, *_classes()))
        raise BadSignatures(
            f"XID {code} is given {_shown(means)}, which is no class of failures, nor 'watch' nor 'ignore'{near}"
        )
    return int(code), means


def _telling(piece: str) -> int:
    """Return how many of its characters are neither digits nor blanks: lines may be looked through without digits."""
    return sum(not (c.isdigit() or c.isspace()) for c in piece)


def _bounded(count: int, what: str) -> None:
    if count > MOST:
        raise BadSignatures(f"it has {count} {what}, more than {MOST}; keep those that are needed")


def _classes() -> tuple[str, ...]:
    return tuple(name for name in all_classes() if name != SUCCESS)


def _near(word: object, names: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, names, n=2) if isinstance(word, str) else []
    return f"; did you mean {' or '.join(near)}?" if near else "; docs/failures.md lists them"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
