"""The thread that puts into the ranks' files what came through their terminals, and the gap where it could not.

A disk that is slow makes a rank slow, as it does without a terminal. One that is full or hangs costs bytes of the log
and no more: what waits is bounded, what does not fit is counted, and a mark stands in the file where bytes are missing.
Fed by ``terminals.py`` only; a rank that has no terminal writes its file itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

WAITING = 8 << 20  # bytes, of all files
PATIENCE_S = 2.0  # a disk that has taken nothing for so long hangs, until it takes something


class LogWriter:
    """Appends to files, from a thread of its own. ``warn`` is called once, by that thread or by who puts."""

    def __init__(self, warn: Callable[[str], None], waiting: int = WAITING, patience_s: float = PATIENCE_S) -> None:
        self._warn = warn
        self._limit = waiting
        self._patience_s = patience_s
        self._hangs = False
        self._queue: deque[tuple[Callable[[], None], int]] = deque()  # what to do, and the bytes that it holds
        self._size = 0
        self._no_room: dict[str, int] = {}  # not queued, by path; under the lock
        self._missing: dict[str, int] = {}  # not written; the thread's
        self._files: dict[str, int] = {}  # the thread's
        self._warned = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="remuster-logs", daemon=True).start()

    def put(self, path: str, data: bytes) -> None:
        """Append ``data`` to the file, which is made when it is absent. Waits for a slow disk, for a hung one once."""

        def fits() -> bool:
            return self._size + len(data) <= self._limit

        with self._changed:
            if not fits() and not self._hangs:
                self._hangs = not self._changed.wait_for(fits, self._patience_s)
            full = not fits()
            if full:
                self._no_room[path] = self._no_room.get(path, 0) + len(data)
            else:
                if lost := self._no_room.pop(path, 0):
                    self._queue.append((partial(self._lose, path, lost), 0))
                self._queue.append((partial(self._write, path, data), len(data)))
                self._size += len(data)
                self._changed.notify()
        if full:
            self._say(f"{path} takes no more for now: its file system hangs")

    def settle(self, done: Callable[[], None], *, let_go: bool) -> None:
        """Have ``done`` called once all that was put before is written; ``let_go`` closes the files, gaps marked."""

        def settled() -> None:
            if let_go:
                self._let_go()
            done()

        with self._changed:
            for path, lost in self._no_room.items():
                self._queue.append((partial(self._lose, path, lost), 0))
            self._no_room.clear()
            self._queue.append((settled, 0))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                work, size = self._queue.popleft()
            work()
            with self._changed:
                self._size -= size
                self._hangs = False
                self._changed.notify_all()

    def _write(self, path: str, data: bytes) -> None:
        mark = _mark(self._missing[path]) if path in self._missing else b""
        left = memoryview(mark + data)
        try:
            fd = self._open(path)
            while left:
                left = left[os.write(fd, left) :]
        except OSError as error:
            if len(left) <= len(data):  # the mark is written
                self._missing.pop(path, None)
            self._lose(path, min(len(left), len(data)))
            self._say(f"{path} takes no more: {error.strerror}; the ranks go on, and a mark stands where bytes miss")
        else:
            self._missing.pop(path, None)

    def _open(self, path: str) -> int:
        if path not in self._files:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC
            self._files[path] = os.open(path, flags, 0o600)
        return self._files[path]

    def _lose(self, path: str, count: int) -> None:
        self._missing[path] = self._missing.get(path, 0) + count

    def _let_go(self) -> None:
        for path in [path for path, count in self._missing.items() if count]:
            self._write(path, b"")  # there may be room again
        self._missing.clear()
        for fd in self._files.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._files.clear()

    def _say(self, sentence: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(sentence)


def _mark(count: int) -> bytes:
    return b"\n[remuster: %d bytes are missing here: the log could not take them]\n" % count
