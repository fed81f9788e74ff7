"""One entry of a checkpoint directory, a directory or a file, as formats see it: its files and their bytes. An adapter.

Regular files only, opened inside the entry without following symbolic links, so that no name, FIFO or device there can
lead or hold a reader elsewhere. Listed once; a file that changes afterwards is somebody's save in progress.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..digest import opened_directory, opened_file

MOST_FILES = 500_000
DEPTH = 8


class TooMuch(OSError):
    """More files, or deeper, than any checkpoint has; or a file larger than what may be read at once."""


class Folder:
    """The files of one checkpoint. ``is_file``: the entry is a single file, which is then its only one."""

    def __init__(self, directory: Path, name: str) -> None:
        """List ``directory/name``. OSError when that cannot be done."""
        self.directory = directory
        self.name = name
        self.parsed: dict[str, object] = {}  # what formats have read of it, by path, and would read again
        self.odd: tuple[str, ...] = ()  # symbolic links, FIFOs and the like: never read
        found = os.stat(directory / name, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, "is a symbolic link; only real files count")
        self._marks = [_mark(name, found)]
        self.is_file = stat.S_ISREG(found.st_mode)
        self.on_device = os.major(found.st_dev) != 0  # a file system of a network has none, nor do tmpfs and overlays
        self._root = directory if self.is_file else directory / name
        self.files: Mapping[str, int] = {name: found.st_size} if self.is_file else self._listed()  # path: bytes

    def _listed(self) -> dict[str, int]:
        files: dict[str, int] = {}
        odd: list[str] = []
        left: list[tuple[str, int]] = [("", 0)]
        while left:
            prefix, depth = left.pop()
            if depth > DEPTH or len(files) > MOST_FILES:
                raise TooMuch(f"holds more than {MOST_FILES} files or {DEPTH} levels")
            with os.scandir(self._root / prefix) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        left.append((path + "/", depth + 1))
                    elif entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        files[path] = found.st_size
                        self._marks.append(_mark(path, found))
                    else:
                        odd.append(path)
        self.odd = tuple(sorted(odd))
        return files

    @property
    def stamp(self) -> tuple[tuple[object, ...], ...]:
        """Return what changes when any of the files does: nothing can set a file's change time."""
        return tuple(sorted(self._marks))

    @contextmanager
    def opened(self, path: str) -> Generator[tuple[int, int], None, None]:
        """Open one of the files; yield its descriptor and its size now."""
        with opened_directory(self._root, through_link=self.is_file) as root, opened_file(root, path) as found:
            yield found

    def read(self, path: str, limit: int) -> bytes:
        """Return a small file's bytes. ``TooMuch`` if it has more than ``limit``."""
        with self.opened(path) as (fd, size):
            return _all(fd, size, limit, path)

    def beside(self, name: str, limit: int) -> bytes | None:
        """Return a small file of the checkpoint directory itself, where pointers lie; None without one."""
        try:
            with opened_directory(self.directory, through_link=True) as root, opened_file(root, name) as (fd, size):
                return _all(fd, size, limit, name)
        except FileNotFoundError:
            return None


def _all(fd: int, size: int, limit: int, name: str) -> bytes:
    if size > limit:
        raise TooMuch(f"{name!a} has {size} bytes, more than the {limit} that it may have")
    data = bytearray()
    while len(data) <= limit and (block := os.read(fd, min(1 << 20, limit + 1 - len(data)))):
        data += block
    return bytes(data)


def _mark(path: str, found: os.stat_result) -> tuple[object, ...]:
    return path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
