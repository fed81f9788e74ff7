"""What somebody else may have written into the store: real values spoilt byte by byte or field by field, and noise."""

from __future__ import annotations

import json
from random import Random
from typing import Any

NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, -5, 7, 255, 256, 10**4, 2**31, 10**9, 10**9 + 1),
    *(2**63 - 1, 2**63, 10**30, -(10**30)),
    *(0.0, 1.5, 1e308, float("nan"), float("-inf")),
    *("", "x", "F", "R", "S", "D", "X", "Q", "-1", "0x7", "a:b", ":1", "h:0", "h:65536"),
    *("x" * 5000, "\0", "\udcff", "é\x1b["),
    *([], {}, [1], [[]], [["a"]], [["a", 1]], [["a", "b"]], [[1, "b"]], [{}]),
    *({"v": 1}, [None] * 3000, {"a": {"b": {}}}),
)  # fmt: skip


def mutated(raw: bytes, rng: Random) -> bytes:
    """Return ``raw`` with a few things wrong, in its fields or in its bytes; or no trace of it."""
    kind = rng.random()
    if kind < 0.6:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            raw = _in_fields(raw, rng)
        return raw
    return _in_bytes(raw, rng) if kind < 0.9 else noise(rng)


def noise(rng: Random) -> bytes:
    """Return bytes that have nothing to do with this project, or nearly so."""
    return rng.choice(
        (
            lambda: b"",
            lambda: rng.randbytes(rng.randint(1, 200)),
            lambda: b"\xff\xfe" * 50,
            lambda: b"[" * 100_000,
            lambda: b"x" * (3 << 20),
            lambda: json.dumps(rng.choice(NASTY)).encode(),
            lambda: b'{"v":' + b"9" * 5000 + b"}",
            lambda: b'{"v":2,"phase":"F"}',
            lambda: '{"v":1}'.encode("utf-16"),
        )
    )()


def _in_fields(raw: bytes, rng: Random) -> bytes:
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    holders = [holder for holder in _holders(body) if holder]
    if not holders:
        return raw
    holder = rng.choice(holders)
    at = rng.choice(sorted(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    what = rng.random()
    if what < 0.6:
        holder[at] = rng.choice(NASTY)
    elif what < 0.7 and isinstance(holder[at], int):
        holder[at] += rng.choice((-1, 1, -10, 10, 10**6))
    elif what < 0.8:
        del holder[at]
    elif isinstance(holder, dict):
        holder[rng.choice(("colour", "", "v", "\udcff"))] = rng.choice(NASTY)
    else:
        holder.append(holder[at])
    return json.dumps(body).encode()


def _holders(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(h for v in value.values() for h in _holders(v))]
    if isinstance(value, list):
        return [value, *(h for v in value for h in _holders(v))]
    return []


def _in_bytes(raw: bytes, rng: Random) -> bytes:
    out = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randint(0, len(out))
        what = rng.randrange(4)
        if what == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del out[at : at + rng.randint(1, 20)]
        elif what == 2:
            out[at:at] = out[rng.randint(0, len(out)) :][: rng.randint(1, 40)]
        else:
            del out[at:]
    return bytes(out)
