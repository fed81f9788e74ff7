"""Delivers occurrences to ``--on-event``: a command that reads JSON, or a URL that is posted to. An adapter.

Beside the job and never in its way: each delivery is a child of its own, bounded in time, and whatever goes wrong is
said once and harms nothing. A URL may hold a token: it goes to the child on stdin and is never shown. Loaded by
``ledger.py`` when there is something to tell.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

from .bounded_child import ChildTrouble, ask_child
from .occurrences import Occurrence

LIMIT_S = 10.0
DEATH_S = 6.0  # beyond that, for a child that was killed
MOST = 8  # that wait: where a listener is slower than a job in a storm, it hears of the newest
POSTER = Path(__file__).with_name("poster.py")


class Herald:
    """Tells one listener, one thing after the other. ``spare`` is given the pid of the child that runs, for sweeps."""

    def __init__(
        self,
        listener: tuple[str, ...],
        run_id: str,
        spare: Callable[[tuple[int, ...]], None],
        say: Callable[[str], None],
        limit_s: float = LIMIT_S,
    ) -> None:
        self._limit_s = limit_s
        self._listener = listener
        self._run_id = run_id
        self._spare = spare
        self._say = say
        self._url = "://" in listener[0] and len(listener) == 1
        self._waiting: deque[dict[str, object]] = deque()
        self._work: asyncio.Task[None] | None = None
        self._warned = False

    def tell(self, occurrence: Occurrence) -> None:
        """Deliver after what was told before; returns at once."""
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._waiting.append(occurrence.as_json(self._run_id, at))
        if len(self._waiting) > MOST:
            self._warn(f"is slow: {self._waiting.popleft()['event']} is not told")
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._deliver_all())

    async def settle(self) -> None:
        """Wait, within the limit of one delivery, for all that is under way or waits."""
        if self._work is not None:
            _, late = await asyncio.wait({self._work}, timeout=self._limit_s + DEATH_S)
            for task in late:
                task.cancel()
                self._warned = False
                self._warn(f"was too slow: {1 + len(self._waiting)} events are not told")

    async def _deliver_all(self) -> None:
        while self._waiting:
            await self._deliver(self._waiting.popleft())

    async def _deliver(self, body: dict[str, object]) -> None:
        question = json.dumps(body).encode() + b"\n"
        argv = self._listener
        if self._url:
            argv = (sys.executable, "-I", str(POSTER), str(self._limit_s))
            question = json.dumps({"url": self._listener[0], "body": body}).encode()
        try:
            reply = await ask_child(argv, question, timeout_s=self._limit_s, spare=self._spare, say=self._hear)
        except ChildTrouble as error:
            self._warn(str(error))
            return
        if reply.status:
            how = f"exit code {reply.status}" if reply.status > 0 else f"signal {-reply.status}"
            self._warn(f"ended with {how}: {reply.last_words or 'it said nothing on stderr'}")

    def _hear(self, line: str) -> None:
        if not self._url:
            self._say(f"--on-event says: {line}")

    def _warn(self, what: str) -> None:
        """Say once that a delivery failed; the job goes on all the same."""
        if not self._warned:
            self._warned = True
            self._say(f"--on-event {shown(self._listener)} {what}; the job goes on, and later failures are not said")


def shown(listener: tuple[str, ...]) -> str:
    """Return the listener for a person: of a URL only its host, for the rest may be secret."""
    if "://" in listener[0] and len(listener) == 1:
        parts = urlsplit(listener[0])
        return f"{parts.scheme}://{parts.hostname}"
    return repr(listener[0])
