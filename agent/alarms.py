"""A wake-up on CLOCK_BOOTTIME in an asyncio loop: the machines ask for a Tick at a time, the earliest one counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .linux import boottime


class Alarm:
    """Calls ``ring`` once at the earliest time that was set since it last rang."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at = float("inf")
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Ring at ``at`` (seconds of CLOCK_BOOTTIME), or sooner if an earlier time is set already."""
        if at >= self._at:
            return
        self.stop()
        self._at = at
        self._handle = asyncio.get_running_loop().call_later(max(0.0, at - boottime()), self._rang)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self._at = float("inf")

    def _rang(self) -> None:
        self._at = float("inf")
        self._handle = None
        self._ring()
