"""Slurm's `scontrol`, asked in a child with a bound. That it is missing (in a container) or silent is no error.

Asked where a scheduler ends this node's work, and for a requeue; what it prints is read by ``slurm_job.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .bounded_child import ChildTrouble, Reply, ask_child
from .slurm_job import SlurmJob, parse_job

ASK_S = 5.0  # a busy controller takes seconds; the time from SIGTERM to SIGKILL is 30 s by default
PLAIN = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}  # times in seconds since 1970, whatever the zone
Spare = Callable[[tuple[int, ...]], None]


class Unknown(NamedTuple):
    """Slurm was asked and has not said; the sentence is for people."""

    why: str


async def ask_job(job_id: str, spare: Spare, *, within_s: float = ASK_S) -> SlurmJob | Unknown:
    """Return what Slurm's controller says of a job now; Unknown when it does not, in whatever way. Never raises.

    ``spare`` is told the pids of the children, which no sweep may take, and () when they are gone.
    """
    pids: dict[str, tuple[int, ...]] = {}

    def note(which: str) -> Spare:
        def spared(found: tuple[int, ...]) -> None:
            pids[which] = found
            spare(tuple(pid for one in pids.values() for pid in one))

        return spared

    job, config = await asyncio.gather(
        run_scontrol(("-o", "show", "job", job_id), note("job"), within_s=within_s),
        run_scontrol(("show", "config"), note("config"), within_s=within_s),
    )
    if isinstance(job, Unknown):
        return job
    found = parse_job(job_id, job, "" if isinstance(config, Unknown) else config)
    return found or Unknown(f"scontrol prints nothing that is job {job_id[:32]}")


async def run_scontrol(words: Sequence[str], spare: Spare, *, within_s: float = ASK_S) -> str | Unknown:
    """Run `scontrol` with ``words`` and return what it prints; Unknown when it fails. Never raises.

    Slurm signals every process of a step, one after another: a child that was started meanwhile gets what was meant for
    the others. It is started once more then.
    """
    said = await _once(words, spare, within_s)
    if isinstance(said, Reply) and said.status < 0:
        said = await _once(words, spare, within_s)
    if isinstance(said, Unknown):
        return said
    if said.status:
        return Unknown(f"scontrol ended with {said.status}: {said.last_words[:200] or 'it does not say why'}")
    return said.out.decode(errors="replace")


async def _once(words: Sequence[str], spare: Spare, within_s: float) -> Reply | Unknown:
    argv = ("scontrol", *words)
    try:
        return await ask_child(argv, b"", timeout_s=within_s, spare=spare, say=lambda line: None, env=PLAIN)
    except ChildTrouble as trouble:
        return Unknown(f"scontrol {trouble}")
