"""One-shot inotify: be told once that a file has grown. Adapter over three system calls; used by ``output.py``.

One-shot, because a plain watch makes one event for every write of a rank: that halves the rank's own speed and
overflows the queue (measured). A fired watch is gone; arm it again, *then* read once more.
"""

from __future__ import annotations

import ctypes
import os
import struct

_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
_MODIFY, _ONESHOT, _IGNORED = 0x2, 0x80000000, 0x8000
_MOVED = 0x800 | 0x400 | 0x4  # renamed, deleted, or its links counted anew: an open file that is deleted has none
_EVENT = struct.Struct("iIII")  # wd, mask, cookie, length of name: 0, for a name comes with directories only

OVERFLOW = -1  # events were lost: look at every file


class OneShot:
    """An inotify descriptor. Raises OSError where there is none to be had (a user may hold 128 by default)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.inotify_init1(_CLOEXEC_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def arm(self, path: str, moved: bool = False) -> int:
        """Watch ``path`` for one write, or one removal, and return the watch's number; OSError when it cannot be."""
        mask = _MODIFY | _ONESHOT | (_MOVED if moved else 0)
        number: int = self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", path)
        return number

    def disarm(self, number: int) -> None:
        """Drop a watch; one that has fired is gone already."""
        self._libc.inotify_rm_watch(self.fd, number)

    def fired(self) -> list[int]:
        """Return the numbers of the watches that fired, OVERFLOW among them when events were lost. Never blocks."""
        try:
            raw = os.read(self.fd, 1024 * _EVENT.size)
        except BlockingIOError:
            return []
        return [number for number, mask, _, _ in _EVENT.iter_unpack(raw) if not mask & _IGNORED]

    def close(self) -> None:
        """Close the descriptor and with it every watch."""
        os.close(self.fd)
