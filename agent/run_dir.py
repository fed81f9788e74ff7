"""The run's own directory: where ranks' output, events and records go. Blocking; called through the file thread.

Directories are this user's alone, and those of ranks are never used twice: a later success overwrites nothing of an
earlier failure.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

ROOM = 1 << 16  # bytes that must fit, or not even the reason of a failure could be kept


class RunDirectoryError(Exception):
    """No directory for logs and records could be had; the sentence says why and what to give instead."""


class NoRoomForLogs(RunDirectoryError):
    """The disk is full: nobody's wrong usage, and another node may have room."""


def run_directory(log_dir: Path | None, run_id: str) -> Path:
    """Make and return a new private ``<log dir>/<run id>_<8 random>``; by default in this user's own part of TMPDIR."""
    parent = _own_temporary() if log_dir is None else log_dir.absolute()
    path = parent / f"{as_name(run_id)}_{random_name()}"
    try:
        make_private(parent)
        path.mkdir(mode=0o700)
        _try_room(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoomForLogs(
                f"logs cannot be kept in {parent}: {error.strerror} (df and df -i show it); make room there, or give "
                "another --log-dir"
            ) from error
        why = "it is a file" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        raise RunDirectoryError(f"logs cannot be kept in {parent}: {why}; give another --log-dir") from error
    return path


def _try_room(path: Path) -> None:
    """Write a file and remove it; a full disk says so at the write, or on NFS at the close."""
    trial = path / f".room-{random_name()}"  # others may be at it in a directory of all
    fd = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = ROOM
        while left:
            left -= os.write(fd, bytes(left))
    finally:
        try:
            os.close(fd)
        finally:
            trial.unlink()


def random_name() -> str:
    return os.urandom(4).hex()


def make_private(directory: Path) -> None:
    """Make the directory and those above it that are missing, for this user only; ``mkdir -p`` opens the upper ones."""
    if not directory.is_dir():
        make_private(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)


def _own_temporary() -> Path:
    path = _temporary() / f"remuster-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()  # in a directory that all may write to, somebody else may have made it
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise RunDirectoryError(f"{path} is not a directory of this user's; remove it, or give --log-dir")
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path


def _temporary() -> Path:
    """Return the directory that ``tempfile`` would choose; to import that costs every start 4 ms."""
    for name in (*map(os.environ.get, ("TMPDIR", "TEMP", "TMP")), "/tmp", "/var/tmp", "/usr/tmp", "."):  # noqa: S108
        if name:
            with contextlib.suppress(OSError):
                _try_room(Path(name))
                return Path(name).absolute()
    raise NoRoomForLogs("no directory for temporary files, not even /tmp, can be written to; give --log-dir")


def attempt_directory(run_dir: Path, attempt: int, local_rank: int) -> Path:
    """Make and return ``attempt_<n>/<local rank>`` for the rank's files; one that exists is never used again."""
    path, k = run_dir / f"attempt_{attempt}" / str(local_rank), 0
    while True:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
        k += 1
        path = run_dir / f"attempt_{attempt}.{k}" / str(local_rank)


def as_name(run_id: str) -> str:
    """Return the run id as the name of a directory: itself, where that is safe."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run_id)[:100]
    if name and name == run_id and not name.startswith("."):
        return name
    import hashlib

    return f"{name.lstrip('.')}-{hashlib.sha256(run_id.encode(errors='surrogatepass')).hexdigest()[:8]}"
