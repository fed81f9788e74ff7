"""Typed facts about the node around a rank's end: its GPUs, its kernel, its memory, its links, its silence.

Like those of ``evidence.py``: pure values, bounded when they are made, times in seconds on the node's own
CLOCK_BOOTTIME since its ranks of the round were started (negative: before). ``agent/sources.py`` gathers them.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import Annotated, NamedTuple

Large = Annotated[int, "large"]  # a number that may go beyond any pid, status or second


SILENCE = "silence"  # the sign of an alarm over ranks that do nothing
REENTRY = "re-entry"  # … over ranks that do not go on from their checkpoint as they should


class Sighting(NamedTuple):
    """A line that a living rank wrote, and what it is a sign of; the first of its kind in the round."""

    rank: int
    at_s: float
    sign: str  # the signature's name
    line: str


class Early(NamedTuple):
    """The node ended the round before any of its ranks had ended; ``rank`` is -1 when none in particular gave cause."""

    rank: int
    at_s: float
    why: str  # a sentence
    sign: str = ""  # the signature of the line that gave cause, SILENCE, or ''


class KernelLine(NamedTuple):
    """A line of the node's kernel log that means something; without its prefix."""

    at_s: float
    text: str


class Gpu(NamedTuple):
    """A GPU that has shown something since the attempt began; ``ranks`` are those that use it, when that is known."""

    uuid: str
    bus: str  # 0000:3b:00.0
    number: int  # as the driver counts them
    ranks: tuple[int, ...] = ()
    xids: tuple[tuple[int, float], ...] = ()  # (code, at_s)
    counters: tuple[tuple[str, Large], ...] = ()  # what has risen, by how much: ecc_uncorrected, row_remap_failed, …
    recovery: int = 0  # the driver's own recovery action (NVML field 230): 0 none, 1 reset, 2 reboot, 3, 4 drain
    lost: bool = False


class OomKill(NamedTuple):
    """The kernel killed ``kills`` processes for want of memory within a cgroup that holds ranks."""

    scope: str  # 'rank 3', or 'node': of the whole job here
    kills: int
    limit: Large = 0  # bytes; 0 = not known
    peak: Large = 0


class FabricPort(NamedTuple):
    """A port of an RDMA device that is down, or whose error counters have risen."""

    device: str
    port: int
    state: str  # ACTIVE, DOWN, …
    counters: tuple[tuple[str, Large], ...] = ()


class Silence(NamedTuple):
    """How long a living rank had not gone on when the round was to end; said from half of what it is allowed on.

    ``by`` is 'heartbeat' or 'output'. In synchronous training one rank that hangs makes all of them silent.
    """

    rank: int
    step: Large  # the last it said; -1 when it says none
    silent_s: float
    allowed_s: float
    by: str


class Slow(NamedTuple):
    """A straggler: its steps took ``ratio`` times the median of all ranks of its node. Named, never killed."""

    rank: int
    ratio: float


class Reentry(NamedTuple):
    """How far this node's ranks had gone on from a checkpoint when their round ended, where that was not proven.

    ``said``: the most steps that one of them has said since, of the first ones; -1 where its ranks say none at all.
    """

    agree: int  # steps
    said: int
    refuted: bool = False
    why: str = ""  # they are refuted, or prove nothing; begins with 'rank N', where one is the cause


class Stack(NamedTuple):
    """Where a rank's main thread was before it was killed; the innermost frame first, as 'file:line function'."""

    rank: int
    by: str  # py-spy, faulthandler; proc: its state and where it is in the kernel, no more is known
    frames: tuple[str, ...]


class Position(NamedTuple):
    """Where a rank stood in the collectives of a group, as torch's flight recorder left it."""

    rank: int
    group: str
    enqueued: Large  # the last sequence number that it enqueued, and completed; -1 = none
    completed: Large
    operation: str = ""  # of the first that is not completed


class SchedulerWord(NamedTuple):
    """What the scheduler said about this node or step."""

    text: str


class HookWord(NamedTuple):
    """How the resume hook ended."""

    text: str


class Bundle(NamedTuple):
    """Where the node keeps what there is to be known of the failure: a directory."""

    path: str


class Lacked(NamedTuple):
    """A source of evidence that was not there, or fell silent, and why."""

    source: str
    why: str


NO_DRIVER = Lacked("nvml", "this node has no NVIDIA driver")  # no news for people, where nothing asks for a GPU


Observed = (
    Sighting
    | Early
    | KernelLine
    | Gpu
    | OomKill
    | FabricPort
    | Silence
    | Slow
    | Reentry
    | Stack
    | Position
    | SchedulerWord
    | HookWord
    | Bundle
    | Lacked
)
