"""A save that goes on while training does: at most one of a ``TrainState``, on a process group of its own.

A thread that shared the group with training would take part in its collectives in another order on each rank, and both
would wait for ever. What went wrong in a flight is told to all ranks when they next meet (``settle``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..errors import PublishError
from ..identity import Identity
from ..ranks import Ranks, ranks

_log = logging.getLogger("remuster.checkpoint")


class Flight:
    """The thread that saves, if there is one, and the process group that it has to itself."""

    def __init__(self) -> None:
        self.group: Any = None
        self._thread: threading.Thread | None = None
        self._problem = ""

    def line(self, who: Identity) -> Ranks:
        """Return the line between the savers of all ranks; the first time a gloo group is made, by all together."""
        dist: Any = import_module("torch.distributed")
        if not (dist.is_available() and dist.is_initialized()):
            return ranks(None, None, who)
        if self.group is None:
            self.group = dist.new_group(backend="gloo")
        return line_of(self.group)

    def start(self, act: Callable[[], None]) -> None:
        """Run ``act`` in a thread. The process does not end before it, unless it is killed."""

        def run() -> None:
            try:
                act()
            except Exception as e:
                self._problem = str(e) or type(e).__name__
                _log.error("a save in the background failed: %s", self._problem)

        self._thread = threading.Thread(target=run, name="remuster-save")
        self._thread.start()

    def settle(self, who: Identity) -> None:
        """Wait for the save in flight; raise ``PublishError`` on all ranks if it went wrong on any. Collective."""
        if self._thread is None:
            return
        self._thread.join()
        problem, self._thread, self._problem = self._problem, None, ""
        try:
            problems = self.line(who).gather(problem)
        except Exception as e:
            raise PublishError(problem or f"the ranks could not agree how the last save ended: {e}") from e
        if any(problems):
            raise PublishError(problem or next(filter(None, problems)))


def line_of(group: Any) -> Ranks:
    """Return this rank's line to the others through a process group of torch's."""
    dist: Any = import_module("torch.distributed")

    def gather(text: str) -> list[str]:
        texts: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(texts, text, group=group)
        return texts

    return Ranks(dist.get_rank(group), gather)
