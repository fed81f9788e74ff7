"""The memory into which one round's ranks on this node say their steps; ``remuster.heartbeat`` is the other side.

It has no name in any file system: ranks find it below this agent in /proc, and it ends with those that hold it. Each
round has its own, so that whoever is left over from an earlier one says nothing into this one. The agent uses read
alone: a rank that cuts the memory short ends nobody but its like. Used by ``crew.py``.
"""

from __future__ import annotations

import os
import sys

from ..health.evidence import Beat, Entry, Pace, Said
from ..worker.beat import (
    COUNT,
    ENTRIES,
    ENTRIES_BYTES,
    ENTRY_WORDS,
    FIRST,
    LAST,
    LATEST,
    LONGEST,
    OPENING,
    SLEPT,
    SLOT_BYTES,
    STACK_BYTES,
    STEP,
    UNSAID,
    entries_at,
    page_bytes,
    page_name,
    place_of,
    stack_at,
)
from .linux import sealed_memory


class Beats:
    """A page with a slot for each rank. OSError when there is no memory or no descriptor for it."""

    def __init__(self, round: int, slots: int) -> None:
        self._fd = sealed_memory(page_name(str(round)), page_bytes(slots))
        self._slots = slots

    def address(self, local_rank: int) -> str:
        """Return what that rank finds its slot by."""
        return f"/proc/{os.getpid()}/fd/{self._fd}:{local_rank}"

    def read(self) -> dict[int, Beat]:
        """Return what each rank that has said anything said last, by local rank."""
        words, size = SLOT_BYTES // 8, self._slots * SLOT_BYTES
        page = memoryview(os.pread(self._fd, size, 0).ljust(size, b"\0"))
        integers, floats = page.cast("q"), page.cast("d")
        return {
            local: Beat(
                integers[at + STEP],
                floats[at + FIRST],
                floats[at + LAST],
                integers[at + COUNT],
                floats[at + LONGEST],
                floats[at + SLEPT],
            )
            for local, at in enumerate(range(0, self._slots * words, words))
            if integers[at + COUNT] > 0 and integers[at + STEP] >= 0
        }

    def said(self, local_rank: int) -> Said:
        """Return the first and the last steps that a rank has said, with what it gave beside them."""
        before = self._entries(local_rank)
        raw = os.pread(self._fd, ENTRIES_BYTES, entries_at(self._slots, local_rank)).ljust(ENTRIES_BYTES, b"\0")
        after = self._entries(local_rank)
        # The rank may write while it is read: an entry whose place it had come to, or was about to, is left out.
        before = min(before, after)
        oldest = max(OPENING, after + 1 - LATEST)
        steps, values = memoryview(raw).cast("q"), memoryview(raw).cast("d")

        def entry(number: int) -> Entry:
            at = place_of(number) * ENTRY_WORDS
            given = (None if steps[at + i] == UNSAID else values[at + i] for i in (1, 2, 3))
            return Entry(steps[at], *given)

        opening = tuple(map(entry, range(min(before, OPENING))))
        latest = tuple(map(entry, range(oldest, before)))
        return Said(opening, (*opening, *latest)[-LATEST:] if oldest == OPENING else latest)

    def _entries(self, local_rank: int) -> int:
        raw = os.pread(self._fd, 8, local_rank * SLOT_BYTES + ENTRIES * 8).ljust(8, b"\0")
        return max(0, int.from_bytes(raw, sys.byteorder, signed=True))

    def stack(self, local_rank: int) -> bytes:
        """Return what a rank has written of its stack, when it was asked for it; nothing when it was not, or cannot."""
        return os.pread(self._fd, STACK_BYTES, stack_at(self._slots, local_rank)).rstrip(b"\0")

    def pace(self, started_s: float) -> Pace | None:
        """Return how far this node's ranks were together, when they had been started at ``started_s``."""
        beats = self.read().values()
        if not beats:
            return None
        first_s = max(beat.first_s for beat in beats) - started_s
        return Pace(len(beats), min(beat.step for beat in beats), round(first_s, 6))

    def close(self) -> None:
        os.close(self._fd)
