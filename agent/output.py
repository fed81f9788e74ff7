"""The ranks' output on the console: the files that they write, followed and shown as torchrun shows it.

Ranks write their files themselves, so the files are byte-exact and no rank is ever slowed down or blocked from here.
The agent's loop calls this, and neither reads a file nor writes to the console itself: one thread reads
(``follow.py``), one writes each console stream (``console.py``), and a hung log directory or a stopped reader is no
concern of the loop's. Nothing wakes up while nothing is written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable

from .console import STALL_S, Lane
from .follow import STDERR, STDOUT, Bell, Drain, Follow, Follower, GiveUp, Request, Source, Stop, settled
from .inotify import OneShot

__all__ = ["STDERR", "STDOUT", "Console", "Source"]


class Console:
    """The two console streams and the files that are followed. Every method may be called from the loop."""

    def __init__(
        self,
        out: int = STDOUT,
        err: int = STDERR,
        stall_s: float = STALL_S,
        watching: Callable[[], OneShot] = OneShot,
    ) -> None:
        self._stall_s = stall_s
        self._bell = Bell()
        one = Lane(out, "remuster-stdout", self._bell.ring, stall_s)
        # the two ends of 2>&1 share one cursor, so they share one queue
        two = one if _same(out, err) else Lane(err, "remuster-stderr", self._bell.ring, stall_s)
        self._lanes = {STDOUT: one, STDERR: two}
        self._follower = Follower(self._bell, self._lanes, watching)

    def follow(self, sources: Iterable[Source]) -> None:
        """Show what is written to these files from their beginning on; they are made when they are absent."""
        self._ask(Follow(tuple(sources)))

    def say(self, text: str, stream: int = STDERR) -> None:
        """Write the agent's own words, on lines of their own. From any thread; never blocks."""
        self._lanes[stream].say(text.encode(errors="backslashreplace"))

    def drain(self) -> Coroutine[object, object, bool]:
        """Show all that is in the files now and stop following them; True when the last byte has been written.

        Asked for by the call itself: files that are followed after it are not meant, however late it is awaited.

        Call it when the ranks are reaped, before the report is printed; and once more after ``say``, before the
        process exits. A slow console is waited for; False, with a notice on the console, when neither a file nor the
        console has moved for the stall time.
        """
        loop = asyncio.get_running_loop()
        drain = Drain(loop, loop.create_future())
        self._ask(drain)
        return self._drained(drain)

    async def _drained(self, drain: Drain) -> bool:
        if not await settled(drain, self._moved, self._stall_s):
            self._ask(GiveUp(drain))
            await asyncio.wait({drain.done}, timeout=self._stall_s)  # in vain when the thread hangs on a file
        return drain.done.done() and drain.done.result()

    def close(self) -> None:
        """Stop following, let the threads write what is queued and end. Never blocks."""
        self._ask(Stop())
        for lane in set(self._lanes.values()):
            lane.close()

    def _moved(self) -> int:
        return self._follower.moved + sum(lane.written for lane in set(self._lanes.values()))

    def _ask(self, request: Request) -> None:
        self._follower.requests.put(request)
        self._bell.ring()


def _same(out: int, err: int) -> bool:
    try:
        a, b = os.fstat(out), os.fstat(err)
    except OSError:
        return False
    return (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev)
