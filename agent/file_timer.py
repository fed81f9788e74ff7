"""torchelastic's file timers: ranks say over a named pipe until when a piece of work must be done, and who is late is
killed.

The client is torch's (``torch.distributed.elastic.timer.FileTimerClient``), in the ranks; this is its server, for jobs
that are started with TORCHELASTIC_ENABLE_FILE_TIMER=1, and loaded for no others. torchrun's ends its whole agent with
the rank; here the rank alone is killed, and the round ends as with any failure. Only what runs below the guardian is
ever killed, whatever is written into the pipe. Called by ``main``; ``crew`` asks why a rank was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

from . import proc
from .files import FileThread

MOST = 10_000  # timers of one node
LONGEST = 1 << 12  # bytes of a request: what a pipe takes in one piece (PIPE_BUF)
LOOK_S = 10.0  # deadlines are on the wall clock, which may be set
LAST_S = 1e15  # seconds; an integer may be larger than any float
DEPTH = 64  # processes between a rank's descendant and the guardian


class Late(NamedTuple):
    """A process whose time is over; ``signal`` 0: it is only said."""

    pid: int
    scope: str
    signal: int


class Timers:
    """The timers of one node. Pure: times come in as seconds of the wall clock."""

    def __init__(self) -> None:
        self._at: dict[tuple[int, str], tuple[float, int]] = {}

    def take(self, raw: bytes) -> bool:
        """Take a request; False when it is none. A negative time releases the timer of that pid and scope."""
        try:
            body: object = json.loads(raw)
        except (ValueError, RecursionError):
            return False
        request = cast("dict[str, object]", body) if isinstance(body, dict) else {}
        pid, scope, signum = request.get("pid"), request.get("scope_id"), request.get("signal")
        at = request.get("expiration_time")
        if not isinstance(pid, int) or not isinstance(scope, str) or not isinstance(signum, int):
            return False
        if not isinstance(at, (int, float)) or not abs(at) < LAST_S or not 1 < pid < 1 << 30 or len(scope) > 512:
            return False
        if at < 0:
            self._at.pop((pid, scope), None)
        elif len(self._at) < MOST or (pid, scope) in self._at:
            self._at[pid, scope] = (at, signum if signum in set(signal.Signals) else 0)
        return True

    def next(self) -> float | None:
        """Return the earliest deadline."""
        return min((at for at, _ in self._at.values()), default=None)

    def late(self, now: float) -> list[Late]:
        """Return whose time is over, each process once, and forget all their timers."""
        over = sorted((at, *key, signum) for key, (at, signum) in self._at.items() if at <= now)
        found: dict[int, Late] = {}
        for _, pid, scope, signum in over:
            if pid not in found or not found[pid].signal:
                found[pid] = Late(pid, scope, signum)
        self._at = {key: timer for key, timer in self._at.items() if key[0] not in found}
        return list(found.values())


def place_pipe(asked: str, own: Path) -> Path:
    """Return where to make the pipe: as asked, unless another agent of this machine listens there. Blocks.

    Its ranks, one of which may have started us, need the pipe where it is; ours get the path of theirs in any case.
    """
    try:
        if not asked or not stat.S_ISFIFO(os.lstat(asked).st_mode):
            return Path(asked) if asked else own
        os.close(os.open(asked, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError:  # nothing is there, or nobody reads it
        return Path(asked)
    return own


async def serve(
    asked: str, run_dir: Path, files: FileThread, guardian: Callable[[], int], line: Callable[..., object]
) -> TimerPipe | None:
    """Serve at the path ``asked`` for, or in the run directory; None, and a line that says why, where it cannot be."""
    path = Path(asked)  # as given: ranks begin in this directory too
    try:
        path = await files.run(place_pipe, asked, run_dir / "timers")
        return TimerPipe(path, await files.run(make_pipe, path), guardian, line)
    except (OSError, TimeoutError) as error:
        line("file timers are not served", path=str(path), why=str(error))
        return None


def make_pipe(path: Path) -> int:
    """Make the pipe anew and return it open; OSError when something else is there. Blocks."""
    if path.exists() and stat.S_ISFIFO(path.lstat().st_mode):
        path.unlink()  # an earlier start's
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # a writer of our own: no end of file ever comes


class TimerPipe:
    """The server on this agent's loop. ``fd`` is that of ``make_pipe``; ``guardian`` tells the present one's pid."""

    def __init__(self, path: Path, fd: int, guardian: Callable[[], int], line: Callable[..., object]) -> None:
        self.path = path
        self._fd = fd
        self._guardian = guardian
        self._line = line
        self._timers = Timers()
        self._rest = b""
        self._killed: dict[int, str] = {}
        self._complained = False
        self._foreign = False  # it was said that somebody asks for the end of what is no rank's
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._loop.add_reader(fd, self._read)

    def why(self, pid: int) -> str:
        """Return why this agent has killed the process, '' when it has not."""
        return self._killed.get(pid, "")

    def close(self) -> None:
        """Listen no longer; who opens the pipe now is told so by the kernel."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        if self._alarm is not None:
            self._alarm.cancel()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LONGEST:]
        for line in lines:
            if not self._timers.take(line) and not self._complained:
                self._complained = True
                self._line("a request for a file timer could not be understood", request=repr(line[:200]))
        self._look()

    def _look(self) -> None:
        for late in self._timers.late(time.time()):
            self._end(late)
        if self._alarm is not None:
            self._alarm.cancel()
        at = self._timers.next()
        wait_s = None if at is None else min(max(at - time.time(), 0.0), LOOK_S)
        self._alarm = None if wait_s is None else self._loop.call_later(wait_s, self._look)

    def _end(self, late: Late) -> None:
        try:
            fd = os.pidfd_open(late.pid)
        except OSError:
            return  # it has ended
        try:
            if not _below(late.pid, self._guardian()):  # looked at after the pid was pinned
                if not self._foreign:
                    self._foreign = True
                    self._line("a file timer of a process that is no rank's expired", pid=late.pid, scope=late.scope)
            elif not late.signal:
                self._line("a file timer expired", pid=late.pid, scope=late.scope)
            else:
                name = signal.Signals(late.signal).name
                self._killed[late.pid] = f"remuster: the timer {late.scope!r} of this rank expired: {name} was sent"
                signal.pidfd_send_signal(fd, late.signal)
                self._line("a file timer expired: its process was killed", pid=late.pid, scope=late.scope, signal=name)
        except ProcessLookupError:
            pass
        finally:
            os.close(fd)


def _below(pid: int, guardian: int) -> bool:
    for _ in range(DEPTH):
        pid = proc.parent(pid)
        if pid in (0, guardian):
            return pid != 0
    return False
