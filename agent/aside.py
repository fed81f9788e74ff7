"""Holds back what has time until the ranks run, then lets ``ledger.py`` take it in. Small: loaded with the start.

A start and a restart are over in a fraction of a second, and whatever else this process did in it would be waited for
by all ranks of the job. Nothing is lost: at the end all is taken in at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous.records import Job
from .linux import boottime

if TYPE_CHECKING:
    from .exclusion import Bad
    from .ledger import Ledger

QUIET_S = 0.5


class Seen(NamedTuple):
    """A state of the job as this agent saw it."""

    job: Job
    leading: bool
    at_s: float


class Spared:
    """The helper processes that run, by who started them: sweeps leave them all alone."""

    def __init__(self, tell: Callable[[tuple[int, ...]], None]) -> None:
        self._tell = tell
        self._pids: dict[str, tuple[int, ...]] = {}

    def by(self, who: str) -> Callable[[tuple[int, ...]], None]:
        """Return what ``who`` tells its own pids to."""

        def spare(pids: tuple[int, ...]) -> None:
            self._pids[who] = pids
            self._tell(tuple(pid for some in self._pids.values() for pid in some))

        return spare


class Aside:
    """Keeps calls to the ledger in their order until there is time."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self._make = ledger
        self._ledger: Ledger | None = None
        self._held: list[Callable[[Ledger], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def job_seen(self, job: Job, leading: bool) -> None:
        """Note a state of the job, with whether this agent leads."""
        seen = Seen(job, leading, boottime())
        self.call(lambda ledger: ledger.job_seen(seen))

    def record(self, record: Mapping[str, object]) -> None:
        """Note an attempt's record."""
        self.call(lambda ledger: ledger.record(record))

    def call(self, what: Callable[[Ledger], None]) -> None:
        """Have something done with the ledger when there is time."""
        self._held.append(what)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._let_go)

    def bad(self) -> tuple[Bad, ...]:
        """Return the nodes that are blamed by what the ledger has taken in."""
        return () if self._ledger is None else self._ledger.bad

    async def settle(self) -> None:
        """Take in all that was held back and wait, within bounds, for what it began."""
        if self._timer is not None:
            self._timer.cancel()
        self._let_go()
        if self._ledger is not None:
            await self._ledger.settle()

    def _let_go(self) -> None:
        self._timer = None
        held, self._held = self._held, []
        if held and self._ledger is None:
            self._ledger = self._make()
        for what in held:
            assert self._ledger is not None
            what(self._ledger)
