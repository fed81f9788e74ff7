"""The private folder of a store of the job's own, below this user's lock folder: whose it is, and how it is removed.

The folder itself is the lock: who holds it with flock keeps the store of that address and port. A folder whose lock is
free has been left by a minder that was killed. Called by an agent that wants a store, and by the minder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time

DOOR = "door"  # the socket that agents of this machine connect to
LOG = "minder.log"
LEASE = "lease"  # how long a node may believe in the store that is or was here, s
ENDED_EARLY = "ended-early"  # left by a minder that was told to end while others may still have used the store
HELD_S = 120.0  # at least so long, and two leases, the next store there must see that it has to wait
_TAIL = 8192
_PREFIX, _TAG = "etcd-", 16
_NAME = re.compile(f"{_PREFIX}[0-9a-f]{{{_TAG}}}")  # a run's log directory may be called so and something more


def folder_of(lock_folder: str, address: str, port: int) -> str:
    """Return the folder of the store at ``address`` and ``port``, as this network namespace knows them."""
    import hashlib  # not needed by the minder, which starts sooner without

    here = os.stat("/proc/self/ns/net").st_ino
    tag = hashlib.sha256(f"{here} {address} {port}".encode()).hexdigest()[:_TAG]
    return os.path.join(lock_folder, _PREFIX + tag)


def take(folder: str) -> int | None:
    """Return ``folder``, made if need be, open and locked; None while somebody else has it or has just removed it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    return lock(folder)


def lock(folder: str) -> int | None:
    """Return ``folder`` open and locked, None if it cannot be had now."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.lstat(folder)):  # else it was removed, and perhaps made anew, in between
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None


def empty(folder: str, *, but: tuple[str, ...] = ()) -> None:
    """Remove what is in ``folder``, except the entries named."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in but:
                continue
            if entry.is_dir(follow_symlinks=False):
                empty(entry.path)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)


def remove_leftovers(lock_folder: str) -> None:
    """Remove what killed minders have left; a mark that there was one stays as long as it may matter."""
    for name in os.listdir(lock_folder):
        folder = os.path.join(lock_folder, name)
        if _NAME.fullmatch(name) and (fd := lock(folder)) is not None:
            try:
                _remove(folder)
            finally:
                os.close(fd)


def _remove(folder: str) -> None:
    left = os.listdir(folder)
    if ENDED_EARLY not in left and left:
        mark_ended_early(folder, believed_s(folder))
    empty(folder, but=(ENDED_EARLY,))
    mark = os.path.join(folder, ENDED_EARLY)
    if not left or os.stat(mark).st_mtime < time.time() - max(HELD_S, 2 * believed_s(folder)):
        empty(folder)
        os.rmdir(folder)


def mark_ended_early(folder: str, lease_ttl_s: int) -> None:
    """Leave word that a store has ended while nodes may have used it."""
    _write(os.path.join(folder, ENDED_EARLY), lease_ttl_s)


def set_lease(folder: str, lease_ttl_s: int) -> None:
    """Leave word, for who comes after a minder that was killed, how long its nodes may believe in the store."""
    _write(os.path.join(folder, LEASE), lease_ttl_s)


def believed_s(folder: str) -> int:
    """Return for how long nodes may believe in the store that was here, as far as it left word."""
    words = (tail(os.path.join(folder, name)) for name in (LEASE, ENDED_EARLY))
    return max((int(word) for word in words if word.isdecimal()), default=0)


def _write(path: str, number: int) -> None:
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(str(number))


def tail(path: str) -> str:
    """Return the end of a log, nothing when there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
