"""Room on the disk for what the ranks write: a reserve ahead of each log, and of the logs' own middle when it is full.

Ranks write their files themselves, so a full disk would be their end. A thread looks after the files: asleep while
nothing is written, in ticks while data flows, and it may hang with the disk. It keeps allocated blocks ahead of each
end; when there are none to be had it says so once and punches holes into this run's logs (``room_plan.py`` decides
which). A limit of a log is held in the same way. No rank ever waits for it: one that writes faster than it makes room
meets the full disk. Used by ``outputs.py``, loaded when the ranks run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import select
import stat
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from . import blocks, room_plan
from .follow import Bell
from .inotify import OVERFLOW, OneShot
from .room_plan import AT_LIMIT, DISK_FULL, MOST, Hole, Log

TICK_S = 0.02  # while data flows
FALLBACK_TICK_S = 1.0  # where inotify is not to be had
SETTLE_S = 3.0  # for a disk that hangs; then the reserve stays where it is

_HARMLESS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # it may be anything by now
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNABLE = (errno.EOPNOTSUPP, errno.ENOSYS)


class _Keep(NamedTuple):
    paths: tuple[str, ...]
    done: Callable[[], None]
    last: bool


@dataclass(slots=True)
class _Log:
    path: str
    size: int = -1  # not looked at yet
    ahead: int = 0  # offset up to which blocks are reserved
    granted: int = MOST  # less where the last time not all could be had
    start: int = 0  # of the hole
    end: int = 0
    mark: int | None = None  # where the mark begins
    watch: int | None = None
    watchable: bool = True
    awake: bool = True
    earlier: bool = False

    def seen(self) -> Log:
        return Log(self.path, max(self.size, 0), self.start, self.end, self.earlier)


class Room:
    """The thread, for the agent's life. ``line`` says something to people, on the loop; ``limit``: of one log, or 0."""

    def __init__(self, directory: Path, limit: int, line: Callable[[str], None]) -> None:
        self.full = False  # it has met a full disk: the next round needs its room before it starts
        self._directory = str(directory)
        self._limit = limit
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._bell = Bell()
        self._requests: queue.SimpleQueue[_Keep] = queue.SimpleQueue()
        self._notify: OneShot | None = None  # from here on the thread's
        self._logs: list[_Log] = []
        self._able = True
        threading.Thread(target=self._run, name="remuster-room", daemon=True).start()

    def keep(self, paths: Sequence[str]) -> asyncio.Future[None]:
        """Look after these logs from now on. The ranks that wrote those before are dead: give their reserve back."""
        return self._ask(tuple(paths), last=False)

    async def close(self) -> None:
        """Give all back, the ranks are dead, and end; a disk that hangs is not waited for."""
        await asyncio.wait({self._ask((), last=True)}, timeout=SETTLE_S)

    def _ask(self, paths: tuple[str, ...], *, last: bool) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()

        def answer() -> None:
            if not done.done():
                done.set_result(None)

        self._requests.put(_Keep(paths, lambda: self._call(answer), last))
        self._bell.ring()
        return done

    def _call(self, what: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(what, *args)

    # --- the thread ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._bell.fd, select.POLLIN)
        with contextlib.suppress(OSError):
            self._notify = OneShot()
            poll.register(self._notify.fd, select.POLLIN)
        going = True
        while going:
            poll.poll(self._patience_ms())
            self._bell.hush()
            self._heed_watches()
            going = self._heed_requests()
            for log in self._logs:
                if log.awake:
                    self._turn(log)
        if self._notify is not None:
            self._notify.close()
        self._bell.close()

    def _patience_ms(self) -> float | None:
        waits = [TICK_S if log.watchable else FALLBACK_TICK_S for log in self._logs if log.awake]
        return 1000 * min(waits) if waits else None

    def _heed_watches(self) -> None:
        fired = set(self._notify.fired()) if self._notify is not None else set[int]()
        for log in self._logs:
            if log.watch in fired or OVERFLOW in fired:
                log.watch, log.awake = None, not log.earlier

    def _heed_requests(self) -> bool:
        while not self._requests.empty():
            request = self._requests.get()
            for log in self._logs:
                if not log.earlier:
                    self._let_go(log)
            for path in request.paths:
                with contextlib.suppress(OSError):
                    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | _HARMLESS, 0o600))
                self._logs.append(_Log(path, watchable=self._notify is not None))
                self._look(self._logs[-1])
            request.done()
            if request.last:
                return False
        return True

    def _turn(self, log: _Log) -> None:
        """Look after a log; when it has not grown arm the watch and look once more."""
        if not self._able or (not self._look(log) and self._arm(log) and not self._look(log)):
            log.awake = False

    def _arm(self, log: _Log) -> bool:
        if self._notify is not None and log.watchable and log.watch is None:
            try:
                log.watch = self._notify.arm(log.path)
            except OSError:  # no more watches for this user, or a file system that has none
                log.watchable = False
        return log.watchable

    def _look(self, log: _Log) -> bool:
        """Do what the log needs; tell whether it has grown."""
        grown = self._measure(log)
        want = room_plan.wanted(max(log.ahead - log.size, 0), grown, log.granted)
        if want and self._able:
            self._reserve(log, want)
        return grown != 0

    def _measure(self, log: _Log) -> int:
        """Return by how much the log has grown, and hold it within its limit."""
        try:
            size = os.stat(log.path).st_size
        except OSError:
            return 0  # gone
        if size < log.size:  # somebody has cut it
            log.ahead, log.start, log.end, log.mark = size, 0, 0, None
        grown, log.size = size - log.size if log.size >= 0 else 0, size
        hole = room_plan.over_limit(log.seen(), self._limit)
        if hole is not None and self._able:
            self._punch(log, hole, AT_LIMIT)
        return grown

    def _reserve(self, log: _Log, want: int) -> None:
        start = max(log.ahead, log.size)
        need = log.size + want - start
        with self._unable(), _opened(log.path) as fd:
            gained = 0
            if room_plan.short(need, blocks.free(self._directory)):
                gained = self._make_room(need, dire=False)
            had = self._try_reserve(fd, start, need, gained)
            if start + had - log.size < room_plan.LOW and had < need:
                gained = self._make_room(need - had, dire=True)
                if not had:
                    self._say_full()
                had += self._try_reserve(fd, start + had, need - had, gained)
            log.ahead = start + had
            log.granted = MOST if had == need else log.ahead - log.size

    def _try_reserve(self, fd: int, start: int, need: int, gained: int) -> int:
        """Return how many bytes were reserved: of what should be there others may have taken a part meanwhile."""
        for size in room_plan.tries(room_plan.affordable(need, blocks.free(self._directory), gained)):
            try:
                blocks.reserve(fd, start, size)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
            else:
                return size
        return 0

    def _make_room(self, need: int, *, dire: bool) -> int:
        """Return how many bytes were given up."""
        gained = 0
        while gained < need:
            hole = room_plan.for_room([log.seen() for log in self._logs], dire=dire)
            if hole is None or not self._punch(self._of(hole.path), hole, DISK_FULL):
                break
            self._say_full()
            gained += hole.gain
        return gained

    def _of(self, path: str) -> _Log:
        return next(log for log in self._logs if log.path == path)

    def _punch(self, log: _Log, hole: Hole, why: str) -> bool:
        with self._unable(), _opened(log.path) as fd:
            blocks.punch(fd, hole.start, hole.end)
            at, text = room_plan.mark(hole.start, hole.end, why, log.mark if hole.start == log.start else None)
            log.start, log.end, log.mark = hole.start, hole.end, at
            with contextlib.suppress(OSError):  # a file system that writes nothing in place may lack room for it
                os.pwrite(fd, text, at)
            return True
        return False

    def _let_go(self, log: _Log) -> None:
        """Its rank is dead."""
        self._measure(log)
        if log.ahead > log.size:
            with self._unable(), _opened(log.path) as fd:
                blocks.give_back(fd)
        if log.watch is not None and self._notify is not None:
            self._notify.disarm(log.watch)
        log.watch, log.awake, log.earlier = None, False, True

    @contextlib.contextmanager
    def _unable(self) -> Generator[None, None, None]:
        """Do without what the file system has not; a file that is gone or cannot be opened needs nothing."""
        try:
            yield
        except OSError as error:
            if error.errno in _UNABLE and self._able:
                self._able = False
                if self._limit:
                    self._call(
                        self._line,
                        f"logs grow beyond --log-limit: the file system of {self._directory} cannot give back the "
                        "middle of a file; give another --log-dir",
                    )

    def _say_full(self) -> None:
        if not self.full:
            self.full = True
            self._call(
                self._line,
                f"the disk under {self._directory} is full: ranks go on, and what they write takes the place of the "
                "middle of this run's logs, where a mark stands; make room there",
            )


@contextlib.contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    """Open a log; without O_APPEND, which pwrite would follow."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | _HARMLESS)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            yield fd
        else:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    finally:
        os.close(fd)
