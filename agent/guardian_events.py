"""What the guardian, or its link, says to the agent's loop: what became of ranks, of the guardian, of the keeper.

Times are seconds of ``linux.boottime()``, taken where the thing happened. Produced by ``guardian_link.py``.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from typing import NamedTuple


class GuardianReady(NamedTuple):
    """The guardian holds the node's lock; ``cgroup`` tells whether its ranks get a cgroup of their own."""

    pid: int
    cgroup: bool


class RanksStarted(NamedTuple):
    """Ranks of ``round`` were forked: (local rank, pid) each. Whether their programs run, StartFailed would say."""

    round: int
    pids: tuple[tuple[int, int], ...]
    at_s: float


class StartRefused(NamedTuple):
    """The guardian starts no (further) rank of ``round``."""

    round: int
    reason: str


class StartFailed(NamedTuple):
    """One rank could not be started: ``errno`` at ``step`` (fork, start, stdin, stdout, stderr, cwd, exec) on ``what``.

    Its RankExited follows (126 or 127, as a shell says), except after ``fork``.
    """

    round: int
    local_rank: int
    errno: int
    step: str
    what: str


class RankExited(NamedTuple):
    """One rank ended and was reaped. ``status`` as subprocess gives it: 0.., or -N for signal N."""

    round: int
    local_rank: int
    pid: int
    status: int
    at_s: float


class RanksEmpty(NamedTuple):
    """The answer to a kill: nothing of any round is alive or queued, or only ``survivors`` (they sit in the kernel)."""

    round: int
    survivors: tuple[int, ...]
    at_s: float


class NodeFenced(NamedTuple):
    """The deadline passed and all was killed: no rank starts until this is acknowledged and the lease renewed."""

    inc: int
    round: int
    survivors: tuple[int, ...]
    at_s: float


class GuardianGone(NamedTuple):
    """The guardian was killed, and all below it is proved dead but ``survivors``. Another one is being started."""

    round: int
    survivors: tuple[int, ...]
    at_s: float


class KeeperGone(NamedTuple):
    """The keeper was killed: nobody waits for this agent any more, it must stop its ranks and leave."""

    at_s: float


GuardianEvent = (
    GuardianReady
    | RanksStarted
    | StartRefused
    | StartFailed
    | RankExited
    | RanksEmpty
    | NodeFenced
    | GuardianGone
    | KeeperGone
)
