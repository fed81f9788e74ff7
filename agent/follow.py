"""The thread that follows the ranks' files: asleep while nothing is written, in ticks while data flows.

It is spoken to with requests and a bell, and speaks back through the console's lanes and a future. It may hang on a
file of a dead file server; nothing but the console's copy of the output then waits for it. Used by ``output.py`` only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .inotify import OVERFLOW, OneShot

TICK_S = 0.02  # while data flows: a reader may well look 50 times a second
FALLBACK_TICK_S = 0.1  # where inotify is not to be had
BLOCK = 64 * 1024
TURN = 1 << 20  # bytes of one file before it is the next one's turn
KEEP = 64 * 1024  # of what a stopped reader has missed, this much is still shown

STDOUT, STDERR = 1, 2


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a rank writes, the console stream it belongs to, and what goes in front of each of its lines."""

    path: str
    stream: int = STDOUT
    label: bytes = b""
    live: bool = False  # its rank is alone on a terminal: every byte is shown at once


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow these too."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Read to the present ends, stop following, and set ``done`` to True once all is written."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[bool]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave out what that drain has not shown yet, and set its ``done`` to False."""

    drain: Drain


@dataclass(frozen=True, slots=True)
class Stop:
    """End the thread."""


Request = Follow | Drain | GiveUp | Stop


class Outlet(Protocol):
    """Where the output of files goes, by key: a console's lane, or a copy in another file. Called by the thread."""

    def add(self, key: str, label: bytes, live: bool = ..., /) -> None:
        """Expect output of ``key``, with ``label`` in front of its lines; ``live``: all of it at once, as it comes."""

    def feed(self, key: str, data: bytes, /) -> float | None:
        """Take what ``key`` wrote; return after how long a silence ``silent`` is to be called, if it is."""
        ...

    def silent(self, key: str, /) -> None:
        """Bring out the part of a line that ``key`` left."""

    def end(self, key: str, /) -> None:
        """Bring out all that is left of ``key``."""

    def say(self, data: bytes, /) -> None:
        """Tell the agent's own words."""

    def skip(self, count: int, /) -> None:
        """Tell that ``count`` bytes are left out."""

    def lose(self, count: int, /) -> None:
        """Tell that ``count`` bytes are gone from the file before they could be read."""

    def has_room(self, limit: int = ..., /) -> bool:
        """May more be fed, do fewer than ``limit`` bytes wait?"""
        ...

    def stall_over(self) -> bool:
        """Has a long stand-still ended?"""
        ...


class Bell:
    """Wakes the follower, from any thread; an eventfd that is never written to once it is closed."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()

    def ring(self) -> None:
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        with self._lock:
            os.close(self.fd)
            self.fd = -1


@dataclass(slots=True)
class _File:
    path: str
    fd: int
    lane: Outlet
    watchable: bool
    watch: int | None = None
    awake: bool = True  # data may be there
    behind: bool = False  # data is there
    blocked: bool = False  # the console is full
    show_s: float | None = None  # when a part of a line that waits for its rest is to be shown without it
    at: int = 0
    end: int | None = None  # while draining: where to stop

    def size(self) -> int:
        try:
            return os.fstat(self.fd).st_size
        except OSError:  # gone with its file server: what was read is all there is
            return self.at

    def done(self) -> bool:
        return self.end is not None and self.at >= self.end


class Follower:
    """The thread. Its state is its own; ``moved``, the bytes read so far, may be looked at by others."""

    def __init__(
        self, bell: Bell, lanes: Mapping[int, Outlet], watching: Callable[[], OneShot], tick_s: float = TICK_S
    ) -> None:
        self.moved = 0
        self._tick_s, self._fallback_s = tick_s, max(tick_s, FALLBACK_TICK_S)
        self.requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._bell = bell
        self._lanes = lanes
        self._watching = watching
        self._files: list[_File] = []
        self._drain: Drain | None = None
        self._notify: OneShot | None = None
        threading.Thread(target=self._run, name="remuster-output", daemon=True).start()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._bell.fd, select.POLLIN)
        with contextlib.suppress(OSError):
            self._notify = self._watching()
            poll.register(self._notify.fd, select.POLLIN)
        going = True
        while going:
            poll.poll(self._patience_ms())
            self._bell.hush()
            self._heed_watches()
            going = self._heed_requests()
            for file in self._files:
                self._turn(file)
            self._finish_drain()
        self._release(self._files)
        if self._notify is not None:
            self._notify.close()
        self._bell.close()

    def _patience_ms(self) -> float | None:
        """Return how long to sleep; None, until woken, when nothing is due by itself."""
        waits: list[float] = []
        now = time.monotonic()
        for file in self._files:
            if file.awake and not file.blocked:
                waits.append(0 if file.behind else self._tick_s if file.watchable else self._fallback_s)
            if file.show_s is not None and not file.blocked:
                waits.append(max(0.0, file.show_s - now))
        return 1000 * min(waits) if waits else None

    def _heed_watches(self) -> None:
        if self._notify is None:
            return
        fired = set(self._notify.fired())
        for file in self._files:
            if file.watch in fired or OVERFLOW in fired:
                file.awake, file.watch = True, None

    def _heed_requests(self) -> bool:
        while not self.requests.empty():
            match self.requests.get():
                case Follow(sources):
                    for source in sources:
                        self._open(source)
                case Drain() as drain:
                    self._drain = drain
                    for file in self._files:
                        file.end, file.awake = file.size(), True
                case GiveUp(drain):
                    self._give_up(drain)
                case Stop():
                    return False
        return True

    def _open(self, source: Source) -> None:
        lane = self._lanes[source.stream]
        try:
            fd = os.open(source.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            lane.say(_trouble(source.path, error))
            return
        lane.add(source.path, source.label, source.live)
        self._files.append(_File(source.path, fd, lane, watchable=self._notify is not None))

    def _turn(self, file: _File) -> None:
        """Read what there is, within bounds; when there is nothing, arm the watch and look once more."""
        file.blocked = False
        if file.awake:
            if file.lane.stall_over():
                self._skip_missed(file.lane)
            if not self._read(file) and not file.blocked and self._arm(file) and not self._read(file):
                file.awake = file.blocked
        at_end = not (file.blocked or file.behind)
        if file.show_s is not None and at_end and time.monotonic() >= file.show_s:
            file.lane.silent(file.path)
            file.show_s = None

    def _read(self, file: _File) -> bool:
        """Hand on at most a turn's worth; False when there was nothing, or no room for it."""
        start, patience_s = file.at, None
        file.behind = False
        while not file.done():
            if not file.lane.has_room():
                file.blocked = True
                break
            try:
                data = os.read(file.fd, BLOCK)
            except OSError as error:
                file.lane.say(_trouble(file.path, error))
                file.end = file.at
                break
            if not data and self._cut_short(file):
                continue
            if not data:
                break
            if b"\0" in data:
                data = self._before_hole(file, data)
            file.at += len(data)
            self.moved += len(data)
            if data:
                patience_s = file.lane.feed(file.path, data)
            if file.at - start >= TURN:
                file.behind = True
                break
        if file.at == start:
            return False
        file.show_s = None if patience_s is None else time.monotonic() + patience_s
        return True

    def _cut_short(self, file: _File) -> bool:
        """Begin again with a file that somebody has truncated."""
        if file.end is not None or file.size() >= file.at:
            return False
        file.at = os.lseek(file.fd, 0, os.SEEK_SET)
        return True

    def _before_hole(self, file: _File, data: bytes) -> bytes:
        """Return what a rank has written of ``data``, and pass over the hole of a log that has made room."""
        hole = os.lseek(file.fd, file.at, os.SEEK_HOLE)
        if hole >= file.at + len(data):  # a rank may write zeros
            os.lseek(file.fd, file.at + len(data), os.SEEK_SET)
            return data
        data = data[: hole - file.at]
        try:
            rest = os.lseek(file.fd, hole, os.SEEK_DATA)
        except OSError:  # there is none
            rest = os.lseek(file.fd, 0, os.SEEK_END)
        rest = os.lseek(file.fd, rest if file.end is None else min(rest, file.end), os.SEEK_SET)
        if data:
            file.lane.feed(file.path, data)
        file.lane.lose(rest - hole)
        file.at, self.moved = rest, self.moved + len(data)
        return b""

    def _arm(self, file: _File) -> bool:
        if self._notify is not None and file.watchable and file.watch is None:
            try:
                file.watch = self._notify.arm(file.path)
            except OSError:  # no more watches for this user, or a file system that has none
                file.watchable = False
        return file.watchable

    def _skip_missed(self, lane: Outlet) -> None:
        """Its reader had stopped and goes on: leave out what it missed, but for the last of it."""
        skipped = 0
        for file in self._files:
            size = file.size() if file.end is None else file.end
            if file.lane is lane and size - file.at > KEEP:
                start = size - KEEP
                start += os.pread(file.fd, KEEP, start).find(b"\n") + 1
                skipped += start - file.at
                file.at = os.lseek(file.fd, start, os.SEEK_SET)
        if skipped:
            lane.skip(skipped)

    def _finish_drain(self) -> None:
        if self._drain is None or any(file.end is not None and not file.done() for file in self._files):
            return
        self._release([file for file in self._files if file.end is not None])
        if all(lane.has_room(1) for lane in self._lanes.values()):  # all is written
            _answer(self._drain, complete=True)
            self._drain = None

    def _give_up(self, drain: Drain) -> None:
        if self._drain is not drain:
            return
        for lane in set(self._lanes.values()):
            left = sum(file.end - file.at for file in self._files if file.lane is lane and file.end is not None)
            if left:
                lane.skip(left)
        self._release([file for file in self._files if file.end is not None])
        _answer(drain, complete=False)
        self._drain = None

    def _release(self, files: list[_File]) -> None:
        self._files = [file for file in self._files if file not in files]
        for file in files:
            file.lane.end(file.path)
            if file.watch is not None and self._notify is not None:
                self._notify.disarm(file.watch)
            os.close(file.fd)


async def settled(drain: Drain, moved: Callable[[], int], stall_s: float) -> bool:
    """Wait for a drain while anything moves, at most ``stall_s`` longer; tell whether it is done."""
    seen = -1
    while not drain.done.done() and seen != (seen := moved()):
        await asyncio.wait({drain.done}, timeout=stall_s)
    return drain.done.done()


def _trouble(path: str, error: OSError) -> bytes:
    return f"[remuster: {path} cannot be shown: {error.strerror}]\n".encode(errors="backslashreplace")


def _answer(drain: Drain, *, complete: bool) -> None:
    def tell() -> None:
        if not drain.done.done():
            drain.done.set_result(complete)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        drain.loop.call_soon_threadsafe(tell)
