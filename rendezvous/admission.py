"""Whether a running round is ended for a newcomer, and which nodes are held back because they come and go. Pure.

Asked by the leader. Each end of a round by a node that was lost, was fenced or left counts against that node; each
``CALM_S`` that a round has run lowers every count by one. A node with ``FLAPS`` or more is held back: no round is ended
for it, and one that forms takes it only when it has too few nodes without. So a node that comes and goes costs the
group a few restarts and then one in ten minutes at most, and a steady one is forgiven. The counts travel in ``job``.
"""

from __future__ import annotations

from enum import Enum

from .membership import Candidate, Order, choose, vacant
from .records import MAX_FLAPS, Cause, Member, NodeId, Roster

FLAPS = 3
MOST = 6  # is counted: above all a forgiven node is not kept waiting for hours
CALM_S = 600.0
BLAMED = frozenset({"lost", "fenced", "leave"})  # what a cause says of its node, and of nothing else

Flaps = tuple[tuple[str, int], ...]  # mark → rounds, the last offender first


class Admit(Enum):
    """When a node that stands by makes the group grow: ``--admit``."""

    RESTART = "restart"  # when a round ends by itself
    NOW = "now"
    CHECKPOINT = "checkpoint"  # when the next checkpoint is there


def mark(node: NodeId, machine: str) -> str:
    """Name a node shortly, by name and machine; a reboot or another container does not make it another one."""
    from hashlib import sha256  # and OpenSSL with it, 3 ms: only where a node has come and gone

    return sha256(f"{node}\0{machine.partition('-')[0]}".encode("utf-8", "replace")).hexdigest()[:8]


def calmed(flaps: Flaps, lasted_s: float) -> Flaps:
    """Return what is left of the counts when a round has run for ``lasted_s``."""
    pardon = int(lasted_s // CALM_S)
    return tuple((who, count - pardon) for who, count in flaps if count > pardon)


def after(flaps: Flaps, cause: Cause | None, roster: Roster, lasted_s: float) -> Flaps:
    """Return the counts when the round of ``roster`` has ended for ``cause``, having run for ``lasted_s``."""
    left = calmed(flaps, lasted_s)
    machine = next((m.machine for m in roster.members if cause and m.who == (cause.node, cause.inc)), None)
    if cause is None or machine is None or cause.kind not in BLAMED:
        return left
    who = mark(NodeId(cause.node), machine)
    count = min(MOST, dict(left).get(who, 0) + 1)
    return ((who, count), *(pair for pair in left if pair[0] != who))[:MAX_FLAPS]


def count_of(flaps: Flaps, node: NodeId, machine: str) -> int:
    """Return how many rounds are held against a node."""
    return dict(flaps).get(mark(node, machine), 0) if flaps else 0


def pardon_s(flaps: Flaps, member: Member) -> float:
    """Return how long a round must run until the node is held back no more; 0 when it is not."""
    return CALM_S * max(0, count_of(flaps, member.node, member.machine) - FLAPS + 1)


def held_back(flaps: Flaps, ready: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return those that are held back, in the order in which they joined."""
    held = [c for c in ready if pardon_s(flaps, c.member)] if flaps else []
    return tuple(sorted(held, key=lambda c: (c.joined, c.member.node)))


def muster(
    last: Roster | None, ready: tuple[Candidate, ...], size: tuple[int, int], order: Order, held: tuple[Candidate, ...]
) -> Roster:
    """Choose as ``choose`` does, and of those that are ``held`` back, in turn, only as many as ``size`` needs."""
    least, most = size
    steady = tuple(c for c in ready if c not in held)
    for taken in range(len(held) + 1):
        roster = choose(last, (*steady, *held[:taken]), most, order)
        if len(roster.members) >= least and not vacant(roster, least, most):
            return roster._replace(spares=(*roster.spares, *(c.member for c in held[taken:])))
    return choose(last, ready, most, order)


def newcomers(roster: Roster, ready: tuple[Candidate, ...], most: int, order: Order) -> tuple[Member, ...]:
    """Return who would be in the next round beside all members of the running one: for them it may be ended."""
    here = {m.who for m in roster.members}
    others = tuple(c for c in ready if c.member.who not in here)
    if not others:
        return ()
    members = tuple(Candidate(m, 0) for m in roster.members)
    chosen = choose(roster, (*members, *others), most, order).members
    if not here <= {m.who for m in chosen}:
        return ()
    return tuple(m for m in chosen if m.who not in here)
