"""Ends a Slurm job that nobody else would end: the node that ran its batch script was lost, and srun with it.

With `--no-kill` Slurm 22.05 keeps such a job running on its other nodes, and holds them to its time limit even when
nothing runs there any more (measured). Called by ``main.py`` on few of the step's nodes, when the whole run is over or
its store has gone with that node. Without Slurm's programs (in a container) the job stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from .bounded_child import ChildTrouble, ask_child
from .scontrol import ASK_S, PLAIN, Spare, Unknown, ask_job, run_scontrol
from .slurm_job import SlurmJob, nodes_of
from .spec import SlurmStep

REQUEUE = 75  # the exit code that is worth one
_STEP = re.compile(r"^StepId=[0-9_+]+\.([0-9]+)", re.MULTILINE)  # not .batch, .extern, .interactive


class Seen(NamedTuple):
    """What Slurm says of the job: its nodes now, and its steps that have a number."""

    job: SlurmJob
    nodes: frozenset[str]
    steps: frozenset[str]


def decide(step: SlurmStep, code: int, seen: Seen) -> tuple[str, ...]:
    """Return the command that ends the job, nothing where somebody else will, or another step goes on. Pure."""
    lost = seen.job.batch_host and seen.nodes and seen.job.batch_host not in seen.nodes
    if seen.job.state != "RUNNING" or not lost or seen.steps - {step.step_id}:
        return ()
    if code == REQUEUE and seen.job.may_requeue:
        return ("scontrol", "requeue", step.job_id)
    return ("scancel", step.job_id)


async def end_job(step: SlurmStep, code: int, spare: Spare, say: Callable[[str], None]) -> None:
    """End the job if nobody else would; ``code`` is how the run has ended. Never raises."""
    job = await ask_job(step.job_id, spare)
    if isinstance(job, Unknown) or not job.batch_host:
        return
    steps = await run_scontrol(("-o", "show", "step", step.job_id), spare)
    if isinstance(steps, Unknown):
        return
    command = decide(step, code, Seen(job, nodes_of(job), frozenset(_STEP.findall(steps))))
    if not command:
        return
    say(
        f"{job.batch_host}, which ran the batch script, is lost, and nobody else would end the job: {' '.join(command)}"
    )
    try:
        done = await ask_child(command, b"", timeout_s=ASK_S, spare=spare, say=lambda line: None, env=PLAIN)
    except ChildTrouble as trouble:
        say(f"{command[0]} {trouble}")
        return
    if done.status > 0:
        say(f"{command[0]} ended with {done.status}: {done.last_words[:200]}")
