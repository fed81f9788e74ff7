"""Takes typed and bounded fields out of a record's bytes, and says which one is wrong. Pure; called by ``records.py``.

Whoever reaches the store may have written what stands there: nothing is taken over whose type, size or range was not
looked at. Whatever is wrong ends in ``BadRecord``, a sentence that begins with the record's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from .errors import BadRecord

LARGEST = 2**63 - 1  # a revision, a lease id or a step

_K = TypeVar("_K")
_T = TypeVar("_T")


class Reader:
    """The fields of one parsed object."""

    def __init__(self, body: Mapping[str, object], what: str) -> None:
        self._body = body
        self.what = what

    def has(self, name: str) -> bool:
        return self._body.get(name) is not None

    def text(self, name: str) -> str:
        """Return a text; it may hold anything, a rank's last line for one."""
        return self._text(self._get(name, str), f"field {name!r}")

    def plain(self, name: str) -> str:
        """Return a text that may become a path or an environment variable."""
        return self._plain(self.text(name), f"field {name!r}")

    def number(self, name: str, low: int, high: int, absent: int | None = None) -> int:
        """Return a whole number of [low, high]; ``absent`` when there is none, if that is given."""
        if absent is not None and name not in self._body:
            return absent
        return self._number(self._get(name, int), f"field {name!r}", low, high)

    def sub(self, name: str) -> Reader | None:
        """Return the object in ``name``; None when there is none."""
        if not self.has(name):
            return None
        return Reader(cast("dict[str, object]", self._get(name, dict)), f"{self.what}.{name}")

    def subs(self, name: str, most: int) -> Iterator[Reader]:
        """Yield the objects of a list."""
        for item in self._items(name, most):
            if not isinstance(item, dict):
                raise BadRecord(f"{self.what}: field {name!r} holds something else than objects")
            yield Reader(cast("dict[str, object]", item), f"{self.what}.{name}")

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        return tuple(self._text(item, f"an entry of {name!r}") for item in self._items(name, most))

    def numbers(self, name: str, most: int, low: int, high: int) -> tuple[int, ...]:
        """Return a list of numbers of [low, high]."""
        return tuple(self._number(item, f"an entry of {name!r}", low, high) for item in self._items(name, most))

    def rows(self, name: str, most: int, low: int, high: int) -> tuple[tuple[int, int], ...]:
        """Return a list of pairs of numbers of [low, high]."""

        def number(item: object) -> int:
            return self._number(item, f"a number of {name!r}", low, high)

        return self._pairs(name, most, number, number)

    def plain_of(self, name: str, most: int) -> tuple[tuple[str, str], ...]:
        """Return a list of pairs of texts, as ``plain``."""
        what = f"an entry of {name!r}"

        def plain(item: object) -> str:
            return self._plain(self._text(item, what), what)

        return self._pairs(name, most, plain, plain)

    def numbers_of(self, name: str, most: int, low: int, high: int) -> tuple[tuple[str, int], ...]:
        """Return a list of pairs of a text and a number of [low, high]."""
        return self._pairs(
            name,
            most,
            lambda item: self._text(item, f"an entry of {name!r}"),
            lambda item: self._number(item, f"a number of {name!r}", low, high),
        )

    def _pairs(
        self, name: str, most: int, key: Callable[[object], _K], value: Callable[[object], _T]
    ) -> tuple[tuple[_K, _T], ...]:
        out: list[tuple[_K, _T]] = []
        for item in self._items(name, most):
            pair = cast("list[object]", item) if isinstance(item, list) else []
            if len(pair) != 2:
                raise BadRecord(f"{self.what}: field {name!r} holds something else than pairs")
            out.append((key(pair[0]), value(pair[1])))
        return tuple(out)

    def _items(self, name: str, most: int) -> list[object]:
        items = cast("list[object]", self._get(name, list))
        if len(items) > most:
            raise BadRecord(f"{self.what}: field {name!r} has {len(items)} entries, more than {most}")
        return items

    def _get(self, name: str, kind: type) -> object:
        value = self._body.get(name)
        if not isinstance(value, kind):
            raise BadRecord(f"{self.what}: field {name!r} is {type(value).__name__}, expected {kind.__name__}")
        return value

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str):
            raise BadRecord(f"{self.what}: {what} is {type(value).__name__}, expected str")
        return value

    def _plain(self, value: str, what: str) -> str:
        if "\0" in value:
            raise BadRecord(f"{self.what}: {what} holds a NUL character")
        return value

    def _number(self, value: object, what: str, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRecord(f"{self.what}: {what} is {type(value).__name__}, expected int")
        if not low <= value <= high:
            said = str(value) if abs(value) <= LARGEST else "a number of more than 63 bits"
            raise BadRecord(f"{self.what}: {what} is {said}, not one of {low} to {high}")
        return value


def parse(raw: bytes, what: str, most: int, schema: int) -> Reader:
    """Parse a record's bytes as far as its version."""
    if len(raw) > most:
        raise BadRecord(f"{what}: {len(raw)} bytes, more than {most}")
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{what}: not JSON ({type(error).__name__})") from error
    if not isinstance(body, dict):
        raise BadRecord(f"{what}: not an object")
    reader = Reader(cast("dict[str, object]", body), what)
    version = reader.number("v", 0, LARGEST)
    if version != schema:
        age = "a newer" if version > schema else "an older"
        raise BadRecord(f"{what}: written by {age} remuster (schema {version}, this one knows {schema})")
    return reader
