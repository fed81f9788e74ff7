"""What /proc says about processes: who descends from whom, and in which state. Read-only.

For the keeper, the guardian, the agent's take-over and the search for strays. A process that ends while it is read is
simply not there: nothing here raises for it. Only cheap imports, all done before anything is killed.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

GONE = ""  # state of a process that is not there


def read(path: str) -> bytes:
    """Return a /proc file's bytes, or nothing when its process has gone or is another user's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts: list[bytes] = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _stat(pid: int) -> list[bytes]:
    """Return the fields after the name, from the state (proc(5): field 3) on; a name may hold any character."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def state(pid: int) -> str:
    """Return the state letter (R, S, D, T, Z, …) or GONE."""
    fields = _stat(pid)
    return fields[0].decode() if fields else GONE


def name(pid: int) -> str:
    """Return the process's short name."""
    return read(f"/proc/{pid}/comm").decode(errors="replace").strip() or "?"


def alive(pid: int) -> bool:
    """Tell whether ``pid`` still runs or sleeps: a zombie is dead, only not yet reaped."""
    return state(pid) not in (GONE, "Z", "X")


def stopped(pid: int) -> bool:
    """Tell whether ``pid`` is stopped by a signal or a debugger."""
    return state(pid) in ("T", "t")


def dies_of(pid: int, signum: int) -> bool:
    """Tell whether ``signum`` would have its default action; one that is blocked may be so for a fork's time only."""
    bit = 1 << (signum - 1)
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith((b"SigIgn:", b"SigCgt:")) and int(line[7:], 16) & bit:
            return False
    return True


def parent(pid: int) -> int:
    """Return the parent's pid, 0 when there is none or ``pid`` has gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def start_ticks(pid: int) -> str:
    """Return the start time in ticks since boot (field 22): with the pid it names a process for good."""
    fields = _stat(pid)
    return fields[19].decode() if fields else ""


def all_pids() -> list[int]:
    """Return every process that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> list[int]:
    """Return the children of all threads of ``pid``."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    if not _HAS_CHILDREN:
        return [other for other in all_pids() if parent(other) == pid]
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def below(pid: int, *, spare: Collection[int] = ()) -> list[int]:
    """Return all descendants of ``pid``, parents first; those in ``spare`` are left out with all that is below them."""
    found: list[int] = []
    fresh = [pid]
    while fresh:
        kids = [child for child in children(fresh.pop()) if child not in spare]
        found += kids
        fresh += kids
    return found


def foreign_children(agent: int, spare: Collection[int]) -> Iterator[int]:
    """Yield the children of ``agent`` that it has not started itself: the guardian, and orphans it was given.

    The guardian and every rank lead sessions of their own, and no process can move into an existing session, so what
    shares the agent's session is the agent's own work; ``spare`` names those of its children that lead a session too.
    The newest comes first, looked at when it is asked for: what keeps forking is caught there or not at all.
    """
    own = _session(agent)
    return (child for child in reversed(children(agent)) if child not in spare and _session(child) != own)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -pid


_HAS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # needs CONFIG_PROC_CHILDREN
