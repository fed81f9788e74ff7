"""Sees that Slurm has given this node or its whole job to somebody else, and has the node leave by itself.

Slurm ends the tasks of a node whose slurmd is dead on paper only: with --no-kill it takes the node from the job, else
it cancels the job, and what runs there runs on, beside whatever comes to the node next (Slurm 22.05, measured). The
agent asks for itself, since the node list of its environment is never corrected. Loaded once ranks run, in a task of
Slurm's alone. That Slurm does not answer, or has forgotten the job, says nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

from ..health.evidence import Fact
from . import node_words as words
from .linux import boottime
from .scontrol import Spare, Unknown, run_scontrol
from .slurm_job import SlurmJob, nodes_of, parse_job
from .sources import Begun
from .spec import SlurmStep

LEASES = 2  # of time between two questions: another node would have been given up twice
AGAIN_S = 2.0  # then the same is asked once more, before anything is done
OVER = frozenset((
    *("COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"),
    *("BOOT_FAIL", "DEADLINE", "REVOKED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"),
))  # fmt: skip


def gone(job: SlurmJob, step: SlurmStep, node: str) -> str:
    """Return why ``node`` is not the job's any more, or all of it is over, '' where that is not said."""
    if job.restarts > step.restarts:
        return f"Slurm has requeued job {step.job_id}"
    if job.state in OVER:
        return f"Slurm says {job.state} of job {step.job_id}"
    nodes = nodes_of(job)
    return f"Slurm has taken {node} from job {step.job_id}" if node and nodes and node not in nodes else ""


def pause_s(lease_ttl_s: float, nodes: int) -> float:
    """Return the time between two questions of one node: of all nodes together comes at most one in a second."""
    return max(LEASES * lease_ttl_s, float(nodes))


class SlurmWatch:
    """The source. ``node`` is this node's name for Slurm, '' where it is not known whether it is in the job's list."""

    name = "slurm"

    def __init__(
        self, step: SlurmStep, node: str, lease_ttl_s: float, post: Callable[[words.Event], None], spare: Spare
    ) -> None:
        self._step = step
        self._node = node
        self._lease_ttl_s = lease_ttl_s
        self._post = post
        self._spare = spare
        self._watching: asyncio.Task[None] | None = None
        self._nodes = 1  # of the job

    def begin(self, begun: Begun) -> None:
        """See ``Source``. The watch goes on between rounds."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def inspect(self) -> Coroutine[object, object, None]:
        """See ``Source``: ranks have nothing to do with it."""
        return asyncio.sleep(0)

    async def facts(self) -> tuple[Fact, ...]:
        """See ``Source``: why this node leaves is told by its leaving."""
        return ()

    async def close(self) -> None:
        """See ``Source``."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        before, wait_s = "", random.random() * self._lease_ttl_s  # the nodes of a job were started all at once
        while True:
            await asyncio.sleep(wait_s)
            why = await self._ask()
            if why and before:
                self._post(words.LeaveAsked(boottime(), 0, why))
                return
            before, wait_s = why, AGAIN_S if why else pause_s(self._lease_ttl_s, self._nodes)

    async def _ask(self) -> str:
        said = await run_scontrol(("-o", "show", "job", self._step.job_id), self._spare)
        job = None if isinstance(said, Unknown) else parse_job(self._step.job_id, said)
        if job is None:
            return ""
        self._nodes = max(1, len(nodes_of(job)))
        return gone(job, self._step, self._node)
