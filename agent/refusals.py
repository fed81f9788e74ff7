"""A store that refuses writes is borne for a while: it may be full, and an operator at it. For the agent's shells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..rendezvous.errors import PermanentError
from .linux import boottime

BORNE_S = 60.0
PAUSE_S = 1.0
STALE_S = 10.0  # without a refusal: that trouble is over, whatever became of the write


class Refusals:
    """Since when writes have been refused; all that share one are borne together."""

    def __init__(self, say: Callable[[str], None], borne_s: float = BORNE_S, stale_s: float = STALE_S) -> None:
        self._say = say
        self._borne_s = borne_s
        self._stale_s = stale_s
        self._since: float | None = None
        self._last = 0.0

    def taken(self) -> None:
        """Note that a write was taken."""
        self._since = None

    async def bear(self, error: PermanentError, reason: str) -> None:
        """Say it once and pause, after which the write is tried again; raise ``error`` when that has gone on."""
        before, self._last = self._last, boottime()
        if self._since is None or self._last > before + self._stale_s:
            self._since = self._last
            self._say(f"the store refuses ({reason}): {error}; trying again for {self._borne_s:g} s")
        elif boottime() > self._since + self._borne_s:
            raise error
        await asyncio.sleep(PAUSE_S)
