"""One page of memory that keeper and agent share: what the keeper must know when the agent can no longer speak.

The agent writes it, the keeper reads it when its timer fires or the agent has ended: no messages, no polling. Each
value is one aligned store, so a reader never sees half of it, even when the writer was killed in the middle.
"""

from __future__ import annotations

import mmap

from .linux import NEVER

MAX_SPARED = 64
_BYTES = 1 << 16  # the kernel gives only what is written to
_LEASE = 1  # index of a 64-bit word; number 0 is the deadline
_GUARDIAN, _LAST, _MINDER, _COUNT, _SPARED = 4, 5, 6, 7, 8  # indices of 32-bit words, behind those two
_LENGTH = _SPARED + MAX_SPARED
_LETTER = 4 * (_LENGTH + 1)  # a byte's index: the letter takes the rest


class Page:
    """The fence's deadline, who guards and who minds the store, the children that the agent leads itself, its lease."""

    __slots__ = ("_bytes", "_leases", "_times", "_words")

    def __init__(self) -> None:
        whole = memoryview(mmap.mmap(-1, _BYTES))
        self._bytes = whole
        self._times = whole.cast("d")
        self._leases = whole.cast("q")
        self._words = whole.cast("i")
        self._times[0] = NEVER

    @property
    def deadline_s(self) -> float:
        return self._times[0]

    @property
    def guardian(self) -> int:
        """The present guardian's pid, 0 before the first and while a dead one is being cleared away."""
        return self._words[_GUARDIAN]

    @property
    def last_guardian(self) -> int:
        """The pid that the newest guardian has or had: its cgroup is named after it."""
        return self._words[_LAST]

    @property
    def minder(self) -> int:
        """The pid of the minder that this agent has started, 0 for none: it may outlive the agent."""
        return self._words[_MINDER]

    @property
    def spared(self) -> tuple[int, ...]:
        return tuple(self._words[_SPARED : _SPARED + self._words[_COUNT]])

    @property
    def lease(self) -> int:
        """The lease that the agent has and has not given up, 0 for none."""
        return self._leases[_LEASE]

    @property
    def letter(self) -> bytes:
        """What whoever gives that lease up in the agent's place must know; nothing where nobody need."""
        return bytes(self._bytes[_LETTER : _LETTER + self._words[_LENGTH]])

    def set(self, deadline_s: float) -> None:
        """Move the second fence to ``deadline_s``."""
        self._times[0] = deadline_s

    def set_guardian(self, pid: int) -> None:
        """Name the present guardian, 0 for none."""
        self._words[_GUARDIAN] = pid
        self._words[_LAST] = pid or self._words[_LAST]

    def set_minder(self, pid: int) -> None:
        """Name the minder, 0 once it has been reaped."""
        self._words[_MINDER] = pid

    def set_lease(self, inc: int) -> None:
        """Name the lease, 0 once it was given up."""
        self._leases[_LEASE] = inc

    def set_letter(self, letter: bytes) -> None:
        """Leave the letter, once; one that is too long is not kept, and the lease will run out by itself."""
        if len(letter) <= _BYTES - _LETTER:
            self._bytes[_LETTER : _LETTER + len(letter)] = letter
            self._words[_LENGTH] = len(letter)  # last: half a letter is none

    def set_spared(self, pids: tuple[int, ...]) -> None:
        """Name the agent's own children that lead a session (a hook): the fence is not for them."""
        if len(pids) > MAX_SPARED:
            raise ValueError(f"{len(pids)} children in sessions of their own, the page holds {MAX_SPARED}")
        self._words[_COUNT] = 0
        for at, pid in enumerate(pids, _SPARED):
            self._words[at] = pid
        self._words[_COUNT] = len(pids)
