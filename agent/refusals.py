"""A store that refuses writes is borne for a while: it may be full, and an operator at it. For the agent's shells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..rendezvous.errors import PermanentError
from .linux import boottime

BORNE_S = 60.0
PAUSE_S = 1.0


class Refusals:
    """Since when writes have been refused; all that share one are borne together."""

    def __init__(self, say: Callable[[str], None], borne_s: float = BORNE_S) -> None:
        self._say = say
        self._borne_s = borne_s
        self._since: float | None = None

    def over(self) -> None:
        """Note that a write was taken."""
        self._since = None

    async def bear(self, error: PermanentError, reason: str) -> None:
        """Say it once and pause, after which the write is tried again; raise ``error`` when that has gone on."""
        if self._since is None:
            self._since = boottime()
            self._say(f"the store refuses ({reason}): {error}; trying again for {self._borne_s:g} s")
        elif boottime() > self._since + self._borne_s:
            raise error
        await asyncio.sleep(PAUSE_S)
