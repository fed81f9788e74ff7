"""The agent's own lines, taken from the first moment on and written a moment later, once structlog is there.

structlog costs as much to import as the rest of the agent: it is loaded after the first ranks have started, or after a
moment of waiting. Lines are kept with the time at which they were said, and ranks that start again come before them:
they and the threads that write them would take the cores that the ranks need.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .files import FileThread

if TYPE_CHECKING:
    from .logs import Logger


DEBUG, INFO = 10, 20  # logging's, which is not loaded for them
LATER_S = 0.05  # a restart of one node takes less; whatever nobody waits for comes after it


class Notes:
    """Lines for people (``say``) and for machines (events.jsonl in the run directory; with ``events`` also shown).

    For the loop's own thread.
    """

    def __init__(
        self, say: Callable[[str], None], run_dir: Path, files: FileThread, level: str, events: bool = False
    ) -> None:
        self._say = say
        self._path = run_dir / "events.jsonl"
        self._files = files
        self._level = level
        self._events = events
        self._kept: list[tuple[int, str, dict[str, object]]] = []
        self._loop = asyncio.get_running_loop()
        self._logger: Logger | None = None

    def line(self, event: str, **fields: object) -> None:
        """Note an event with its fields; it is written within ``LATER_S``, or by ``write``."""
        self._keep(INFO, event, fields)

    def detail(self, event: str, **fields: object) -> None:
        """Note what only somebody who looks for it wants to read (LOGLEVEL=DEBUG)."""
        self._keep(DEBUG, event, fields)

    def _keep(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger is not None and not self._kept:
            self._loop.call_later(LATER_S, self.write)
        self._kept.append((level, event, {**fields, "at": time.time()}))

    def _both(self, keep: Callable[[bytes], object]) -> Callable[[bytes], object]:
        def tell(line: bytes) -> None:
            keep(line)
            self._say(line.decode())

        return tell

    def write(self) -> None:
        """Write what was kept; the first time structlog is loaded for it."""
        if self._logger is None:
            from .logs import EventFile, configure

            file = EventFile(self._path, self._files)
            self._logger = configure(self._say, self._both(file.keep) if self._events else file.keep, self._level)
        kept, self._kept = self._kept, []
        for level, event, fields in kept:
            self._logger.log(level, event, **fields)
