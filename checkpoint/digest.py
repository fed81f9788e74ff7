"""Reading files of a step safely: opened inside its directory, regular files only, hashed in blocks.

An adapter for the publishing side and the reader. No symbolic link is followed below the step's directory and no
FIFO or device can block the open, whatever a manifest names.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .errors import GaveUp

BLOCK_BYTES = 1 << 20
OVERDUE = "the time for verifying checkpoints was over: give more time, or look at the storage"

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegular(OSError):
    """The name is there, but is no regular file."""


def never() -> bool:
    """Never give up: the default of callers without a time limit."""
    return False


@contextmanager
def opened_directory(path: str | os.PathLike[str], through_link: bool = False) -> Generator[int, None, None]:
    """Hold a directory open; a symbolic link in its place is refused with ``NotADirectoryError``.

    ``through_link``: the user named it, who may well have put a link there, to scratch storage say.
    """
    fd = os.open(path, (_FLAGS & ~os.O_NOFOLLOW if through_link else _FLAGS) | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_file(root: int, path: str) -> Generator[tuple[int, int], None, None]:
    """Open a regular file below the directory ``root``; yield its descriptor and size."""
    *parents, name = path.split("/")
    held: list[int] = []
    try:
        at = root
        for part in parents:
            at = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=at)
            held.append(at)
        fd = os.open(name, _FLAGS | os.O_NONBLOCK, dir_fd=at)  # NONBLOCK: a FIFO would wait for its writer
        held.append(fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular("is not a regular file")
        yield fd, found.st_size
    finally:
        for fd in reversed(held):
            os.close(fd)


def sha256_of(fd: int, give_up: Callable[[], bool] = never) -> tuple[int, str]:
    """Read ``fd`` to its end; return how many bytes there were and their sha256. ``give_up`` is asked every block."""
    hasher = hashlib.sha256()
    total = 0
    # Not from malloc: it would keep such a block for each of the many threads that an agent has had.
    with mmap.mmap(-1, BLOCK_BYTES) as block, memoryview(block) as view:
        while count := os.readv(fd, [view]):
            if give_up():
                raise GaveUp(OVERDUE)
            with view[:count] as read:
                hasher.update(read)
            total += count
    return total, hasher.hexdigest()
