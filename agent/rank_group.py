"""The cgroup that a guardian's ranks are born in: made, forked into, killed, and made anew for the next round.

A process that enters a cgroup by itself, through cgroup.procs, waits until every core has been through the scheduler
(the kernel's cgroup_threadgroup_rwsem, an RCU grace period): 5 to 15 ms for each rank, in every restart. clone3 with
CLONE_INTO_CGROUP (Linux 5.7) does not wait. Kernels of 2025 kill at birth whoever is cloned into a cgroup that was
killed before (its kill_seq is compared with the parent's), so each round gets a new one, and a child that does nothing
is born first: where it does not come through, ranks are forked as ever and enter by themselves. For the guardian alone.
"""

from __future__ import annotations

import ctypes
import os
import signal

from . import cgroup

_SYS_CLONE3 = 435  # on every architecture
_CLONE_INTO_CGROUP = 0x2_0000_0000
_FLAGS, _EXIT_SIGNAL, _CGROUP, _WORDS = 0, 4, 10, 11  # of struct clone_args, in 64-bit words

_syscall = ctypes.PyDLL(None, use_errno=True).syscall  # keeps the GIL: the child has it too
_syscall.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t)
_syscall.restype = ctypes.c_long


def fork_into(group: int) -> int:
    """Fork into the cgroup whose directory is open as ``group``; return as ``os.fork`` does. OSError where it cannot.

    Nothing is done of what Python and the C library do around a fork: a process with one thread, whose child soon
    executes another program, can do without.
    """
    args = (ctypes.c_uint64 * _WORDS)()
    args[_FLAGS], args[_EXIT_SIGNAL], args[_CGROUP] = _CLONE_INTO_CGROUP, signal.SIGCHLD, group
    pid: int = _syscall(_SYS_CLONE3, ctypes.byref(args), ctypes.sizeof(args))
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid


class RankGroup:
    """One guardian's cgroup for its ranks; ``path`` is None where the node does not let us have one."""

    __slots__ = ("_fd", "path")

    def __init__(self) -> None:
        self.path: str | None = None
        self._fd = -1  # open on it when ranks can be born there

    def make(self, tag: str) -> None:
        """Make it, once, ``tag`` naming run and node."""
        if self.path is None:
            self.path = cgroup.create(tag)
            self._try()

    def fork(self) -> tuple[int, str | None]:
        """Fork, into the cgroup if that can be; return what ``os.fork`` does, and what the child has yet to enter."""
        if self._fd < 0:
            return os.fork(), self.path
        try:
            return fork_into(self._fd), None
        except OSError:  # what is really wrong, fork will say
            return os.fork(), self.path

    def kill(self) -> None:
        """Kill all that is in it."""
        if self.path is not None:
            cgroup.kill(self.path)

    def renew(self) -> None:
        """Put a new one in the place of one that was killed and is empty."""
        if self._fd < 0 or self.path is None:
            return
        os.close(self._fd)
        self._fd = -1
        try:
            os.rmdir(self.path)
        except OSError:
            return  # somebody has moved into it: ranks enter by themselves from now on
        try:
            os.mkdir(self.path, 0o700)
        except OSError:
            self.path = None
        self._try()

    def remove(self) -> None:
        """Kill what is in it, and remove it."""
        if self.path is not None:
            cgroup.remove(self.path)

    def _try(self) -> None:
        """Let a child be born in it that does nothing; where it comes through, ranks will."""
        if self.path is None:
            return
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        if _born(fd):
            self._fd = fd
        else:
            os.close(fd)


def _born(group: int) -> bool:
    try:
        pid = fork_into(group)
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
