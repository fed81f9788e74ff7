"""The agent's own lines, taken from the first moment on and written once structlog is there.

structlog costs as much to import as the rest of the agent: it is loaded after the first ranks have started, or after a
moment of waiting; lines said before are kept with the time at which they were said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .files import FileThread

if TYPE_CHECKING:
    from .logs import Logger


class Notes:
    """Lines for people (``say``) and for machines (events.jsonl in the run directory)."""

    def __init__(self, say: Callable[[str], None], run_dir: Path, files: FileThread, level: str) -> None:
        self._say = say
        self._path = run_dir / "events.jsonl"
        self._files = files
        self._level = level
        self._early: list[tuple[str, dict[str, object]]] = []
        self._logger: Logger | None = None

    def line(self, event: str, **fields: object) -> None:
        """Note an event with its fields."""
        if self._logger is None:
            self._early.append((event, {**fields, "at": time.time()}))
        else:
            self._logger.info(event, **fields)

    def open(self) -> None:
        """Load structlog and write what was kept. Once; later calls do nothing."""
        if self._logger is not None:
            return
        from .logs import EventFile, configure

        self._logger = configure(self._say, EventFile(self._path, self._files).keep, self._level)
        for event, fields in self._early:
            self._logger.info(event, **fields)
        self._early.clear()
