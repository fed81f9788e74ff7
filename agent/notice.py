"""The page on which a node's ranks see that they are to stop: one byte for all, and one for each rank that looks at it.

A file in memory of the agent's, whose path is in every rank's environment (``REMUSTER_NOTICE``); ``worker/notice.py``
maps it. The agent uses read and write alone: a rank that cuts the file short hurts nobody but its like.
"""

from __future__ import annotations

import os

from ..worker.notice import BY_ALL, PAGE, STAYS
from .linux import sealed_memory

_ASKED, _RANKS = 0, 1  # index of the common byte; of local rank 0's


class NoticePage:
    """One node's page, for the agent's life."""

    def __init__(self, slots: int, by_all: bool = False) -> None:
        """Make the page; ``by_all``: a scheduler sends SIGTERM to every process, the ranks too."""
        self._slots = slots
        self._by_all = BY_ALL if by_all else ""
        self._fd = sealed_memory(PAGE, _RANKS + slots)

    def address(self, local_rank: int) -> str:
        """Return what a rank is told: the path, and the index of its own byte."""
        return f"/proc/{os.getpid()}/fd/{self._fd}:{_RANKS + local_rank}{self._by_all}"

    def clear(self) -> None:
        """Begin a round: nobody is asked to stop, and nobody has looked. The ranks of the one before are dead."""
        os.pwrite(self._fd, bytes(_RANKS + self._slots), 0)

    def ask(self) -> None:
        """Tell all ranks to stop."""
        os.pwrite(self._fd, b"\1", _ASKED)

    def looking(self) -> tuple[int, ...]:
        """Return the local ranks that have looked at the page, so that they will see it."""
        return tuple(i for i, byte in enumerate(os.pread(self._fd, self._slots, _RANKS)) if byte)

    def staying(self) -> tuple[int, ...]:
        """Return the local ranks that SIGTERM would not end, as they look at the page instead."""
        return tuple(i for i, byte in enumerate(os.pread(self._fd, self._slots, _RANKS)) if byte == STAYS)
