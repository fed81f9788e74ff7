"""The node machine's rules for a node that others keep waiting: what it says, and when it gives up. Pure.

Called by ``node.py``, whose rules look at the state alone as these do.
"""

from __future__ import annotations

from ..rendezvous.admission import FLAPS, count_of
from ..rendezvous.records import NO_PLACE, Phase
from ..rendezvous.replacing import replace
from .early_leave import left_early
from .node_enter import end
from .node_state import NodeState, Ranks
from .node_words import Action, Tell, Wake

WAITS_S = 3.0  # a round that forms without delay says nothing


def placeless(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Static: end where another living node has the place asked for; a lease later it is no dead one's trace."""
    place, roster = s.settings.record.place, s.roster
    if place == NO_PLACE or s.job is None or not s.joined:
        return s
    if roster is None or not s.apart:
        return s
    holder = next((m for m in roster.members if m.place == place), None)
    if holder is None:
        return s
    until = s.stands_since + s.settings.held_s
    if at < until:
        out.append(Wake(until, f"--node-rank {place} is {holder.node}'s"))
        return s
    why = f"--node-rank {place} is held by {holder.node} ({holder.address}), whose agent is alive"
    return give_up(s, f"{why}; give this node another one, or another --master-port if it is of another job", out)


def waiting(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Say once in a round what this node waits for: the leader alone knows for whom, and says it where it runs."""
    if s.job is None or not s.joined or s.leaving or s.ranks is not Ranks.NONE or s.leader is None:
        return s
    job = s.job.job
    where, until, n = (job.phase, job.round), s.stands_since, job.round
    if job.phase is Phase.FORMING and not s.leading:
        until += WAITS_S
        leader = s.leader.value.rpartition(b"@")[0].decode("utf-8", "replace")[:64]
        wanted = f"{job.min_nodes}" if job.min_nodes == job.max_nodes else f"{job.min_nodes} to {job.max_nodes}"
        why = f"round {n} waits for nodes, {wanted} are wanted; node {leader} leads and says which are there"
    elif s.apart:
        count = count_of(job.flaps, s.settings.node, s.settings.record.machine)
        why = f"this node stands by: round {n} runs on others"
        if count >= FLAPS:
            why = f"{why}; it has ended {count} rounds by coming and going, and is taken in when others are too few"
    else:
        return s
    if s.waits == where:
        return s
    if at < until:
        out.append(Wake(until, "nodes are waited for"))
        return s
    out.append(Tell(why))
    return replace(s, waits=where)


def stalled(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Give up where only a leader can take the run on, and none has for longer than any leader waits."""
    if s.job is None or not s.joined:
        return s
    job = s.job.job
    if job.phase.over or (job.phase is Phase.RUNNING and job.master):
        return s
    until = s.stands_since + s.settings.stall_s
    if at < until:
        out.append(Wake(until, "the run stands"))
        return s
    where = {Phase.FORMING: "forming", Phase.STOPPING: "being stopped"}.get(job.phase, "without a master address")
    why = f"round {job.round} has been {where} for {s.settings.stall_s:g} s, and no agent takes it on"
    return give_up(s, f"{why}: somebody else may hold {s.settings.keys.leader}; start again", out)


def early(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Tell of ranks that have left a round in which others go on."""
    found = left_early(s)
    if found is None:
        return s
    until, why = found
    if at < until:
        out.append(Wake(until, "some ranks have left"))
        return s
    out.append(Tell(why))
    return replace(s, told_early=s.round)


def give_up(s: NodeState, why: str, out: list[Action]) -> NodeState:
    """End the agent in words."""
    s, last_words = end(s, why)
    out += last_words
    return s
