"""Slurm is told which nodes a requeued job is not to be given again, as ``exclusion.py`` decides.

``prepare`` asks before the requeue, and ``exclude`` tells right after: a running job's list cannot be changed, that of
one which is being requeued can, already while its tasks are being ended (measured with Slurm 22.05). Who calls
``scontrol`` is the caller's affair. Loaded for a requeue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from .exclusion import SHOWN, Bad, Exclusion, NotSaid, allocation, exclusion, partition_of

if TYPE_CHECKING:
    from .scontrol import Unknown

TRIES, AGAIN_S = 4, 0.2  # well within the 30 s from SIGTERM to SIGKILL

Scontrol = Callable[[Sequence[str]], Awaitable["str | Unknown"]]
"""Runs `scontrol` with these words; returns what it prints, or why there is nothing."""


async def prepare(job_id: str, bad: Sequence[Bad], scontrol: Scontrol) -> Exclusion:
    """Ask Slurm about the job and decide; a sentence says why nothing can be done."""
    if not bad:
        return Exclusion((), "")
    try:
        job = await _asked(scontrol, "-o", "show", "job", job_id)
        partition = await _asked(scontrol, "-o", "show", "partition", partition_of(job_id, job))
        return exclusion(bad, allocation(job_id, job, partition))
    except NotSaid as error:
        names = ", ".join(one.node for one in bad[:SHOWN])
        return Exclusion((), f"{names} cannot be excluded from the requeue: {error}")


async def exclude(job_id: str, chosen: Exclusion, scontrol: Scontrol, say: Callable[[str], None]) -> None:
    """Tell Slurm, right after the requeue, and say what came of it. Never raises.

    The requeue has every process of the step ended, one after the other, and the first ``scontrol`` is one of them.
    """
    words = ("update", f"JobId={job_id}", f"ExcNodeList={','.join(chosen.nodes)}")
    for n in range(TRIES if chosen.nodes else 0):
        said = await scontrol(words)
        if isinstance(said, str):
            break
        if n == TRIES - 1:
            chosen = Exclusion((), f"{chosen.sentence}: not done, {said.why}")
        await asyncio.sleep(AGAIN_S)
    if chosen.sentence:
        say(chosen.sentence)


async def _asked(scontrol: Scontrol, *words: str) -> str:
    said = await scontrol(words)
    if not isinstance(said, str):
        raise NotSaid(said.why)
    return said
