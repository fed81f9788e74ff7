"""What a verdict against a node means for later rounds: the check that must pass first, and who stands aside. Pure.

A node that is blamed is not chosen before it has said that its check has passed, or that nobody can tell; one that says
nothing within ``Limits.check_s`` of the leader's own clock is let pass, for a check that hangs must not end the job.
One that says it has failed is never chosen. A node that stands aside is taken when the others are too few without it.
Both are kept in ``job`` by node and machine, until a round runs with that node; docs/decisions/0007 argues it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from .admission import mark
from .membership import Candidate, listed
from .records import MAX_BLAMED, Job, Node, NodeId, Roster, Round
from .snapshot import Standby, Who

ASIDE_S = 3600.0  # a round that has run so long without the node makes up for it

Owing = tuple[tuple[Who, Round, float], ...]  # who is to be checked, after which round, since when that is known


class Blame(NamedTuple):
    """What a verdict lays on a node; '' = on none."""

    node: str = ""
    check: bool = False  # its check must pass before it takes part again
    aside: bool = False  # others are taken first


NOBODY = Blame()


def after_verdict(job: Job, blame: Blame, roster: Roster, lasted_s: float) -> Job:
    """Return the record with the blame of the round of ``roster``, which had run for ``lasted_s``."""
    aside = () if lasted_s >= ASIDE_S else job.aside
    machine = next((m.machine for m in roster.members if m.node == blame.node), None)
    if machine is None or not (blame.check or blame.aside):
        return job if aside == job.aside else replace(job, aside=aside)
    who = mark(NodeId(blame.node), machine)
    blamed = job.blamed
    if blame.check:
        blamed = ((who, roster.round), *(pair for pair in blamed if pair[0] != who))[:MAX_BLAMED]
    if blame.aside:
        aside = (who, *(one for one in aside if one != who))[:MAX_BLAMED]
    return replace(job, blamed=blamed, aside=aside)


def after_close(job: Job, roster: Roster) -> Job:
    """Return the record when the round of ``roster`` runs: nothing is held against who takes part."""
    if not job.blamed and not job.aside:
        return job
    here = {mark(m.node, m.machine) for m in roster.members}
    blamed = tuple(pair for pair in job.blamed if pair[0] not in here)
    return replace(job, blamed=blamed, aside=tuple(one for one in job.aside if one not in here))


def blamed_for(job: Job, node: NodeId, machine: str) -> Round:
    """Return the round whose end is blamed on a node; 0 when it is not blamed."""
    return Round(dict(job.blamed).get(mark(node, machine), 0)) if job.blamed else Round(0)


def owes(job: Job, node: NodeId, record: Node) -> bool:
    """Tell whether a node is still to say how its check ended."""
    return bool(job.blamed) and blamed_for(job, node, record.machine) > record.checked


def owing(before: Owing, job: Job, nodes: Mapping[NodeId, Standby], at: float) -> Owing:
    """Return which nodes that are ready for the round of ``job`` are to be checked, each with since when."""
    if not job.blamed:
        return ()
    known = {(who, n): since for who, n, since in before}
    out: list[tuple[Who, Round, float]] = []
    for node, (record, _) in nodes.items():
        who, n = (node, record.inc), blamed_for(job, node, record.machine)
        if n > record.checked and record.ready >= job.round:
            out.append((who, n, known.get((who, n), at)))
    return tuple(out)


def aside(job: Job, ready: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return those that stand aside: who has done so for longest is the first to be taken."""
    if not job.aside:
        return ()
    marked = [(mark(c.member.node, c.member.machine), c) for c in ready]
    return tuple(c for who in reversed(job.aside) for found, c in marked if found == who)


def unfit(nodes: Mapping[NodeId, Standby]) -> str:
    """Say which nodes have failed their check, and the first one's reason; '' when none has."""
    found = sorted((node, standby.record.unfit) for node, standby in nodes.items() if standby.record.unfit)
    if not found:
        return ""
    return f"{listed([node[:64] for node, _ in found])} failed the node check ({found[0][1][:120]})"
