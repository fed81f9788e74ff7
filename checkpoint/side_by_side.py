"""Several reads at once, until one of them has found something wrong. An adapter: threads.

Checksums release the GIL, so a few threads keep a disk and several cores busy. They are daemons, not an executor: a
read that hangs on a dead mount must not hold the agent's exit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .digest import OVERDUE
from .errors import GaveUp

THREADS = 4  # enough to keep a disk and two cores busy

Job = Callable[[Callable[[], bool]], str]
"""Reads something and says what is wrong with it, or "". It raises GaveUp when what it is given says so."""


def first_of(jobs: Sequence[Job], give_up: Callable[[], bool]) -> str:
    """Return what one of the jobs found wrong (the first in order, of those that came to an end), or ""."""
    left = list(enumerate(jobs))[::-1]
    wrong: dict[int, str] = {}
    failed: list[Exception] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                number, job = left.pop()
            except IndexError:
                return
            try:
                found = job(lambda: stop.is_set() or give_up())
            except GaveUp:
                stop.set()
                return
            except Exception as error:  # handed to the caller, whose thread this is not
                failed.append(error)
                stop.set()
                return
            if found:
                wrong[number] = found
                stop.set()

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, len(jobs)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if wrong:
        return wrong[min(wrong)]
    if failed:
        raise failed[0]
    if stop.is_set() or give_up():
        raise GaveUp(OVERDUE)
    return ""
