"""The limits that this process was started under: what they must allow, and in which words a shortage is told.

The keeper asks for room before it starts anything, the agent once it knows how many ranks there will be; the command
line turns an error that is a shortage into a sentence. Ranks keep the limit that the command was started under. Loaded
only where there is something to do.
"""

from __future__ import annotations

import errno
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_THREAD = "can't start new thread"
_MODULE = "failed to map segment"  # the dynamic loader's, when there is no address space for a module


def room_for_files(needed: int, what: str) -> str | None:
    """Raise this process's limit of open files, which is lower, to what ``what`` needs; say why it cannot be."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        return (
            f"{what} needs {needed} open files, and {most} are allowed here; raise the hard limit (ulimit -Hn, "
            "LimitNOFILE= of systemd, --ulimit nofile= of docker), or start fewer ranks on this node"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
    return None


def too_narrow(least: int) -> str:
    """Say that no interpreter and its threads fit into this process's address space."""
    return (
        f"remuster needs {least >> 20} MiB of address space, and {_limit('RLIMIT_AS', 'ulimit -v')}; raise "
        "it (ulimit -v unlimited)"
    )


def limit_files(pid: int, allowed: int) -> None:
    """Give a child the limit of open files that this process was started under."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (allowed, most))


def shortage(error: BaseException) -> str | None:
    """Say what ran short when ``error``, or what it came of, is a limit of this machine or user; None for a defect."""
    for one in _chain(error):
        number = one.errno if isinstance(one, OSError) else None
        if number == errno.EMFILE:
            return f"no more files can be opened: {_limit('RLIMIT_NOFILE', 'ulimit -n')}; raise it"
        if number == errno.ENFILE:
            return "this machine has no more open files to give; raise fs.file-max, or use another node"
        if number == errno.EAGAIN or (isinstance(one, RuntimeError) and _THREAD in str(one)):
            return (
                f"no more processes or threads can be started: {_limit('RLIMIT_NPROC', 'ulimit -u')}, "
                f"{_limit('RLIMIT_AS', 'ulimit -v')}, and a container has a limit of its own (pids.max); "
                "raise the one that is reached, or start fewer ranks on this node"
            )
        if isinstance(one, (MemoryError, SystemError)) or number == errno.ENOMEM or _unmapped(one):
            return f"no more memory is to be had: {_limit('RLIMIT_AS', 'ulimit -v')}; raise it, or make room"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _unmapped(error: BaseException) -> bool:
    return isinstance(error, ImportError) and _MODULE in str(error)


def _limit(name: str, shown: str) -> str:
    allowed, _ = resource.getrlimit(getattr(resource, name))
    number = allowed >> 10 if name == "RLIMIT_AS" else allowed  # a shell counts memory in KiB
    return f"{shown} is {'unlimited' if allowed == resource.RLIM_INFINITY else number}"
