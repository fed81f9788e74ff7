"""Zip archives as torch.save writes them, in a file or a part of one: is each member what its CRC-32 says?

Their members are stored, not compressed, lie one after the other from the first byte on, and nothing follows the
directory. That is held against them more strictly than by the standard library's reader, which passes over damage
(a count of members that is zero, a member without bytes) that torch's own reader fails on or takes for content. An
adapter: reads by offset, so several threads may share the descriptor.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from ..digest import OVERDUE, never
from ..errors import GaveUp

BLOCK_BYTES = 1 << 20
MOST_MEMBERS = 1_000_000
SMALL = 64 << 10  # below it a member is read at once

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_FULL = 0xFFFFFFFF  # the value stands in the entry's 64-bit field
_DESCRIPTOR = 24  # bytes at most that may follow a member's: its size and CRC once more


class NotWhole(ValueError):
    """The bytes are no whole archive; the sentence says what is wrong."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file inside an archive."""

    name: bytes
    crc: int
    size: int
    header: int  # offset in the archive
    until: int  # where the next one, or the directory, begins


class StoredZip:
    """An archive in ``length`` bytes of ``fd`` from ``start`` on. NotWhole: its directory cannot be read."""

    def __init__(self, fd: int, start: int, length: int) -> None:
        """Read the directory; the members are not looked at yet."""
        self._fd = fd
        self._start = start
        count, size, offset = self._directory(length)
        if count > MOST_MEMBERS:
            raise NotWhole(f"has {count} members, more than any file of torch.save")
        self.members = self._listed(self._read(offset, size), count, offset)
        # torch.serialization.set_crc32_options(False) writes zeros in their place.
        self.has_checksums = any(member.crc for member in self.members)

    def check(self, give_up: Callable[[], bool] = never) -> None:
        """Read every member and compare its checksum, if there are any. ``give_up`` is asked before every block."""
        for member in self.members:
            at = self._data_of(member)
            if give_up():
                raise GaveUp(OVERDUE)
            if self.has_checksums and self._crc(at, member.size, give_up) != member.crc:
                raise NotWhole(f"bad CRC-32 for {_shown(member.name)}")

    def content(self, member: Member) -> bytes:
        """Return a member's bytes, once its checksum has been compared."""
        data = self._read(self._data_of(member), member.size)
        if self.has_checksums and zlib.crc32(data) != member.crc:
            raise NotWhole(f"bad CRC-32 for {_shown(member.name)}")
        return data

    def _directory(self, length: int) -> tuple[int, int, int]:
        """Return how many entries there are, and size and offset of the directory that holds them."""
        if length < _END.size:
            raise NotWhole("its end is missing")
        end = length - _END.size
        mark, disk, _, here, count, size, offset, comment = _END.unpack(self._read(end, _END.size))
        if mark != b"PK\5\6":
            raise NotWhole("its end is missing")
        if end >= _LOCATOR.size + _END64.size:
            mark64, _, at, _ = _LOCATOR.unpack(self._read(end - _LOCATOR.size, _LOCATOR.size))
            if mark64 == b"PK\6\7":
                end -= _LOCATOR.size + _END64.size
                found, _, _, _, _, _, here64, count64, size64, offset64 = _END64.unpack(self._read(end, _END64.size))
                same = all(a in (b, _FULL, 0xFFFF) for a, b in ((count, count64), (size, size64), (offset, offset64)))
                if found != b"PK\6\6" or at != end or not same:
                    raise NotWhole("its end is damaged")
                here, count, size, offset = here64, count64, size64, offset64
        if disk or comment or here != count or offset + size != end:
            raise NotWhole("its end is damaged")
        return count, size, offset

    def _listed(self, raw: bytes, count: int, end: int) -> tuple[Member, ...]:
        found: list[tuple[bytes, int, int, int]] = []
        at = 0
        try:
            for _ in range(count):
                mark, _, _, _, method, _, _, crc, packed, size, n, extra, comment, disk, _, _, header = (
                    _ENTRY.unpack_from(raw, at)
                )
                if mark != b"PK\1\2" or disk:
                    raise NotWhole("its directory is damaged")
                name = raw[at + _ENTRY.size : at + _ENTRY.size + n]
                after = at + _ENTRY.size + n
                if _FULL in (packed, size, header):
                    size, packed, header = _wide(raw[after : after + extra], size, packed, header)
                if method or packed != size:
                    raise NotWhole(f"{_shown(name)} is compressed, which torch.save does with none")
                found.append((name, crc, size, header))
                at = after + extra + comment
        except struct.error:
            raise NotWhole("its directory is damaged") from None
        if at != len(raw) or not found or found[0][3]:
            raise NotWhole("its directory is damaged")
        untils = [header for _, _, _, header in found[1:]] + [end]
        members = tuple(Member(*item, until) for item, until in zip(found, untils, strict=True))
        for member in members:
            if member.header + _LOCAL.size + len(member.name) + member.size > member.until:
                raise NotWhole(f"{_shown(member.name)} lies over what follows it")
        return members

    def _data_of(self, member: Member) -> int:
        """Return where a member's bytes begin, and see that they and its header fill its place."""
        fields = self._read(member.header, _LOCAL.size + len(member.name))
        mark, *_, name, extra = _LOCAL.unpack_from(fields)
        at: int = member.header + _LOCAL.size + name + extra
        left = member.until - at - member.size
        if mark != b"PK\3\4" or fields[_LOCAL.size :] != member.name or not 0 <= left <= _DESCRIPTOR:
            raise NotWhole(f"the header of {_shown(member.name)} is damaged")
        return at

    def _crc(self, at: int, size: int, give_up: Callable[[], bool]) -> int:
        if size <= SMALL:
            return zlib.crc32(self._read(at, size))
        value = 0
        # Not from malloc: it would keep such a block for each of the many threads that an agent has had.
        with mmap.mmap(-1, min(BLOCK_BYTES, size)) as block, memoryview(block) as view:
            while size:
                if give_up():
                    raise GaveUp(OVERDUE)
                with view[: min(size, len(view))] as want:
                    count = os.preadv(self._fd, [want], self._start + at)
                    if not count:
                        raise NotWhole("it became shorter while it was read")
                    with want[:count] as read:
                        value = zlib.crc32(read, value)
                at += count
                size -= count
        return value

    def _read(self, at: int, size: int) -> bytes:
        data = os.pread(self._fd, size, self._start + at)
        while len(data) < size:  # a file system may give less than was asked for
            more = os.pread(self._fd, size - len(data), self._start + at + len(data))
            if not more:
                raise NotWhole("its end is missing")
            data += more
        return data


def _wide(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Return the three numbers with those that are too large for 32 bits taken from the entry's extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = [n for (n,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + length // 8 * 8])]
            return tuple(wide.pop(0) if n == _FULL else n for n in (size, packed, header))  # type: ignore[return-value]
        at += 4 + length
    raise NotWhole("its directory is damaged")


def _shown(name: bytes) -> str:
    return f"{name.decode('utf-8', 'replace')!a}"
