"""Wake-ups on CLOCK_BOOTTIME in an asyncio loop: the machines ask for Ticks, and every time asked for rings."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from .linux import boottime


class Alarm:
    """Calls ``ring`` at each time that was set, once for those that are due together."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._times: list[float] = []
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Ring at ``at`` (seconds of CLOCK_BOOTTIME), besides the times that are set already."""
        if at in self._times:
            return
        heapq.heappush(self._times, at)
        if self._times[0] == at:
            self._arm()

    def stop(self) -> None:
        """Forget all times."""
        self._times.clear()
        self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._times:
            delay = max(0.0, self._times[0] - boottime())
            self._handle = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._handle = None
        now = boottime()
        rings = False
        while self._times and self._times[0] <= now:
            heapq.heappop(self._times)
            rings = True
        self._arm()
        if rings:
            self._ring()
