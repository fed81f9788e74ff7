"""Typed facts about a failure, as one node saw them. Pure values; ``wire.py`` turns them into bytes.

Times are seconds on the node's own CLOCK_BOOTTIME since its ranks of the round were started: they order facts of one
node and never those of two. Across nodes the order is the store's revision at which a node's evidence arrived.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple

from .observed import Large, Observed


class ErrorFile(NamedTuple):
    """What torchelastic's ``@record`` left: the exception's text and its traceback, bounded when read."""

    message: str
    traceback: str = ""
    timestamp: int = 0  # the writer's wall clock: shown, never compared across nodes
    path: str = ""  # where it lies on its node: shown


class RankExit(NamedTuple):
    """One rank ended. ``status`` as subprocess gives it: 0.., or -N for signal N."""

    rank: int
    local_rank: int
    pid: int
    status: int
    at_s: float
    stopping: bool = False  # it ended after this node had begun to stop it: its status says nothing by itself
    error: ErrorFile | None = None
    tail: tuple[str, ...] = ()  # last lines of its stderr (of stdout when stderr is empty), bounded
    wall: int = 0  # the node's wall clock when it ended: shown, never compared across nodes
    logs: str = ""  # the directory of its files on its node: shown


class StartError(NamedTuple):
    """A rank could not be started: exec failed with ``errno`` (127 and 126 of a shell)."""

    rank: int
    local_rank: int
    errno: int
    program: str


class Fenced(NamedTuple):
    """The guardian killed this node's ranks because the lease might have been gone."""

    at_s: float


class GuardianDied(NamedTuple):
    """The parent of the ranks was killed; its ranks died with it."""

    at_s: float


class AgentDied(NamedTuple):
    """The agent ended without having given up its lease: its keeper's word. ``status`` as of a rank's end."""

    status: int


class Left(NamedTuple):
    """The node was asked to leave by ``signal`` (a number; 0 = by command), or left by itself, and ``why``."""

    signal: int
    why: str = ""


class Told(NamedTuple):
    """The store had acknowledged this node's word that the round is over."""

    at_s: float


class Pace(NamedTuple):
    """What this node's ranks said of their steps, when they say them: ``ranks`` did."""

    ranks: int
    step: Large  # steps that all of them had done
    first_s: float  # from their start until the last of them had done its first


class Beat(NamedTuple):
    """What one rank last said of its steps, in seconds of CLOCK_BOOTTIME. No fact: ``hang.py`` judges by it."""

    step: int
    first_s: float
    last_s: float
    times: int = 1  # how often it has said something
    longest_s: float = 0.0  # the longest that it has said nothing between two beats, as it measured itself
    slept_s: float = 0.0  # for how long the machine slept between beats


class Entry(NamedTuple):
    """A step that a rank has said, and what it gave beside it; None = it gave none."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None


class Said(NamedTuple):
    """The first and the last steps that one rank has said in a round, each up to 32, oldest first. No fact either."""

    first: tuple[Entry, ...] = ()
    last: tuple[Entry, ...] = ()


class Fault(NamedTuple):
    """The agent could not do its part (no port, no log directory, …), in words, and the class that fits, if any."""

    what: str
    cls: str = ""


Fact = RankExit | StartError | Fenced | GuardianDied | AgentDied | Left | Told | Pace | Fault | Observed


class NodeEvidence(NamedTuple):
    """All facts of one node about one round; ``order`` is the store's revision at which its first word arrived."""

    node: str
    facts: tuple[Fact, ...]
    order: int = 0


class RoundEvidence(NamedTuple):
    """Everything known about how a round ended: input of the verdict."""

    round: int
    nodes: tuple[NodeEvidence, ...]
    members: tuple[tuple[str, int], ...]  # (node, slots) in rank order
    lost: tuple[str, ...] = ()  # members whose lease is gone, without a word of their own
    all_started: bool = True  # every member had reported its ranks started
    admitted: str = ""  # the node for which the leader ended it, so that it could join
