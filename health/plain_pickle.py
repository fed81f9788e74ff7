"""Reads pickles that hold plain values and nothing else, without the interpreter's own unpickler. Pure.

A pickle is a program: the real one imports and calls what it names. Here there is no instruction for that: dicts,
lists, tuples, text, bytes, numbers, booleans and None are made, all else is refused. Time and memory are bounded by the
number of instructions and the size of the input; the memo is a dict, so that an index costs nothing. Used by
``flight.py``. ``checkpoint/formats/inert_pickle.py``, of a room that this one may not use, reads pickles of objects,
which are refused here, and takes twice as long, while a round that has failed waits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import cast

MOST_STEPS = 2_000_000
LARGEST_INT = 255  # bytes


class NotPlain(ValueError):
    """The bytes are no pickle of plain values; the sentence says what was found."""


class _Machine:
    """The stack, the marks and the memo of one reading."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.raw):
            raise NotPlain("it is cut short")
        part, self.at = self.raw[self.at : end], end
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def since_mark(self) -> list[object]:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def push(self, value: object) -> None:
        self.stack.append(value)

    def top(self, size: int) -> tuple[object, ...]:
        if len(self.stack) < size:
            raise NotPlain("it takes more than there is")
        items = tuple(self.stack[len(self.stack) - size :])
        del self.stack[len(self.stack) - size :]
        return items


def loads(raw: bytes) -> object:
    """Return the value. NotPlain for all that is no plain value, too long, or broken."""
    machine = _Machine(raw)
    steps, stack, memo = _STEPS, machine.stack, machine.memo
    try:
        for _ in range(MOST_STEPS):
            at = machine.at
            code = raw[at]
            if code == _GET:  # most instructions are these three: no call for them
                stack.append(memo[raw[at + 1]])
                machine.at = at + 2
            elif code == _PUT:
                memo[raw[at + 1]] = stack[-1]
                machine.at = at + 2
            elif code == _BYTE:
                stack.append(raw[at + 1])
                machine.at = at + 2
            elif code == _STOP:
                return stack.pop()
            elif (step := steps.get(code)) is not None:
                machine.at = at + 1
                step(machine)
            else:
                raise NotPlain(f"it holds instruction {bytes((code,))!r}, which makes no plain value")
    except NotPlain:
        raise
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error, MemoryError) as error:
        raise NotPlain(f"it is broken ({type(error).__name__})") from None
    raise NotPlain(f"it has more than {MOST_STEPS} instructions")


_STOP, _GET, _PUT, _BYTE = b".hqK"


def _text(machine: _Machine, size: int) -> None:
    machine.push(machine.take(machine.number(size)).decode("utf-8", "replace"))


def _raw(machine: _Machine, size: int) -> None:
    machine.push(machine.take(machine.number(size)))


def _long(machine: _Machine, size: int) -> None:
    length = machine.number(size)
    if length > LARGEST_INT:
        raise NotPlain(f"it holds a number of {length} bytes")
    machine.push(int.from_bytes(machine.take(length), "little", signed=True))


def _line(machine: _Machine) -> bytes:
    end = machine.raw.find(b"\n", machine.at, machine.at + 1024)
    if end < 0:
        raise NotPlain("it is cut short")
    return machine.take(end + 1 - machine.at)[:-1]


def _decimal(machine: _Machine) -> None:
    word = _line(machine).rstrip(b"L")
    machine.push({b"00": False, b"01": True}.get(word) if word in (b"00", b"01") else int(word))


def _append(machine: _Machine, items: list[object]) -> None:
    cast("list[object]", _a(list, machine.stack[-1])).extend(items)


def _set(machine: _Machine, items: list[object]) -> None:
    held = cast("dict[object, object]", _a(dict, machine.stack[-1]))
    held.update(zip(items[::2], items[1::2], strict=True))


def _a(kind: type, value: object) -> object:
    if type(value) is not kind:
        raise NotPlain(f"it puts items into {type(value).__name__}")
    return value


def _put(machine: _Machine, index: int) -> None:
    machine.memo[index] = machine.stack[-1]


def _pairs(items: list[object]) -> dict[object, object]:
    return dict(zip(items[::2], items[1::2], strict=True))


_NAMED: dict[str, Callable[[_Machine], object]] = {
    "}": lambda m: m.push({}),
    "]": lambda m: m.push([]),
    ")": lambda m: m.push(()),
    "N": lambda m: m.push(None),
    "(": lambda m: m.marks.append(len(m.stack)),
    "X": lambda m: _text(m, 4),
    "\x8c": lambda m: _text(m, 1),
    "\x8d": lambda m: _text(m, 8),
    "U": lambda m: _raw(m, 1),
    "T": lambda m: _raw(m, 4),
    "C": lambda m: _raw(m, 1),
    "B": lambda m: _raw(m, 4),
    "K": lambda m: m.push(m.number(1)),
    "M": lambda m: m.push(m.number(2)),
    "J": lambda m: m.push(int.from_bytes(m.take(4), "little", signed=True)),
    "\x8a": lambda m: _long(m, 1),
    "\x8b": lambda m: _long(m, 4),
    "I": _decimal,
    "L": _decimal,
    "G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    "\x88": lambda m: m.push(True),
    "\x89": lambda m: m.push(False),
    "a": lambda m: _append(m, [m.stack.pop()]),
    "e": lambda m: _append(m, m.since_mark()),
    "s": lambda m: _set(m, list(m.top(2))),
    "u": lambda m: _set(m, m.since_mark()),
    "t": lambda m: m.push(tuple(m.since_mark())),
    "l": lambda m: m.push(m.since_mark()),
    "d": lambda m: m.push(_pairs(m.since_mark())),
    "\x85": lambda m: m.push(m.top(1)),
    "\x86": lambda m: m.push(m.top(2)),
    "\x87": lambda m: m.push(m.top(3)),
    "q": lambda m: _put(m, m.number(1)),
    "r": lambda m: _put(m, m.number(4)),
    "\x94": lambda m: _put(m, len(m.memo)),
    "h": lambda m: m.push(m.memo[m.number(1)]),
    "j": lambda m: m.push(m.memo[m.number(4)]),
    "0": lambda m: m.stack.pop(),
    "1": lambda m: m.since_mark(),
    "2": lambda m: m.push(m.stack[-1]),
    "\x80": lambda m: m.number(1),
    "\x95": lambda m: m.number(8),
}
_STEPS = {ord(name): step for name, step in _NAMED.items()}
