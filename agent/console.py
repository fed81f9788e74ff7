"""One console stream and the thread that writes it, so that a reader who stopped reading stops nobody.

An inherited descriptor is shared with other processes, so it is never set non-blocking: a thread writes it and may
hang. What waits for it is bounded. Called by ``output.py`` for ranks' output, and through it for the agent's own words.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

from .splice import Splicer

FULL = 1 << 20  # bytes that wait for the console; past that ranks' output waits in its files
CHUNK = 16 * 1024  # one write: small, so that a slow reader is seen to move
STALL_S = 5.0  # a reader that has taken nothing for so long has stopped; a merely slow one gets everything, late


class Lane:
    """A console stream: its splicer, its queue, its thread. ``on_room`` is called by the thread when asked for."""

    def __init__(self, fd: int, name: str, on_room: Callable[[], None], stall_s: float = STALL_S) -> None:
        self.fd = fd
        self.stall_s = stall_s
        self.written = 0
        self._splicer = Splicer()
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._unsaid = 0
        self._wake_below = -1
        self._on_room = on_room
        self._stall_over = False
        self._broken = False
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def add(self, key: str, label: bytes, live: bool = False) -> None:
        """Expect output of ``key``."""
        with self._changed:
            self._splicer.add(key, label, live)

    def feed(self, key: str, data: bytes) -> float | None:
        """Queue what ``key`` wrote; return after how long a silence ``silent`` is to be called, if it is."""
        now_s = time.monotonic()
        with self._changed:
            self._put(self._splicer.feed(key, data, now_s))
            return self._splicer.patience_s(key, now_s)

    def silent(self, key: str) -> None:
        """Queue the part of a line that ``key`` left."""
        with self._changed:
            self._put(self._splicer.silent(key, time.monotonic()))

    def end(self, key: str) -> None:
        """Queue all that is left of ``key``; nothing more comes from it."""
        with self._changed:
            self._put(self._splicer.end(key))

    def say(self, data: bytes) -> None:
        """Queue the agent's own words; from any thread, never blocks. Dropped, and counted, when the console hangs."""
        with self._changed:
            if self._size > 2 * FULL:
                self._unsaid += len(data)
                return
            if self._unsaid:
                self._put(self._splicer.say(_notice(self._unsaid)))
                self._unsaid = 0
            self._put(self._splicer.say(data))

    def skip(self, count: int) -> None:
        """Say that ``count`` bytes of ranks' output are not shown."""
        with self._changed:
            self._put(self._splicer.say(_notice(count)))

    def lose(self, count: int) -> None:
        """Say that ``count`` bytes of ranks' output are gone from their log before they could be shown."""
        with self._changed:
            self._put(self._splicer.say(b"[remuster: %d bytes skipped: the log has given them up]\n" % count))

    def has_room(self, limit: int = FULL) -> bool:
        """Do fewer than ``limit`` bytes wait? If not, ``on_room`` is called once half of them are written."""
        with self._changed:
            if self._size < limit:
                return True
            self._wake_below = limit // 2
            return False

    def stall_over(self) -> bool:
        """Did the reader stop for long and go on since this was last asked?"""
        with self._changed:
            over, self._stall_over = self._stall_over, False
            return over

    def close(self) -> None:
        """Let the thread end once everything is written. Never blocks."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _put(self, data: bytes) -> None:
        if data and not self._broken:
            self._queue.append(data)
            self._size += len(data)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    if self._closed:
                        return
                    self._changed.wait()
                data = memoryview(self._queue.popleft())
            for start in range(0, len(data), CHUNK):
                self._write(data[start : start + CHUNK])

    def _write(self, data: memoryview) -> None:
        begun = time.monotonic()
        count = len(data)
        while data and not self._broken:
            data = data[self._write_some(data) :]
        with self._changed:
            self.written += count
            self._size -= count
            self._stall_over |= time.monotonic() - begun > self.stall_s
            wake = self._size <= self._wake_below
            if wake:
                self._wake_below = -1
        if wake:
            self._on_room()

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self.fd, data)
        except BlockingIOError:  # somebody else who shares it has set it non-blocking
            poll = select.poll()
            poll.register(self.fd, select.POLLOUT)
            poll.poll()
        except OSError:  # nobody reads it any more, or it was closed from the start: the files have it all
            self._broken = True
        return 0


def _notice(count: int) -> bytes:
    return b"[remuster: %d bytes skipped on the console; the log file has them]\n" % count
