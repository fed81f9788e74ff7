"""Which lines of the ranks' output hold one of the texts that were asked for. Pure; called by ``duplicates.py``.

A line ends with a line feed, a carriage return, or both, as for torchrun: each drawing of a progress bar is a line. One
that is longer than ``HELD_MAX`` is taken in pieces, so that a rank which writes no line end fills no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .splice import HELD_MAX


@dataclass(slots=True)
class _Part:
    label: bytes
    held: bytearray = field(default_factory=bytearray)


class Sieve:
    """What each rank has that is not a line yet; whole lines that match come out, each with its label."""

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        self._needles = needles
        self._overlap = max(map(len, needles)) - 1  # of a piece: a text may begin in it and end in the next
        self._parts: dict[str, _Part] = {}

    def add(self, key: str, label: bytes) -> None:
        """Expect output of ``key``; ``label`` goes in front of each of its lines."""
        self._parts[key] = _Part(label)

    def feed(self, key: str, data: bytes) -> bytes:
        """Take what ``key`` wrote and return the lines that match."""
        part = self._parts[key]
        part.held += data
        found = self._take(part, max(part.held.rfind(b"\n"), part.held.rfind(b"\r")) + 1)
        if len(part.held) < HELD_MAX:
            return found
        rest = bytes(part.held[len(part.held) - self._overlap :])
        piece = self._take(part, len(part.held))
        part.held += b"" if piece else rest
        return found + piece

    def end(self, key: str) -> bytes:
        """Return what is left of ``key``, if it matches, and forget it."""
        part = self._parts.pop(key)
        return self._take(part, len(part.held))

    def empty(self) -> bool:
        """Is no output expected?"""
        return not self._parts

    def _take(self, part: _Part, cut: int) -> bytes:
        data = bytes(part.held[:cut])
        del part.held[:cut]
        if not self._matches(data):
            return b""
        return b"".join(part.label + line + b"\n" for line in data.splitlines() if self._matches(line))

    def _matches(self, data: bytes) -> bool:
        return any(needle in data for needle in self._needles)
