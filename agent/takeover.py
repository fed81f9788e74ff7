"""Clear away what a dead guardian has left: the agent's own sweep, in short rounds between the turns of its loop.

The agent is a subreaper, so the orphans of a killed guardian become its children. It has other children too (the
minder of a store, a hook), so the kernel's "no child at all" is no proof here; two readings in a row without a foreign
child are: only the agent can reap them, so none can leave its list unseen.
"""

from __future__ import annotations

import os

from . import proc
from .sweep import kill_all

READINGS = 2


class TakeOver:
    """One take-over; ``round`` is called until it returns True. It blocks for the time of a few /proc reads."""

    def __init__(self) -> None:
        self._clean = 0

    def round(self, spared: tuple[int, ...]) -> bool:
        """Kill and reap what is foreign; True when nothing foreign was left in two rounds."""
        me = os.getpid()
        found = False
        for orphan in proc.foreign_children(me, spared):
            found = True
            if not _reaped(orphan):  # a guardian that was stopped leaves thousands of dead ones
                kill_all([orphan, *proc.below(orphan)])
        self._clean = 0 if found else self._clean + 1
        return self._clean >= READINGS

    def survivors(self, spared: tuple[int, ...]) -> tuple[int, ...]:
        """Return what is still alive."""
        orphans = list(proc.foreign_children(os.getpid(), spared))
        family = orphans + [pid for orphan in orphans for pid in proc.below(orphan)]
        return tuple(pid for pid in family if proc.alive(pid))


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
