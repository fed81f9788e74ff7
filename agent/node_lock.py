"""One agent per run and node: a lock that outlives its agent until the last rank below it has been reaped.

The agent takes it before it joins and hands it to its guardian and its keeper (``GuardianLink.hold``); the kernel
lets go of it when the last of the three has closed it. So a new agent that has it knows that no older one runs ranks.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

try:
    from _blake2 import blake2b  # where hashlib has it from, which brings OpenSSL: 3 ms of every start
except ImportError:
    from hashlib import blake2b

from . import proc
from .linux import boottime

_DYING_S = 1.0  # what was killed a moment ago is still alive for one
LOCKS = Path("/tmp")  # noqa: S108 - the one place all starts on a node share; owner and mode are checked
_MOST = 4096  # bytes that a lock holds
_LOOK_EVERY_S = 0.02  # flock has no event to wait for; only while an old guardian finishes


class NodeLockError(Exception):
    """The lock could not be had; the message says why and what to do."""


class NodeBusy(NodeLockError):
    """Another live agent of this run is on this node."""


class NodeNotEmpty(NodeLockError):
    """The agent that had the lock is dead, but ranks of it did not die in time."""


class LockFolderUnsafe(NodeLockError):
    """The folder for locks belongs to somebody else, or others may write to it."""


class NodeLock(NamedTuple):
    """The lock of one run on one node; names any run and node, whatever characters they hold."""

    run_id: str
    node: str
    base: Path = LOCKS

    @property
    def tag(self) -> str:
        """Name run and node in letters that suit file and cgroup names."""
        return blake2b(f"{self.run_id}\0{self.node}".encode(), digest_size=8).hexdigest()

    async def acquire(self, bound_s: float = 40.0) -> int:
        """Return the lock's file; waits while an old guardian finishes. NodeLockError says why it cannot be had."""
        path = lock_folder(self.base) / f"{self.tag}.lock"
        busy_s, end_s = boottime() + _DYING_S, boottime() + bound_s
        while True:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise LockFolderUnsafe(f"the lock {path} cannot be opened: {error.strerror}. Remove it.") from error
            try:
                await self._wait(fd, path, busy_s, end_s)
                if _is_at(path, fd):
                    self._sign(fd)
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # its holder has removed it while we waited

    def remove(self, fd: int) -> None:
        """Remove the lock that is held as ``fd``, when nothing of its agent is left but the agent itself."""
        path = lock_folder(self.base) / f"{self.tag}.lock"
        if _is_at(path, fd):
            path.unlink()

    async def _wait(self, fd: int, path: Path, busy_s: float, end_s: float) -> None:
        while not _try_lock(fd):
            holder = os.pread(fd, 100, 0).partition(b"\n")[0].decode("ascii", "replace").split()
            if len(holder) == 2 and holder[0].isdigit():
                pid = int(holder[0])
                if boottime() >= busy_s and proc.alive(pid) and proc.start_ticks(pid) == holder[1]:
                    raise NodeBusy(
                        f"another agent (pid {pid}) of run {self.run_id!r} is on this node as {self.node!r}. "
                        "Wait for it, stop it, or give this one another --rdzv-id or --local-addr."
                    )
            if boottime() >= end_s:
                raise NodeNotEmpty(
                    f"ranks of an earlier agent of run {self.run_id!r} are still alive on this node as {self.node!r}: "
                    f"the lock {path} is held. `fuser -v {path}` names the holder; if its ranks are in state D, take "
                    "this node out of service."
                )
            await asyncio.sleep(_LOOK_EVERY_S)

    def _sign(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        name = json.dumps([self.run_id, self.node])
        os.pwrite(fd, f"{os.getpid()} {proc.start_ticks(os.getpid())}\n{name}\n".encode(), 0)


class Holder(NamedTuple):
    """An agent that lives and has a node's lock; ``start`` tells its pid from a later one, ``keeper`` may be 0."""

    run_id: str
    node: str
    agent: int
    start: str
    keeper: int


def holders(base: Path = LOCKS) -> tuple[Holder, ...]:
    """Return this user's agents on this machine, by run and node."""
    found = [_holder(path) for path in lock_folder(base).glob("*.lock")]
    return tuple(sorted(holder for holder in found if holder is not None))


def _holder(path: Path) -> Holder | None:
    """Read who wrote a lock, if it is an agent that lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        first, _, second = os.read(fd, _MOST).partition(b"\n")
        pid, start = first.decode("ascii").split()
        run_id, node = json.loads(second)
        agent = int(pid)
    except (OSError, ValueError, TypeError):
        return None
    finally:
        os.close(fd)
    if not (isinstance(run_id, str) and isinstance(node, str) and proc.alive(agent)):
        return None
    parent = proc.parent(agent)
    command = proc.read(f"/proc/{agent}/cmdline")
    keeper = parent if command and proc.read(f"/proc/{parent}/cmdline") == command else 0
    return Holder(run_id, node, agent, start, keeper) if proc.start_ticks(agent) == start else None


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_folder(base: Path) -> Path:
    """Make, check and return this user's folder for locks below ``base``.

    It must not depend on the environment: of two starts on one node with different ones, the second would not see the
    first, and would take its ranks for strays.
    """
    folder = base / f"remuster-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise LockFolderUnsafe(
                f"{folder} must be a folder of user {os.getuid()} with mode 0700; it is mode "
                f"{stat.filemode(found.st_mode)} of user {found.st_uid}. Remove it."
            ) from None
    except OSError as error:
        raise LockFolderUnsafe(
            f"the lock folder {folder} cannot be made: {error.strerror}. Make room for it."
        ) from error
    return folder
