"""etcd with nothing around it: requests as bytes, made before the clock starts, sent by grpc.aio, none of our code.

What the store's latencies and joins are compared with. Replies are looked at no further than is needed to go on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, cast

import grpc.aio

Unary = Callable[[bytes], Awaitable[bytes]]
PUT, RANGE, TXN, GRANT, WATCH = (
    f"/etcdserverpb.{method}" for method in ("KV/Put", "KV/Range", "KV/Txn", "Lease/LeaseGrant", "Watch/Watch")
)
CREATE, LEASE = (1, 5), (4, 8)  # what a guard compares: its number in Compare.target, and the field with the value
_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own, as each agent has


class Stream(Protocol):
    """What is used of a watch: its messages, and its end."""

    async def read(self) -> bytes: ...
    def cancel(self) -> bool: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Bare:
    """One connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.put, self.range, self.txn, self.grant = (
            cast(Unary, channel.unary_unary(method)) for method in (PUT, RANGE, TXN, GRANT)
        )
        self.watch = cast(Callable[[bytes], Stream], channel.unary_stream(WATCH))


@asynccontextmanager
async def connection(endpoint: str) -> AsyncGenerator[Bare, None]:
    """Open a connection of its own."""
    async with grpc.aio.insecure_channel(endpoint, options=_OPTIONS) as channel:
        yield Bare(channel)


# --- requests ---------------------------------------------------------------------------------------------------------
def put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    return _field(1, key) + _field(2, value) + (_field(3, lease) if lease else b"")


def read(key: bytes, end: bytes = b"") -> bytes:
    return _field(1, key) + (_field(2, end) if end else b"")


def grant(ttl_s: int, lease: int) -> bytes:
    return _field(1, ttl_s) + _field(2, lease)


def watch(key: bytes, from_revision: int, end: bytes = b"") -> bytes:
    return _field(1, read(key, end) + _field(3, from_revision))


def guard(what: tuple[int, int], key: bytes, value: int) -> bytes:
    """Compare one number of ``key`` for equality; a txn's guard."""
    target, number = what
    return _field(1, _field(2, target) + _field(3, key) + _field(number, value))


def then_put(*of_put: bytes) -> bytes:
    """Make puts what a txn does."""
    return b"".join(_field(2, _field(2, one)) for one in of_put)


def then_read(*of_read: bytes) -> bytes:
    """Make reads what a txn does."""
    return b"".join(_field(2, _field(1, one)) for one in of_read)


# --- replies ----------------------------------------------------------------------------------------------------------
def revision(reply: bytes) -> int:
    """Return the store's revision in the header of a reply."""
    return _varint_of(_fields(_fields(reply)[1])[3])


def _fields(message: bytes) -> dict[int, bytes]:
    """Split a message; of a repeated field the last is kept, a number is left as it is spelled."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        length, start = _read_varint(message, at)
        if tag & 7 == 0:
            found[tag >> 3], at = message[at:start], start
        else:
            found[tag >> 3], at = message[start : start + length], start + length
    return found


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _varint_of(raw: bytes) -> int:
    return _read_varint(raw, 0)[0]
