"""Blocks of a file: reserved ahead of its end, punched out of its middle, given back. Adapter over ``fallocate``.

``os.posix_fallocate`` would move the end of the file, so the system call is made here. Each call raises OSError with
the kernel's reason; a file system that has no such thing says EOPNOTSUPP. Used by ``room.py``.
"""

from __future__ import annotations

import ctypes
import os
import sys

_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2

_libc = ctypes.CDLL(None, use_errno=True)


def reserve(fd: int, start: int, size: int) -> None:
    """Have the disk's blocks for these bytes allocated; the file's end stays where it is."""
    _fallocate(fd, _KEEP_SIZE, start, size)


def punch(fd: int, start: int, end: int) -> None:
    """Give the blocks between two offsets back to the disk; what is there reads as zeros, and is no data for lseek."""
    _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, start, end - start)


def give_back(fd: int) -> None:
    """Give back what is reserved beyond the end. Nobody may write meanwhile: what they write would be cut off."""
    os.ftruncate(fd, os.fstat(fd).st_size)


def free(directory: str) -> int:
    """Return how many bytes this user can still write on the disk of ``directory``; a quota is not seen here."""
    found = os.statvfs(directory)
    if not found.f_blocks:
        return sys.maxsize  # it does not say
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)


def _fallocate(fd: int, mode: int, start: int, size: int) -> None:
    if _libc.fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(size)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
