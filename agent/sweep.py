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

NOBODY = 0
CLEAN_SCANS = 3  # one can miss what forks while it looks
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.0005, 0.5


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


def sweep(
    bound_s: float, on_end: Callable[[int, int], None], last: int = NOBODY, spare: int = NOBODY
) -> tuple[int, ...]:
    """Kill and reap until no child is left; after ``bound_s`` return the pids that would not die. Blocks.

    ``last`` is a guardian that sweeps at the same time: it is killed when it is stopped or nothing else is alive. Were
    it killed first and this process a moment later, nobody would be left to go on.
    ``spare`` is a child that lives on, with all below it: then some readings in a row that show no other child are what
    proves the rest dead, for no one but this process can take a child off that list.
    """
    began_s = boottime()
    clean_scans = alone = 0
    while not reap(on_end):
        alone = alone + 1 if proc.children(os.getpid()) == [spare] else 0
        if alone >= CLEAN_SCANS:
            return ()
        others = [pid for pid in proc.below(os.getpid(), spare=(spare,)) if pid != last]
        kill_all(others)
        clean_scans = 0 if any(proc.alive(pid) for pid in reversed(others)) else clean_scans + 1
        if last != NOBODY and (clean_scans >= CLEAN_SCANS or proc.stopped(last)):
            kill_all([last])
        if boottime() >= began_s + bound_s:
            return survivors(spare)
        time.sleep(pause_s(began_s))
    return ()


def pause_s(began_s: float) -> float:
    """Return how long to wait before the next round: a fraction of the time spent, so that long waits cost nothing."""
    return min(SHORTEST_PAUSE_S + (boottime() - began_s) / 20, LONGEST_PAUSE_S)


def survivors(spare: int = NOBODY) -> tuple[int, ...]:
    """Return the descendants that are still alive, without ``spare`` and those below it."""
    return tuple(pid for pid in proc.below(os.getpid(), spare=(spare,)) if proc.alive(pid))
