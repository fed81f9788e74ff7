"""The memory into which one round's ranks on this node say their steps; ``remuster.heartbeat`` is the other side.

It has no name in any file system: ranks find it below this agent in /proc, and it ends with those that hold it. Each
round has its own, so that whoever is left over from an earlier one says nothing into this one. The agent uses read
alone: a rank that cuts the memory short ends nobody but its like. Used by ``crew.py``.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..health.evidence import Pace
from ..worker.beat import COUNT, FIRST, LAST, SLOT_BYTES, STEP, page_name
from .linux import sealed_memory


class Beat(NamedTuple):
    """What one rank last said, in seconds of CLOCK_BOOTTIME."""

    step: int
    first_s: float
    last_s: float


class Beats:
    """A page with a slot for each rank. OSError when there is no memory or no descriptor for it."""

    def __init__(self, round: int, slots: int) -> None:
        self._fd = sealed_memory(page_name(str(round)), slots * SLOT_BYTES)
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
            local: Beat(integers[at + STEP], floats[at + FIRST], floats[at + LAST])
            for local, at in enumerate(range(0, self._slots * words, words))
            if integers[at + COUNT] and integers[at + STEP] >= 0
        }

    def pace(self, started_s: float) -> Pace | None:
        """Return how far this node's ranks were together, when they had been started at ``started_s``."""
        beats = self.read().values()
        if not beats:
            return None
        first_s = max(beat.first_s for beat in beats) - started_s
        return Pace(len(beats), min(beat.step for beat in beats), round(first_s, 6))

    def close(self) -> None:
        os.close(self._fd)
