"""Reads pickles without constructing anything: what they would import or call becomes an ``Inert`` that only names it.

A pickle is a program. The standard library's ``pickletools`` takes it apart into instructions; the few of them that
make plain values are carried out here, the rest leave inert marks. Time and memory are bounded by the input's size: no
string is repeated, and nothing nested is hashed, which could take for ever for tuples of tuples of one tuple.
``health/plain_pickle.py``, of a room that may not use this one, is stricter and faster: for dumps, which hold no
objects and are read while a round that has failed waits.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from ..digest import OVERDUE, never
from ..errors import GaveUp

ASK_EVERY = 1 << 14  # instructions, some hundredths of a second
MOST_STEPS = 50_000_000  # of metadata: a model of 100 000 tensors in 1000 shards needs about ten million
LARGEST_KEY = 16  # parts


class NotReadable(ValueError):
    """The bytes are no whole pickle; the sentence says what is wrong."""


@dataclass(eq=False, slots=True)
class Inert:
    """An object that was not made: its class's name, the arguments and the state that it would have been given."""

    name: str
    args: tuple[object, ...] = ()
    state: object = None
    items: dict[object, object] = field(default_factory=dict[object, object])


_MARK = object()
_MAKERS = ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def since_mark(self) -> list[object]:
        items: list[object] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        items.reverse()
        return items


def loads(raw: bytes, give_up: Callable[[], bool] = never) -> object:
    """Return the value, with ``Inert`` in the place of every object. NotReadable: it is cut short or broken."""
    machine = _Machine()
    try:
        for n, (code, value, _) in enumerate(pickletools.genops(raw)):
            if n % ASK_EVERY == 0:
                if n > MOST_STEPS:
                    raise NotReadable(f"it has more than {MOST_STEPS} instructions")
                if give_up():
                    raise GaveUp(OVERDUE)
            if code.name == "STOP":
                (result,) = machine.stack  # ValueError: it leaves something behind, as no pickle does
                if result is _MARK:
                    raise NotReadable("it holds nothing")
                return result
            if (step := _STEPS.get(code.name)) is not None:
                step(machine, value)
            elif code.name in _VALUES:
                machine.stack.append(value)
            else:
                raise NotReadable(f"it holds the instruction {code.name}, which no checkpoint needs")
    except NotReadable:
        raise
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise NotReadable(f"it is cut short or broken ({str(error)[:200]})") from None
    raise NotReadable("it is cut short")


_NUMBERS = ("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_VALUES = frozenset((*_NUMBERS, *_TEXTS, "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"))


def _global(machine: _Machine, value: object) -> None:
    machine.stack.append(Inert(str(value).replace(" ", ".")))


def _stack_global(machine: _Machine, _: object) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(Inert(f"{module}.{name}"))


def _call(machine: _Machine, _: object) -> None:
    args, what = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(_made(what, args))


def _call_with_names(machine: _Machine, _: object) -> None:
    machine.stack.pop()
    _call(machine, None)


def _made(what: object, args: object) -> object:
    given = cast("tuple[object, ...]", args) if isinstance(args, tuple) else ()
    name = what.name if isinstance(what, Inert) else type(what).__name__
    if name in ("collections.OrderedDict", "collections.defaultdict"):
        return {}
    if name in _MAKERS and given and isinstance(given[0], Inert):  # how protocols 0 and 1 make any object
        return Inert(given[0].name, given[1:])
    return Inert(name, given)


def _build(machine: _Machine, _: object) -> None:
    state = machine.stack.pop()
    if isinstance(top := machine.stack[-1], Inert):
        top.state = state


def _set(machine: _Machine, items: list[object]) -> None:
    top = machine.stack[-1]
    held = top.items if isinstance(top, Inert) else top
    if not isinstance(held, dict):
        raise NotReadable(f"it puts items into {type(held).__name__}")
    cast("dict[object, object]", held).update(_dict(items))


def _extend(machine: _Machine, items: list[object]) -> None:
    top = machine.stack[-1]
    if isinstance(top, list):
        cast("list[object]", top).extend(items)
    elif isinstance(top, set):
        cast("set[object]", top).update(map(_key, items))


def _instance(machine: _Machine, value: object) -> None:
    args = machine.since_mark()
    machine.stack.append(Inert(str(value).replace(" ", "."), tuple(args)))


def _object(machine: _Machine, _: object) -> None:
    what, *args = machine.since_mark()
    machine.stack.append(_made(what, tuple(args)))


def _pair(machine: _Machine) -> list[object]:
    value, key = machine.stack.pop(), machine.stack.pop()
    return [key, value]


def _top(machine: _Machine, size: int) -> tuple[object, ...]:
    items = [machine.stack.pop() for _ in range(size)]
    return tuple(reversed(items))


def _dict(items: list[object]) -> dict[object, object]:
    return dict(zip(map(_key, items[::2]), items[1::2], strict=True))


def _key(item: object) -> object:
    """Return what is to be hashed, if that takes no time to speak of."""
    if isinstance(item, tuple):
        parts = cast("tuple[object, ...]", item)
        if len(parts) > LARGEST_KEY or any(isinstance(part, tuple) or _is_huge(part) for part in parts):
            raise NotReadable("it has a key that is nested or huge, which no checkpoint needs")
        return parts
    if _is_huge(item):
        raise NotReadable("it has a number of thousands of digits as key")
    return item


def _is_huge(part: object) -> bool:
    return isinstance(part, int) and part.bit_length() > 1024


def _put(machine: _Machine, value: object) -> None:
    machine.memo[cast("int", value)] = machine.stack[-1]


_STEPS: dict[str, Callable[[_Machine, object], object]] = {
    "PROTO": lambda m, v: None,
    "FRAME": lambda m, v: None,
    "MARK": lambda m, v: m.stack.append(_MARK),
    "POP": lambda m, v: m.stack.pop(),
    "POP_MARK": lambda m, v: m.since_mark(),
    "DUP": lambda m, v: m.stack.append(m.stack[-1]),
    "NONE": lambda m, v: m.stack.append(None),
    "NEWTRUE": lambda m, v: m.stack.append(True),
    "NEWFALSE": lambda m, v: m.stack.append(False),
    "EMPTY_DICT": lambda m, v: m.stack.append({}),
    "EMPTY_LIST": lambda m, v: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, v: m.stack.append(()),
    "EMPTY_SET": lambda m, v: m.stack.append(set[object]()),
    "DICT": lambda m, v: m.stack.append(_dict(m.since_mark())),
    "LIST": lambda m, v: m.stack.append(m.since_mark()),
    "TUPLE": lambda m, v: m.stack.append(tuple(m.since_mark())),
    "FROZENSET": lambda m, v: m.stack.append(frozenset(map(_key, m.since_mark()))),
    "TUPLE1": lambda m, v: m.stack.append(_top(m, 1)),
    "TUPLE2": lambda m, v: m.stack.append(_top(m, 2)),
    "TUPLE3": lambda m, v: m.stack.append(_top(m, 3)),
    "APPEND": lambda m, v: _extend(m, [m.stack.pop()]),
    "APPENDS": lambda m, v: _extend(m, m.since_mark()),
    "ADDITEMS": lambda m, v: _extend(m, m.since_mark()),
    "SETITEM": lambda m, v: _set(m, _pair(m)),
    "SETITEMS": lambda m, v: _set(m, m.since_mark()),
    "MEMOIZE": lambda m, v: _put(m, len(m.memo)),
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "GET": lambda m, v: m.stack.append(m.memo[cast("int", v)]),
    "BINGET": lambda m, v: m.stack.append(m.memo[cast("int", v)]),
    "LONG_BINGET": lambda m, v: m.stack.append(m.memo[cast("int", v)]),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _call,
    "NEWOBJ": _call,
    "NEWOBJ_EX": _call_with_names,
    "BUILD": _build,
    "INST": _instance,
    "OBJ": _object,
    "PERSID": lambda m, v: m.stack.append(Inert("persistent", (v,))),
    "BINPERSID": lambda m, v: m.stack.append(Inert("persistent", (m.stack.pop(),))),
}
