"""Which nodes a requeued Slurm job had better not be given again, and Slurm told so.

``after`` keeps, record by record, who is blamed; ``exclusion`` decides; both are pure. ``prepare`` asks Slurm before
the requeue, and ``exclude`` tells it right after: a running job's list cannot be changed, that of one which is being
requeued can, already while its tasks are being ended (measured with Slurm 22.05). Who calls ``scontrol`` is the
caller's affair. Loaded for a requeue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from .hostlist import HostListError, expand
from .occurrences import part
from .slurm_job import fields, job_fields

SHOWN = 4
TRIES, AGAIN_S = 4, 0.2  # well within the 30 s from SIGTERM to SIGKILL


class Bad(NamedTuple):
    """A node that is blamed: its name in the job, and the class of what failed there."""

    node: str
    cls: str


class Allocation(NamedTuple):
    """The job as Slurm has it. Nodes by Slurm's names; ``needed`` of the partition's ``there`` nodes are asked for."""

    nodes: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    needed: int = 1
    there: int = 0


class Exclusion(NamedTuple):
    """What is to be excluded from now on, those of before with it; none when that stays as it is. With the reason."""

    nodes: tuple[str, ...]
    sentence: str


class NoWord(Protocol):
    """Why Slurm has not answered."""

    @property
    def why(self) -> str: ...


Scontrol = Callable[[Sequence[str]], Awaitable["str | NoWord"]]
"""Runs `scontrol` with these words; returns what it prints, or why there is nothing."""


def after(bad: tuple[Bad, ...], record: Mapping[str, object]) -> tuple[Bad, ...]:
    """Return who is blamed after an attempt, by its record: who took part in it has been let in again."""
    members = record.get("members")
    listed = cast("list[object]", members) if isinstance(members, list) else []
    here = {cast("dict[str, object]", one).get("node") for one in listed if isinstance(one, dict)}
    left = tuple(one for one in bad if one.node not in here)
    verdict = part(record, "verdict")
    node = verdict.get("node")
    if verdict.get("node_fault") is True and record.get("node_action") in ("aside", "quarantine"):
        return (*left, Bad(str(node), str(verdict.get("class"))))
    return left


def exclusion(bad: Sequence[Bad], job: Allocation) -> Exclusion:
    """Decide who is to be excluded. Never so many that the partition has too few: such a job would wait for ever."""
    found = [(name, one.cls) for one in bad if (name := _name(one.node, job.nodes))]
    new = {name: cls for name, cls in found if name not in job.excluded and name not in job.required}
    if not new:
        return Exclusion((), "")
    named = ", ".join(f"{name} ({cls})" for name, cls in list(new.items())[:SHOWN])
    named += f" and {len(new) - SHOWN} more" if len(new) > SHOWN else ""
    nodes = (*job.excluded, *new)
    if job.there - len(nodes) < job.needed:
        why = f"the partition has {job.there} nodes and the job asks for {job.needed}"
        return Exclusion((), f"{named} cannot be excluded from the requeue: {why}; have it drained")
    before = f", as {len(job.excluded)} before" if job.excluded else ""
    return Exclusion(nodes, f"excluded from the requeue: {named}{before}")


def _name(node: str, nodes: Sequence[str]) -> str:
    """Return Slurm's name of a node, '' for one that is none of the allocation."""
    name = node.partition("#")[0]  # several agents of one host are told apart so
    return next((known for known in (name, name.partition(".")[0]) if known in nodes), "")


async def prepare(job_id: str, bad: Sequence[Bad], scontrol: Scontrol) -> Exclusion:
    """Ask Slurm about the job and decide; a sentence says why nothing can be done."""
    if not bad:
        return Exclusion((), "")
    try:
        return exclusion(bad, await _allocation(job_id, scontrol))
    except _Unknown as error:
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


class _Unknown(Exception):
    """Slurm did not say; the message is for people."""


async def _asked(scontrol: Scontrol, *words: str) -> str:
    said = await scontrol(words)
    if not isinstance(said, str):
        raise _Unknown(said.why)
    return said


async def _allocation(job_id: str, scontrol: Scontrol) -> Allocation:
    job = job_fields(job_id, await _asked(scontrol, "-o", "show", "job", job_id))
    partition = fields(await _asked(scontrol, "-o", "show", "partition", job.get("Partition", "")))
    needed, there = job.get("NumNodes", "").partition("-")[0], partition.get("TotalNodes", "")
    if not needed.isdecimal() or not there.isdecimal():
        raise _Unknown("scontrol does not say how many nodes there are")
    nodes, excluded, required = [_names(job.get(field, "")) for field in ("NodeList", "ExcNodeList", "ReqNodeList")]
    return Allocation(nodes, excluded, frozenset(required), int(needed), int(there))


def _names(listed: str) -> tuple[str, ...]:
    try:
        return expand(listed) if listed else ()
    except HostListError as error:
        raise _Unknown(f"scontrol prints {listed[:80]!r} for nodes: {error}") from error
