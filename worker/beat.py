"""How a rank says which step it has done: one store into memory that it shares with its agent.

For training scripts: ``remuster.heartbeat(step)`` after each step. It costs about a microsecond, asks nobody and waits
for nobody; outside remuster it does nothing. From it the launcher knows how far the job really was when it failed,
when a rank that had just been started did its first step, and when ranks do none any more (docs/hangs.md).
"""

from __future__ import annotations

import os
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

ADDRESS = "REMUSTER_BEATS"  # "<file>:<slot>"
SLOT_BYTES = 64  # a cache line: ranks do not disturb each other
STACK_BYTES = 128 << 10  # behind the slots, for each rank's stack: more than 100 frames of the longest names
COUNT, STEP = 0, 1  # indices of 64-bit integers in a slot
FIRST, LAST = 2, 3  # … and of 64-bit floats: seconds of CLOCK_BOOTTIME
LONGEST = 4  # … and seconds between two beats, while the machine was awake
SLEPT = 5  # … and seconds that it slept between beats
ASLEEP_S = 1.0  # less than this between two clocks is no sleep: they are read one after the other
MOST = (1 << 63) - 1


def page_name(round: str) -> str:
    """Return what the shared memory of a round is called: an address of an earlier round finds nothing."""
    return f"remuster-beats-{round}"


def page_bytes(slots: int) -> int:
    """Return how large the memory of ``slots`` ranks is; what nobody writes takes none."""
    return slots * (SLOT_BYTES + STACK_BYTES)


def stack_at(slots: int, slot: int) -> int:
    """Return where a rank's stack begins."""
    return slots * SLOT_BYTES + slot * STACK_BYTES


class Heart:
    """One rank's slot."""

    __slots__ = ("_awake", "_floats", "_integers")

    def __init__(self, slot: memoryview) -> None:
        self._integers = slot.cast("q")
        self._floats = slot.cast("d")
        self._awake = 0.0

    def beat(self, step: int) -> None:
        """Say that ``step`` is done. The count comes last: until it rises, a reader takes what was there before."""
        now, awake = clock_gettime(CLOCK_BOOTTIME), monotonic()
        integers, floats = self._integers, self._floats
        if not integers[COUNT]:
            floats[FIRST] = now
        else:
            pause = awake - self._awake
            if pause > floats[LONGEST]:  # noqa: PLR1730 - max() costs a call
                floats[LONGEST] = pause
            if now - floats[LAST] - pause > ASLEEP_S:
                floats[SLEPT] += now - floats[LAST] - pause
        self._awake = awake
        integers[STEP] = step
        floats[LAST] = now
        integers[COUNT] += 1


def find_heart() -> Heart | None:
    """Open this rank's slot; None outside remuster, or where a container hides the launcher's memory from its ranks."""
    import mmap  # no script pays for it that says no steps

    path, _, slot = os.environ.get(ADDRESS, "").rpartition(":")
    if not path or not slot.isdecimal():
        return None
    try:
        if os.readlink(path).partition(" ")[0] != f"/memfd:{page_name(os.environ.get('REMUSTER_ROUND', ''))}":
            return None  # its agent has gone, and the number means another file now
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        page = memoryview(mmap.mmap(fd, 0))
    except (OSError, ValueError):
        os.close(fd)
        return None
    slots, own = len(page) // page_bytes(1), int(slot)
    if own >= slots:
        os.close(fd)
        return None
    _answer_for_stacks(fd, stack_at(slots, own))
    return Heart(page[own * SLOT_BYTES : (own + 1) * SLOT_BYTES])


def _answer_for_stacks(fd: int, at: int) -> None:
    """Have Python write this process's stack into ``fd`` at ``at`` when the launcher asks; see ``stack_signal``."""
    from .stack_signal import answer

    os.lseek(fd, at, os.SEEK_SET)
    if not answer(fd):
        os.close(fd)


class _Own:
    """This process's heart, looked for once."""

    heart: Heart | None = None
    sought = False


def heartbeat(step: int) -> None:
    """Say that this rank has done ``step`` steps in all: the number that a checkpoint of this moment would have.

    In a long save or evaluation say the same step again now and then: a rank that says nothing for much longer than
    ever before is taken for one that hangs.
    """
    if not 0 <= step <= MOST:
        raise ValueError(f"step {step} is not a number of steps; give how many are done")
    if not _Own.sought:
        _Own.heart, _Own.sought = find_heart(), True
    if _Own.heart is not None:
        _Own.heart.beat(step)
