"""Which nodes a requeued Slurm job had better not be given again. Pure.

``after`` keeps, record by record, who is blamed; ``exclusion`` decides, from what Slurm has printed of the job. Called
by ``ledger.py`` and, for a requeue, by ``exclude.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from .hostlist import HostListError, expand
from .occurrences import part
from .slurm_job import fields, job_fields

SHOWN = 4  # nodes in a sentence


class NotSaid(ValueError):
    """What Slurm has printed does not say it; the message is for people."""


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


def partition_of(job_id: str, job: str) -> str:
    """Return the partition's name from what `scontrol -o show job` prints; '' where it does not say it."""
    return job_fields(job_id, job).get("Partition", "")


def allocation(job_id: str, job: str, partition: str) -> Allocation:
    """Return the job from what `scontrol -o show job` and `show partition` print; NotSaid when that lacks something."""
    found = job_fields(job_id, job)
    needed, there = found.get("NumNodes", "").partition("-")[0], fields(partition).get("TotalNodes", "")
    if not needed.isdecimal() or not there.isdecimal():
        raise NotSaid("scontrol does not say how many nodes there are")
    nodes, excluded, required = [_names(found.get(field, "")) for field in ("NodeList", "ExcNodeList", "ReqNodeList")]
    return Allocation(nodes, excluded, frozenset(required), int(needed), int(there))


def _names(listed: str) -> tuple[str, ...]:
    try:
        return expand(listed) if listed else ()
    except HostListError as error:
        raise NotSaid(f"scontrol prints {listed[:80]!r} for nodes: {error}") from error
