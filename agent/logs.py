"""What the agent logs: lines on the console for people, JSON lines in the run's directory for machines.

Imported late and once, by the launcher when the agent's loop is about to start: it is the only module that imports
structlog, whose console would pull in ``rich`` wherever that is installed (46 ms that every launch would pay).
Everybody else is given a logger, or a plain ``say``. Nothing here writes: lines go to the console's queue and to the
file thread. Secrets are taken out by name and from URLs, and text of strangers cannot move the cursor.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Generator, MutableMapping
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

from .files import FileThread


@contextlib.contextmanager
def _hidden(*names: str) -> Generator[None, None, None]:
    """Make these modules look absent, and restore what was: a plug-in of the user's may well import them later."""
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None is how the import system says absent
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


with _hidden("rich", "better_exceptions"):
    import structlog

Logger = structlog.typing.FilteringBoundLogger
_Event = MutableMapping[str, object]

_CLOCK = "%H:%M:%S"

_SECRET_NAME = re.compile(r"passw|secret|credential|api_?key|private_?key|authorization", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(://[^/@:\s]*:)[^/@\s]+@")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def configure(
    say: Callable[[str], None], keep: Callable[[bytes], object], level: str = "", colors: bool = False
) -> Logger:
    """Set up logging and return the logger; call it once.

    ``say`` takes lines for people from ``level`` (default: info) on; ``keep`` takes all events from info on, or from
    ``level`` where that is lower, as lines of JSON. Neither may block.
    """
    threshold = _level(level)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _stamp,
            structlog.processors.format_exc_info,
            _without_secrets,
            _Keep(keep),
            _ForPeople(threshold),
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(min(threshold, logging.INFO)),
        logger_factory=lambda *_: _Voice(say),
        cache_logger_on_first_use=True,
    )
    return cast(Logger, structlog.get_logger())


class EventFile:
    """The run's ``events.jsonl``: private, appended to by the file thread, opened with the first event."""

    def __init__(self, path: Path, files: FileThread) -> None:
        self._path = path
        self._files = files
        self._fd = -1

    def keep(self, line: bytes) -> bool:
        """Queue one line; False when it was dropped, because the file system hangs."""
        return self._files.post(self._append, line)

    async def flush(self) -> None:
        """Return when all that was queued before is written; TimeoutError when the file system hangs."""
        await self._files.run(lambda: None)

    def _append(self, line: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(self._fd, line)


def _level(text: str) -> int:
    known = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50, "fatal": 50}
    return int(text) if text.isascii() and text.isdigit() else known.get(text.strip().lower(), logging.INFO)


def _stamp(_logger: object, _method: str, event: _Event) -> _Event:
    """Say when: now, or at the wall-clock time ``at`` at which a line was said that is written later."""
    at = event.pop("at", None)
    wall = at if isinstance(at, float) else time.time()
    event["timestamp"] = datetime.fromtimestamp(wall, timezone.utc).isoformat().replace("+00:00", "Z")
    return event


def _without_secrets(_logger: object, _method: str, event: _Event) -> _Event:
    return cast(_Event, _clean(event))


def _clean(value: object, name: str = "") -> object:
    if isinstance(value, str):
        return "***" if _SECRET_NAME.search(name) else _SECRET_IN_URL.sub(r"\1***@", value)
    if isinstance(value, MutableMapping):
        items = cast("MutableMapping[object, object]", value).items()
        return {key: _clean(item, str(key)) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_clean(item, name) for item in cast("list[object]", value)]
    return value


class _Keep:
    """Passes every event on to the machines' file."""

    def __init__(self, keep: Callable[[bytes], object]) -> None:
        self._keep = keep

    def __call__(self, _logger: object, _method: str, event: _Event) -> _Event:
        self._keep(json.dumps(event, default=str).encode() + b"\n")
        return event


class _ForPeople:
    """Drops what people did not ask for, and makes the rest fit for a terminal."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold

    def __call__(self, _logger: object, _method: str, event: _Event) -> _Event:
        if _level(str(event.get("level"))) < self._threshold:
            raise structlog.DropEvent
        shown: _Event = {name: _visible(value) for name, value in event.items()}
        shown["timestamp"] = (
            datetime.fromisoformat(str(event["timestamp"])[:-1] + "+00:00").astimezone().strftime(_CLOCK)
        )
        return shown


def _visible(value: object) -> object:
    if not isinstance(value, str):
        return value
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value)


class _Voice:
    """What structlog calls a logger: takes the finished line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def msg(self, line: str) -> None:
        self._say(line + "\n")

    debug = info = warning = warn = error = critical = fatal = exception = log = msg
