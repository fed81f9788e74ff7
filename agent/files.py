"""File operations of the agent, on a thread of their own, so that a hung disk or NFS server stops nothing else.

The agent's loop renews the lease and therefore touches no file. It hands every file operation to a ``FileThread`` and
waits with a bound; an operation that outlives its bound is abandoned together with its thread, and a fresh thread does
what is queued behind it. Threads are daemons: one that never comes back does not keep the process alive. Called by the
loop, the resume hook, the attempt records and the event log. Not for ranks' output (``output.py`` has its own thread).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar, cast

T = TypeVar("T")

TIMEOUT_S = 10.0  # NFS answers in milliseconds or, its server gone, in minutes: nothing useful lies between
MAX_HUNG = 4  # threads given up and still stuck; past that the disk is plainly gone, and stacks are not free
MAX_QUEUED = 10_000  # operations that nobody waits for, queued behind a slow one


class FilesHung(TimeoutError):
    """Too many file operations hang already; this one was not tried."""

    def __init__(self) -> None:
        super().__init__(f"{MAX_HUNG} file operations hang already, so no other is tried; is a file server away?")


@dataclass(slots=True)
class _Job:
    call: Callable[[], object]
    future: Future[object]
    timeout_s: float
    begun: float = 0.0
    given_up: bool = False

    def overdue(self, now: float) -> bool:
        return self.given_up or now - self.begun >= self.timeout_s


class _Thread:
    """One thread and its queue; ``current`` is the job that it is on."""

    def __init__(self, name: str, jobs: deque[_Job]) -> None:
        self.jobs = jobs
        self.current: _Job | None = None
        self.retired = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            with self.changed:
                self.current = None
                while not self.jobs and not self.retired:
                    self.changed.wait()
                if not self.jobs:
                    return
                job = self.jobs.popleft()
                if not job.future.set_running_or_notify_cancel():
                    continue
                job.begun = time.monotonic()
                self.current = job
            try:
                job.future.set_result(job.call())
            except BaseException as error:  # whatever it is, it belongs to the one who asked, not to this thread
                job.future.set_exception(error)
            del job  # or its result would live until the next one


class FileThread:
    """The agent's one way to files. Operations run in the order in which they were given, one at a time."""

    def __init__(self, name: str = "files") -> None:
        self.name = name
        self._hung: list[_Thread] = []
        self._thread: _Thread | None = None
        self._lock = threading.Lock()

    async def run(self, fn: Callable[..., T], *args: object, timeout_s: float = TIMEOUT_S) -> T:
        """Return ``fn(*args)`` or raise what it raised; TimeoutError after ``timeout_s``, counted from the call.

        After a timeout or a cancellation an operation that had begun may still take effect later.
        """
        job = self._submit(lambda: fn(*args), timeout_s)
        answer = asyncio.wrap_future(job.future)
        try:
            await asyncio.wait({answer}, timeout=timeout_s)
            if answer.done():
                return cast(T, answer.result())
        finally:
            answer.cancel()  # takes it out of the queue, if it is still there
        job.given_up = True
        self._relieve(time.monotonic())
        what = getattr(fn, "__name__", "operation")
        raise TimeoutError(f"{what}: no answer from the file system within {timeout_s:g} s")

    def post(self, fn: Callable[..., object], *args: object, timeout_s: float = TIMEOUT_S) -> bool:
        """Queue ``fn(*args)`` from any thread and do not wait; False when it was dropped. Its errors go nowhere."""
        thread = self._thread
        if thread is not None and len(thread.jobs) >= MAX_QUEUED:
            self._relieve(time.monotonic())
            return False
        try:
            self._submit(lambda: fn(*args), timeout_s)
        except FilesHung:
            return False
        return True

    def close(self) -> None:
        """Let the thread end once its queue is empty. Never blocks."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                with thread.changed:
                    thread.retired = True
                    thread.changed.notify()

    def _submit(self, call: Callable[[], object], timeout_s: float) -> _Job:
        self._relieve(time.monotonic())
        job = _Job(call, Future(), timeout_s)
        with self._lock:
            if self._thread is None:
                self._hung = [t for t in self._hung if t.thread.is_alive()]
                if len(self._hung) >= MAX_HUNG:
                    raise FilesHung
                self._thread = _Thread(self.name, deque())
            with self._thread.changed:
                self._thread.jobs.append(job)
                self._thread.changed.notify()
        return job

    def _relieve(self, now: float) -> None:
        """Give up the thread if its operation is overdue, and let a fresh one do the rest."""
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            with thread.changed:
                if thread.current is None or not thread.current.overdue(now):
                    return
                waiting, thread.jobs = thread.jobs, deque()
                thread.retired = True
            self._hung = [*(t for t in self._hung if t.thread.is_alive()), thread]
            self._thread = _Thread(self.name, waiting) if len(self._hung) < MAX_HUNG else None
        if self._thread is None:
            for job in waiting:
                if job.future.set_running_or_notify_cancel():
                    job.future.set_exception(FilesHung())
