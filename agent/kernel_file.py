"""A kernel log in a file that a log daemon fills: what is new in it, also after the file was rotated away.

For ``kernel_log.py``. All but ``fired`` touches the file and belongs on a thread.
"""

from __future__ import annotations

import errno
import os
import stat

from .inotify import OneShot

EARLIER = 64 * 1024  # bytes before the end, in which the last minute is looked for
MOST = 1 << 20  # bytes at once; of what was written faster, the newest count
PARTIAL = 4096  # bytes of a line without an end
BEFORE = 256  # bytes by which a file is known again: two lines of a kernel seldom have all of them in common


class KernelFile:
    """An open log file; ``watch`` is readable when it has grown or was moved. OSError when it cannot be opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._partial = b""
        self._fd = _opened(path)
        self._at = os.fstat(self._fd).st_size
        self._before = self._there()
        try:
            self._inotify = OneShot()
        except OSError:
            os.close(self._fd)
            raise
        self.watch = self._inotify.fd
        self._inotify.arm(path, moved=True)

    def fired(self) -> None:
        """Take the watch's word, which is gone with it. Never blocks."""
        self._inotify.fired()

    def earlier(self) -> list[bytes]:
        """Return the last lines that stand in it already."""
        start = max(0, self._at - EARLIER)
        lines = os.pread(self._fd, self._at - start, start).split(b"\n")
        return lines[start > 0 :]

    def arm(self) -> list[bytes]:
        """Watch for the next change, and return what came before that; OSError when the file has gone."""
        self._inotify.arm(self._path, moved=True)
        return self.read()

    def read(self) -> list[bytes]:
        """Return the whole lines that are new, those of the file that has taken its place included."""
        lines = self._rest()
        if self._replaced():
            try:
                fd = _opened(self._path)
            except OSError:
                if lines:
                    return lines  # these first; the trouble is there the next time, too
                raise
            os.close(self._fd)
            self._fd, self._at, self._partial, self._before = fd, 0, b"", b""
            lines += self._rest()
        return lines

    def close(self) -> None:
        """Close it."""
        self._inotify.close()
        os.close(self._fd)

    def _rest(self) -> list[bytes]:
        size = os.fstat(self._fd).st_size
        if size < self._at or self._there() != self._before:  # emptied in its place, and perhaps filled again
            self._at, self._partial = 0, b""
        self._at = max(self._at, size - MOST)
        raw = os.pread(self._fd, size - self._at, self._at)
        self._at += len(raw)
        self._before = self._there()
        *whole, self._partial = (self._partial + raw).split(b"\n")
        self._partial = self._partial[-PARTIAL:]
        return whole

    def _there(self) -> bytes:
        """Return what stands before the place up to which was read."""
        start = max(0, self._at - BEFORE)
        return os.pread(self._fd, self._at - start, start)

    def _replaced(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False  # between its renaming and the next one's birth
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)


def _opened(path: str) -> int:
    """Open a regular file; whatever may have taken its place holds nobody up. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no file any more")
    return fd
