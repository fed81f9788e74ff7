"""What /proc says about the measured processes: who they are, what memory they hold, what CPU time they have used.

Read from outside; nothing of what is measured takes part. Used by the measurements and by ``stage.py``.
"""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path
from typing import NamedTuple

MIB_KB = 1024
_PRESENT, _OF_A_FILE = 1 << 63, 1 << 61  # of a page, in pagemap; its frame is for root alone, and not needed


class Held(NamedTuple):
    """What one process holds."""

    rss_mib: float
    pss_mib: float  # a page that N processes share counts 1/N here, and fully in rss
    threads: int
    fds: int


def held(pid: int) -> Held:
    """Look at one process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kb = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    threads, fds = (len(os.listdir(f"/proc/{pid}/{what}")) for what in ("task", "fd"))
    return Held(kb["Rss"] / MIB_KB, kb["Pss"] / MIB_KB, threads, fds)


def resident_mib(pids: list[int]) -> float:
    """Return the memory that is resident for these processes: a page of a file that several of them map counts once.

    Their RSS added up would count it for each. What a fork shares counts for each: it cannot be told from outside.
    """
    shared: set[tuple[str, str, int]] = set()
    own = 0
    size = os.sysconf("SC_PAGE_SIZE")
    for pid in pids:
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
            for line in maps:
                span, _, offset, device, inode = line.split(maxsplit=5)[:5]
                start, end = (int(address, 16) // size for address in span.split("-"))
                pages = array("Q", os.pread(pagemap.fileno(), 8 * (end - start), 8 * start))
                first = int(offset, 16) // size
                for i, page in enumerate(pages):
                    if page & _PRESENT:
                        if page & _OF_A_FILE and inode != "0":
                            shared.add((device, inode, first + i))
                        else:
                            own += 1
    return (len(shared) + own) * size / 1024 / MIB_KB


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, of its ended threads too, to the nanosecond.

    The clock of clock_getcpuclockid(3), whose number is made from the pid: /proc/PID/stat counts in ticks of 10 ms,
    more than an idle agent uses in some minutes, and /proc/PID/schedstat is about the first thread alone.
    """
    return time.clock_gettime((~pid << 3) | 2)


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


def name(pid: int) -> str:
    """Return a process's short name; nothing when it has gone."""
    return os.fsdecode(_read(pid, "comm").strip())


def argv(pid: int) -> list[bytes]:
    """Return a process's command line; nothing when it has gone."""
    return _read(pid, "cmdline").split(b"\0")[:-1]


def marked(token: bytes) -> list[int]:
    """Return the living processes that have ``token`` in their environment; a zombie has none."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and token in _read(int(pid), "environ")]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
