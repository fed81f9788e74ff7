"""What drills see from outside all hosts: processes in /proc, the clock that hosts share; and waiting for a sight."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 20.0


def boottime() -> float:
    """Return the clock that all hosts share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def until(condition: Callable[[], T], what: str | Callable[[], str], timeout_s: float = PATIENCE_S) -> T:
    """Wait until ``condition()`` is true and return it; ``what`` names it when it does not become so."""
    end = boottime() + timeout_s
    while not (result := condition()):
        assert boottime() < end, f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.005)
    return result


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a host, by its pid outside."""

    pid: int
    title: str

    def signal(self, number: int) -> None:
        """Send it ``number``; for SIGSTOP, wait until it stands."""
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:
            until(lambda: _state(self.pid) in ("T", "", "Z"), f"{self.title} stands")

    @property
    def children(self) -> list[Process]:
        """Its living children."""
        return [child for child in map(look, children(self.pid)) if child is not None]

    @property
    def alive(self) -> bool:
        return _state(self.pid) not in ("", "Z", "X")


def link_of(path: str) -> str:
    """Return what a link of /proc points to, '' when its process has gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _state(pid: int) -> str:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def title(pid: int) -> str:
    """Return the command line."""
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def children(pid: int) -> list[int]:
    """Return the children of the process's first thread."""
    return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]


def look(pid: int) -> Process | None:
    """Return the process while it lives."""
    process = Process(pid, title(pid) or _read(f"/proc/{pid}/comm").strip())
    return process if process.alive else None
