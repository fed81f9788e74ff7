"""The job machine's part about newcomers: whether a running round is ended for a node that stands by. Pure.

Called by ``leader.py`` in R(n) while all ranks run; ``admission.py`` knows who would be taken and who is held back.
"""

from __future__ import annotations

from dataclasses import replace

from . import writes
from .admission import Admit, calmed, held_back, newcomers, pardon_s
from .gate import aside, owes
from .leader_state import Decision, Leader, Look, submit
from .leader_words import AwaitCheckpoint, CheckpointSeen, Wake
from .membership import listed
from .records import Cause, NodeId, Roster, Round
from .snapshot import Standby, candidates
from .writes import Seen

COMES_AND_GOES = "it has ended too many rounds by coming and going"


def admit(s: Leader, seen: Seen, roster: Roster, at: float) -> Decision:
    """End the round for newcomers that make the group grow, if the launch wants that and the round has run a while."""
    n, most, limits = seen.job.round, seen.job.max_nodes, s.limits
    here = {m.who for m in roster.members}
    if limits.admit is Admit.RESTART or len(here) >= most:
        return s, ()
    if any(m.node not in admissible(s) for m in roster.members):
        return s, ()  # one that is in quarantine stays until the round ends: ended now, the group might only shrink
    nodes, job = admissible(s), seen.job
    ready = (c for c in candidates(nodes, n) if c.member.who not in here)
    others = tuple(c for c in ready if not owes(job, c.member.node, nodes[c.member.node].record))
    apart = aside(job, others)
    others = tuple(c for c in others if c not in apart)  # they wait for a round that has too few nodes
    known = dict(s.arrived)
    s = replace(s, arrived=tuple((c.member.who, known.get(c.member.who, at)) for c in others))
    began, formed = s.stamps.started, s.stamps.formed
    if began is None or formed is None or not newcomers(roster, others, most, limits.order):
        return replace(s, look=_dropped(s.look)), ()
    held = held_back(calmed(seen.job.flaps, at - formed), others)
    steady = newcomers(roster, tuple(c for c in others if c not in held), most, limits.order)
    if not steady:
        until = formed + min(pardon_s(seen.job.flaps, c.member) for c in held)
        names = listed([c.member.node[:64] for c in held])
        return replace(s, look=_dropped(s.look)), (Wake(until, f"round {n}: {names} stands by: {COMES_AND_GOES}"),)
    names = listed([m.node[:64] for m in steady])
    # Whoever has stood by for longer than a lease is alive; one that joined and died must not end a round.
    since = dict(s.arrived)
    until = max(began + limits.admit_after_s, min(since[m.who] for m in steady) + limits.gather_s)
    if at < until:
        why = f"when the round has run {limits.admit_after_s:g} s and the node has stood by {limits.gather_s:g} s"
        return s, (Wake(until, f"round {n}: {names} stands by and can join {why}"),)
    if limits.admit is Admit.CHECKPOINT and not (s.look and s.look.round == n and s.look.newer):
        return _await(s, n, f"round {n}: {names} stands by and can join when the next checkpoint is there")
    first = min(steady, key=lambda m: since[m.who])
    cause = Cause("admit", first.node, first.inc)
    return submit(s, seen, writes.admit(s.view.keys, s.own, s.token, seen, cause))


def _await(s: Leader, n: Round, why: str) -> Decision:
    look = s.look if s.look and s.look.round == n else None
    if look is not None and look.pending:
        return s, ()
    if look is not None and look.first is None:
        why = f"{why}; the checkpoints could not be looked at"
    s = replace(s, look=Look(n) if look is None else look._replace(pending=True))
    return s, (AwaitCheckpoint(n, look is not None, why),)


def seen_in(look: Look | None, event: CheckpointSeen) -> Look | None:
    """Take in what the shell found."""
    if look is None or look.round != event.round:
        return look
    first = event.step if look.first is None else look.first
    newer = event.step is not None and first is not None and event.step > first
    return look._replace(pending=False, first=first, newer=look.newer or newer)


def _dropped(look: Look | None) -> Look | None:
    """Forget what was seen, for there is no newcomer; an answer that is on its way still comes."""
    return Look(look.round) if look and look.pending else None


def admissible(s: Leader) -> dict[NodeId, Standby]:
    """Return the nodes that may be members.

    Not those on a host in quarantine, nor those that failed their check or cannot load the checkpoint.
    """
    found, apart = s.view.nodes().items(), {bar.who for bar in s.agreement.apart}
    fit = {node: one for node, one in found if one.record.host not in s.barred and not one.record.unfit}
    return {node: one for node, one in fit.items() if (node, one.record.inc) not in apart} if apart else fit
