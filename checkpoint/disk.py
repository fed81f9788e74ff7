"""What a publication does to the file system, one method for each thing that a crash could come between.

An adapter with the oddities of NFS in it. Tests pass a ``Disk`` that kills the process at its k-th operation.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from functools import lru_cache
from pathlib import Path

_log = logging.getLogger("remuster.checkpoint")


class Disk:
    """The real file system. Modes come from the umask: checkpoint data is as open as the user's other files."""

    def make_dir(self, path: Path) -> None:
        """Create a directory and its parents; one that exists is fine."""
        path.mkdir(parents=True, exist_ok=True)

    def clear(self, path: Path) -> None:
        """Remove what an earlier try of this very publication left. Never given the name of a published step."""
        if path.is_symlink() or path.exists():
            shutil.rmtree(path)

    def write(self, path: Path, data: bytes) -> None:
        """Create or overwrite a small file. It is not durable before ``sync_file``."""
        path.write_bytes(data)

    def sync_file(self, path: Path) -> None:
        """Force a file's bytes to the storage. Blocks."""
        _fsync(path, os.O_RDONLY | os.O_NOFOLLOW)

    def sync_dir(self, path: Path) -> None:
        """Force a directory's names to the storage. Some file systems cannot (EINVAL): tolerated, and said once."""
        try:
            _fsync(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise
            _say_no_sync(path.stat().st_dev, str(path))

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically; over NFS a lost reply makes a rename that happened look like ENOENT, so look."""
        before = source.lstat()
        try:
            self.rename_once(source, target)
        except FileNotFoundError:
            if not _is(target, before):
                raise

    def rename_once(self, source: Path, target: Path) -> None:
        """Make the one system call."""
        source.rename(target)


def _fsync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from e
    finally:
        os.close(fd)


def _is(path: Path, before: os.stat_result) -> bool:
    try:
        now = path.lstat()
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)


@lru_cache(maxsize=16)
def _say_no_sync(device: int, path: str) -> None:
    _log.warning("fsync of directory %s (device %d) is not supported: names rely on the file system", path, device)
