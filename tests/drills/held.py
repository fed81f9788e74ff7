"""Holds one thread of a process while its other threads run on: a loop that hangs. Not a test module.

By ptrace: a thread that is seized and interrupted stands still in the kernel, and its process neither stops nor sees a
signal. What seizes must be what releases: both are called from the same thread of the tests.
"""

from __future__ import annotations

import ctypes
import os

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_ANY_CHILD = 0x40000000  # __WALL: a tracer waits for threads too


class HeldThread:
    """The first thread of the process ``pid``, held until it is released."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        _ptrace(_SEIZE, pid)
        _ptrace(_INTERRUPT, pid)
        _, status = os.waitpid(pid, _ANY_CHILD)
        assert os.WIFSTOPPED(status), f"the thread {pid} ended with {status:#x} instead of standing"

    def release(self) -> None:
        """Let it run on; harmless when its process has been killed meanwhile."""
        try:
            _ptrace(_DETACH, self._pid)
        except ProcessLookupError:
            os.waitpid(self._pid, _ANY_CHILD | os.WNOHANG)  # its death was told to its tracer first


def _ptrace(request: int, pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(pid), None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"ptrace {request:#x} of {pid}")
