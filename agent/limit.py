"""Asks Slurm why it has sent a signal and how much time is left, for the node machine. Loaded when one has come."""

from __future__ import annotations

from . import node_words as words
from .linux import boottime
from .scontrol import Spare, Unknown, ask_job
from .slurm_job import Ending, ending
from .spec import SlurmStep


async def ask_limit(step: SlurmStep, action: words.AskLimit, spare: Spare) -> words.Limited:
    """Answer the node machine's question; within the bound of `scontrol`, and without an answer in words."""
    asked_s = boottime()
    job = await ask_job(step.job_id, spare)
    if isinstance(job, Unknown):
        return words.Limited(
            boottime(), action.leaving, "", None, f"Slurm cannot be asked about this signal: {job.why}"
        )
    found = ending(job, step.restarts, action.leaving)
    left_s = None if found.left_s is None else max(0.0, found.left_s - (boottime() - asked_s))
    return words.Limited(boottime(), action.leaving, found.why, left_s, said(found._replace(left_s=left_s)))


def said(found: Ending) -> str:
    """Return what people are told; nothing where the signal is what it always is."""
    if not found.why or found.left_s is None:
        return found.why
    return f"{found.why}: {found.left_s:.0f} s are left to save and leave"
