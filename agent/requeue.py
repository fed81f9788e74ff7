"""`scontrol requeue`, the very last act of the agent that led a launch which ended as it should be gone on with.

Asked for by --requeue, after records are written and all other nodes have left: Slurm then ends the batch script and
all its steps. Called by ``main.py``. Where no batch script is left to end the job, that is ``bereft.py``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..health import classes
from ..health.verdict import NOTICE
from ..rendezvous.errors import StoreError
from ..rendezvous.keys import Keys
from ..rendezvous.store import Store, prefix_end
from .exclude import exclude, prepare
from .exclusion import Bad
from .node_limit import noticed
from .node_state import NodeState
from .scontrol import Spare, Unknown, run_scontrol
from .slurm_job import parse_job
from .spec import SlurmStep

OTHERS_S = 10.0  # for the other nodes to leave before Slurm ends them
FAMILIES = ("node", "hardware", "network", "storage", "hang", "scheduler")  # README's: those that end with 75
MOST_SHORT = 5  # requeues after which a loss in a launch that was short is no longer answered by another one
SHORT_S = 600.0
LOOK_S = 2.0  # for a look at the job before that
STARTED = ("RUNNING", "CONFIGURING", "SUSPENDED")
PENDING = "Job is pending execution"  # to a second scontrol, after Slurm has ended the first with all of the step


class Ended(NamedTuple):
    """How a launch ended, as far as a requeue depends on it."""

    code: int  # of the command
    noticed: bool
    cls: str = ""  # of the outcome in the job record; '' = this agent left before there was one
    restarts: int = 0
    lasted_s: float = SHORT_S


def due(ended: Ended) -> bool:
    """Tell whether the job is to be requeued: after a notice always, after a loss unless that is all it does. Pure."""
    if ended.code != 75:
        return False
    if ended.noticed or ended.cls == NOTICE:
        return True
    family = classes.find(ended.cls).family if ended.cls else ""
    return family in FAMILIES and (ended.lasted_s >= SHORT_S or ended.restarts < MOST_SHORT)


def ended(code: int, state: NodeState, step: SlurmStep, lasted_s: float) -> Ended:
    """Return how the launch of the agent with ``state`` ended."""
    outcome = state.job.job.outcome if state.job is not None else None
    return Ended(code, noticed(state), outcome.cls if outcome is not None else "", step.restarts, lasted_s)


async def others_left(store: Store, keys: Keys) -> None:
    """Wait, within a bound, until no node of the run is there any more: its own lease is revoked. Never raises."""
    with contextlib.suppress(StoreError, TimeoutError, asyncio.TimeoutError):
        await asyncio.wait_for(_others_left(store, keys), OTHERS_S)


async def _others_left(store: Store, keys: Keys) -> None:
    end = prefix_end(keys.nodes)
    found = await store.range(keys.nodes, end)
    there = {kv.key for kv in found.items}
    if not there:
        return
    async with contextlib.aclosing(store.watch(keys.nodes, end, found.revision + 1)) as batches:
        async for batch in batches:
            for event in batch.events:
                there = there - {event.key} if event.kv is None else there | {event.key}
            if not there:
                return


async def requeue(step: SlurmStep, bad: Sequence[Bad], spare: Spare, say: Callable[[str], None]) -> bool:
    """Requeue the job and return whether that was done; a line says so, or what a person can do. Never raises.

    Nodes that are blamed are excluded from what Slurm gives it then. An agent that was left over on a node of an
    earlier launch must not end the one that runs by now.
    """

    async def scontrol(words: Sequence[str]) -> str | Unknown:
        return await run_scontrol(words, spare)

    now = await run_scontrol(("-o", "show", "job", step.job_id), spare, within_s=LOOK_S)
    job = parse_job(step.job_id, now) if isinstance(now, str) else None
    if job is not None and job.restarts > step.restarts and job.state in STARTED:
        say(f"job {step.job_id} is not requeued: Slurm has done that, and its next launch has begun")
        return True
    chosen = await prepare(step.job_id, bad, scontrol)
    say(f"job {step.job_id} is requeued: scontrol requeue {step.job_id}")
    done = await run_scontrol(("requeue", step.job_id), spare)
    if isinstance(done, Unknown) and PENDING not in done.why:
        say(f"job {step.job_id} could not be requeued: {done.why}; on a login node: scontrol requeue {step.job_id}")
        return False
    await exclude(step.job_id, chosen, scontrol, say)
    return True
