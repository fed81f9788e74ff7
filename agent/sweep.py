"""Kill all descendants until none is left, setsid or not, and reap what was adopted.

The caller is a subreaper, so every orphan below it becomes its child: when the kernel says that it has no child at
all, nothing is left. That, and no scan of /proc, is the proof of death: a scan misses processes that keep forking.
"""

from __future__ import annotations

import os
import signal
import time

from . import proc
from .linux import boottime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LONGEST_PAUSE_S = 0.02


def kill_all(pids: Iterable[int]) -> None:
    """Send SIGKILL to each; one that has gone, or has become another user's, is passed over."""
    for pid in pids:
        _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def reap(on_end: Callable[[int, int], None]) -> bool:
    """Reap all children that have ended, ``on_end(pid, wait status)`` each; True when there is no child at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        on_end(pid, status)


def sweep(bound_s: float, on_end: Callable[[int, int], None]) -> tuple[int, ...]:
    """Kill and reap until no child is left; after ``bound_s`` return the pids that would not die. Blocks."""
    end_s = boottime() + bound_s
    pause_s = 0.0005
    while True:
        kill_all(proc.below(os.getpid()))
        if reap(on_end):
            return ()
        if boottime() >= end_s:
            return survivors()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def survivors() -> tuple[int, ...]:
    """Return the descendants that are still alive."""
    return tuple(pid for pid in proc.below(os.getpid()) if proc.alive(pid))
