"""Who must be back before a round may form when a lost lease proves nothing: ``--on-store-loss=hold``. Pure.

Ranks of a node that is cut off live on, so nobody takes its place: not a spare, not a newcomer, not another machine of
the same name. Only an agent of that very machine can say that they are dead: it has swept before it joins. Called by
the leader before every close; with ranks that are fenced all of this does not apply.
"""

from __future__ import annotations

from typing import NamedTuple

from .membership import NAMED, Candidate, listed
from .records import Job, Member, Roster, StoreLoss

WHOLE_MACHINE = "effffffc"  # the first pid namespace of every Linux: who is in it sees all processes of the machine


class Reunion(NamedTuple):
    """Who may be chosen, and whom the round has to wait for."""

    ready: tuple[Candidate, ...]
    missing: tuple[Member, ...] = ()


def reunite(last: Roster | None, ready: tuple[Candidate, ...], job: Job) -> Reunion:
    """Return who may run in the round that ``job`` forms, given the last roster and the nodes that are ready for it.

    Each node of a roster that was formed under hold must be back, whatever the present launch says. One that holds as
    well and is of their number is theirs alone; another may choose freely, for it has every node's proof by then.
    """
    if last is None or last.store_loss is not StoreLoss.HOLD:
        return Reunion(ready)
    before = {m.node: m.machine for m in last.members}
    back = tuple(c for c in ready if _sees_the_dead(before.get(c.member.node), c.member.machine))
    here = {c.member.node for c in back}
    missing = tuple(m for m in last.members if m.node not in here)
    theirs = job.store_loss is StoreLoss.HOLD and job.max_nodes == len(last.members)
    return Reunion(back if theirs or missing else ready, missing)


def _sees_the_dead(before: str | None, now: str) -> bool:
    """Tell whether an agent on ``now`` knows what became of what ran on ``before``: it sees it, or has booted since.

    A machine's name is its id, its boot and its pid namespace (``agent/identity.py``). Another boot of the same id is
    the same machine only outside of containers: many of those share the id of their image.
    """
    if before is None or before == now:
        return before is not None
    old, new = before.split("-"), now.split("-")
    return len(old) == len(new) == 3 and old[0] == new[0] != "" and old[2] == new[2] == WHOLE_MACHINE


def awaited(missing: tuple[Member, ...]) -> str:
    """Say for whom a round waits, by node and machine, and why nobody takes the place; '' when for nobody."""
    if not missing:
        return ""
    names = listed([f"{m.node[:64]} (machine {m.machine.partition('-')[0][:32]})" for m in missing])
    return f"ranks may still live on {names}, which must come back (--on-store-loss=hold)"


def way_out(missing: tuple[Member, ...]) -> str:
    """Say what a person can do when somebody does not come back."""
    which = listed([m.node[:64] for m in missing[:NAMED]])
    return (
        f"start {which} again on the same machine, or, if that is gone for good, see to it that it is switched off and "
        "start the job under another --rdzv-id"
    )
