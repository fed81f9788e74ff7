"""How a rank says which step it has done: one store into memory that it shares with its agent.

For training scripts: ``remuster.heartbeat(step)`` after each step. It costs about a microsecond, asks nobody and waits
for nobody; outside remuster it does nothing. From it the launcher knows how far the job really was when it failed,
when a rank that had just been started did its first step, and when ranks do none any more (docs/hangs.md). The first
and the last steps stay in the memory with their loss, gradient norm and learning rate: by them it is judged whether
ranks go on from a checkpoint as they should (docs/checkpoints.md).
"""

from __future__ import annotations

import os
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

TYPE_CHECKING = False  # as in the package's face: no script pays for typing
if TYPE_CHECKING:
    from typing import SupportsFloat

ADDRESS = "REMUSTER_BEATS"  # "<file>:<slot>"
SLOT_BYTES = 64  # a cache line: ranks do not disturb each other
STACK_BYTES = 128 << 10  # behind the slots, for each rank's stack: more than 100 frames of the longest names
COUNT, STEP = 0, 1  # indices of 64-bit integers in a slot
FIRST, LAST = 2, 3  # … and of 64-bit floats: seconds of CLOCK_BOOTTIME
LONGEST = 4  # … and seconds between two beats, while the machine was awake
ENTRIES = 5  # an integer: how many entries were made, one for each step that differs from the one said before
OPENING, LATEST = 32, 32  # entries that stay: the first ones, and the last ones, in a ring
ENTRY_WORDS = 4  # of an entry: step, loss, gradient norm, learning rate
ENTRIES_BYTES = (OPENING + LATEST) * ENTRY_WORDS * 8
UNSAID = 0x7FF8_7265_6D75_7374  # in place of a float that was not given: bits of a NaN that no computation gives
SLEPT = 6  # a float: seconds that the machine slept between beats
ASLEEP_S = 1.0  # less than this between two clocks is no sleep: they are read one after the other
MOST = (1 << 63) - 1


def page_name(round: str) -> str:
    """Return what the shared memory of a round is called: an address of an earlier round finds nothing."""
    return f"remuster-beats-{round}"


def page_bytes(slots: int) -> int:
    """Return how large the memory of ``slots`` ranks is; what nobody writes takes none."""
    return slots * (SLOT_BYTES + ENTRIES_BYTES + STACK_BYTES)


def entries_at(slots: int, slot: int) -> int:
    """Return where a rank's entries begin."""
    return slots * SLOT_BYTES + slot * ENTRIES_BYTES


def stack_at(slots: int, slot: int) -> int:
    """Return where a rank's stack begins."""
    return slots * (SLOT_BYTES + ENTRIES_BYTES) + slot * STACK_BYTES


def place_of(entry: int) -> int:
    """Return where among a rank's entries the one of that number stands, or stood."""
    return entry if entry < OPENING else OPENING + entry % LATEST


class Heart:
    """One rank's slot and entries in the memory of ``slots`` ranks."""

    __slots__ = ("_at", "_awake", "_floats", "_integers", "_steps", "_values")

    def __init__(self, page: memoryview, slots: int, slot: int) -> None:
        own = page[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
        entries = page[entries_at(slots, slot) :][:ENTRIES_BYTES]
        self._integers, self._floats = own.cast("q"), own.cast("d")
        self._steps, self._values = entries.cast("q"), entries.cast("d")
        self._awake = 0.0
        self._at = 0

    def beat(
        self, step: int, loss: float | None = None, grad_norm: float | None = None, lr: float | None = None
    ) -> None:
        """Say that ``step`` is done. The counts come last: until they rise, a reader takes what was there before."""
        now, awake = clock_gettime(CLOCK_BOOTTIME), monotonic()
        integers, floats = self._integers, self._floats
        count, entry = integers[COUNT], -1
        if not count:
            floats[FIRST] = now
        else:
            pause = awake - self._awake
            if pause > floats[LONGEST]:  # noqa: PLR1730 - max() costs a call
                floats[LONGEST] = pause
            if now - floats[LAST] - pause > ASLEEP_S:
                floats[SLEPT] += now - floats[LAST] - pause
        self._awake = awake
        steps, values = self._steps, self._values
        if not count or integers[STEP] != step:
            entry = integers[ENTRIES]
            self._at = at = place_of(entry) * ENTRY_WORDS
            steps[at] = step
            steps[at + 1] = steps[at + 2] = steps[at + 3] = UNSAID
        at = self._at
        if loss is not None:
            values[at + 1] = loss
        if grad_norm is not None:
            values[at + 2] = grad_norm
        if lr is not None:
            values[at + 3] = lr
        integers[STEP] = step
        floats[LAST] = now
        integers[COUNT] = count + 1
        if entry >= 0:
            integers[ENTRIES] = entry + 1


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
    return Heart(page, slots, own)


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


def heartbeat(
    step: int,
    *,
    loss: SupportsFloat | None = None,
    grad_norm: SupportsFloat | None = None,
    lr: SupportsFloat | None = None,
) -> None:
    """Say that this rank has done ``step`` steps in all: the number that a checkpoint of this moment would have.

    ``loss``, ``grad_norm`` and ``lr`` are those of this step, numbers or whatever ``float()`` takes: a tensor of one
    element, for which a GPU is waited for. Give them where your script has them as numbers anyway. In a long save or
    evaluation say the same step again now and then: a rank that says nothing for much longer than ever before is taken
    for one that hangs. ValueError and TypeError for what are no such numbers.
    """
    if not 0 <= step <= MOST:
        raise ValueError(f"step {step} is not a number of steps; give how many are done")
    loss = loss if loss is None or type(loss) is float else _number("loss", loss)
    grad_norm = grad_norm if grad_norm is None or type(grad_norm) is float else _number("grad_norm", grad_norm)
    lr = lr if lr is None or type(lr) is float else _number("lr", lr)
    if not _Own.sought:
        _Own.heart, _Own.sought = find_heart(), True
    if _Own.heart is not None:
        _Own.heart.beat(step, loss, grad_norm, lr)


def _number(name: str, value: SupportsFloat) -> float:
    """Return a value as a float. What a tensor's device has to say of an earlier error passes as it is."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{name} is {type(value).__name__} {value!r:.80}, not a number: give one, or nothing"
        ) from error
