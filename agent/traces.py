"""What can be seen of living ranks from outside: their output grows, data moves, processors are used.

For ``hang_watch.py``, on a thread of its own: a stat of a log file hangs when its server does. Nothing here raises for
a process that ends while it is looked at. The files of /proc that are read are those that never wait for the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..health.hang import Sample
from . import proc
from .linux import boottime
from .sources import RankHere

TICKS = os.sysconf("SC_CLK_TCK")
_UTIME = 11  # of /proc/PID/stat behind the name (proc(5): field 14), then stime, and both of children that were reaped


def sample(ranks: Sequence[RankHere]) -> Sample:
    """Look at the ranks that live."""
    written = sum(_size(rank.directory / name) for rank in ranks for name in ("stdout.log", "stderr.log"))
    return without_output(ranks, written)


def without_output(ranks: Iterable[RankHere], written: int) -> Sample:
    """Look at them in /proc alone, which never waits; ``written`` was their output."""
    moved = 0
    cpu_s: dict[int, float] = {}
    for rank in ranks:
        if not proc.alive(rank.pid):
            continue
        family = (rank.pid, *proc.below(rank.pid))
        cpu_s[rank.rank] = sum(map(_cpu_s, family))
        moved += sum(map(_moved, family))
    return Sample(boottime(), written, moved, cpu_s)


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _cpu_s(pid: int) -> float:
    fields = proc.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return sum(map(int, fields[_UTIME : _UTIME + 4])) / TICKS


def _moved(pid: int) -> int:
    """Return what a process has read and written, through pipes too: saves, and data that is loaded."""
    lines = proc.read(f"/proc/{pid}/io").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith((b"rchar", b"wchar")))
