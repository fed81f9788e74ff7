"""Copies of the lines that were asked for, of all tee'd ranks of one round, in one file for each stream.

The ranks' own files are followed by a thread of this round's own, which also writes the copies: it may hang on a
disk, or read late, and neither a rank nor the console waits for it. Used by ``outputs.py``, loaded only when there
are filters.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from .console import STALL_S
from .follow import STDERR, STDOUT, Bell, Drain, Follow, Follower, Request, Source, Stop, settled
from .inotify import OneShot
from .showing import View
from .sieve import Sieve
from .spec import Output


class Duplicates:
    """The copies of one round. For the loop; ``say`` may be called from any thread."""

    def __init__(self, attempt: Path, output: Output, say: Callable[[str], None]) -> None:
        asked = (
            (STDOUT, "filtered_stdout.log", output.stdout_filters),
            (STDERR, "filtered_stderr.log", output.stderr_filters),
        )
        self._copies = {stream: _Copy(attempt / name, texts, say) for stream, name, texts in asked if texts}
        self._bell = Bell()
        self._follower = Follower(self._bell, self._copies, OneShot)
        self._finished: asyncio.Future[bool] | None = None

    def follow(self, views: Iterable[View]) -> None:
        """Copy from these files, from their beginning on."""
        self._ask(Follow(tuple(Source(v.path, v.stream, v.label) for v in views if v.stream in self._copies)))

    async def finish(self) -> None:
        """Copy all that is in the files now, and end; a file system that stands still is given up."""
        if self._finished is None:
            loop = asyncio.get_running_loop()
            self._finished = loop.create_future()
            drain = Drain(loop, self._finished)
            self._ask(drain)
            await settled(drain, lambda: self._follower.moved, STALL_S)
            self._ask(Stop())

    def _ask(self, request: Request) -> None:
        self._follower.requests.put(request)
        self._bell.ring()


class _Copy:
    """One file, written by the follower's thread; what goes wrong is said once, and ends it."""

    def __init__(self, path: Path, texts: Iterable[str], say: Callable[[str], None]) -> None:
        self._path = path
        self._sieve = Sieve(tuple(text.encode(errors="surrogateescape") for text in texts))
        self._say = say
        self._fd = -1
        self._broken = False

    def add(self, key: str, label: bytes, live: bool = False) -> None:
        self._sieve.add(key, label)
        self._write(b"")  # the file is there from the start on

    def feed(self, key: str, data: bytes) -> None:
        self._write(self._sieve.feed(key, data))  # of a line nothing is copied before it is whole

    def silent(self, key: str) -> None:
        pass

    def end(self, key: str) -> None:
        self._write(self._sieve.end(key))
        if self._sieve.empty() and self._fd >= 0:
            fd, self._fd = self._fd, -1
            with self._telling():
                os.close(fd)  # a full quota of a file server may be said only here

    def say(self, data: bytes) -> None:
        self._say(data.decode(errors="replace"))

    def skip(self, count: int) -> None:
        pass

    def lose(self, count: int) -> None:
        self._write(b"[remuster: %d bytes were not searched: the log has given them up]\n" % count)

    def has_room(self, limit: int = 0) -> bool:
        return True  # who feeds it writes it

    def stall_over(self) -> bool:
        return False

    def _write(self, data: bytes) -> None:
        with self._telling():
            if self._fd < 0 and not self._broken:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            while data and not self._broken:
                data = data[os.write(self._fd, data) :]

    @contextlib.contextmanager
    def _telling(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            self._broken = True
            self._say(
                f"remuster: {self._path} cannot be written: {error.strerror}; the ranks' own files have every line\n"
            )
