"""How an agent enters the run, given what was just read: joins, waits for its name, or ends in words. Pure.

Called by ``node_take.py`` with the answer to every re-read of an agent that has not joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rendezvous import writes
from ..rendezvous.membership import Over, disagreement, standing
from ..rendezvous.records import Incarnation, Job, Phase, Terms, decode_job, decode_node, decode_terms
from ..rendezvous.replacing import replace
from ..rendezvous.snapshot import opened
from ..rendezvous.store import KeyValue
from ..rendezvous.writes import Begin, Kind
from .node_state import NodeState
from .node_words import Action, Exit, Rereading, RevokeOld, Submit, Wake

if TYPE_CHECKING:
    from ..rendezvous.mirrored import Mirrored

AGAIN_S = 0.2  # pause before a write or read of unknown outcome is tried again
USAGE = 2
NO_STORE = 69
UNKNOWN = 75

Step = tuple[NodeState, tuple[Action, ...]]


def later(s: NodeState, at: float) -> NodeState:
    """Pause: no store call is made for a moment."""
    return replace(s, not_before=at + AGAIN_S)


def end(s: NodeState, sentence: str, code: int | None = None) -> Step:
    """End the agent. One that had ranks cannot know the job's outcome; one that had none could not join."""
    code = (UNKNOWN if s.round else NO_STORE) if code is None else code
    return replace(s, exiting=True), (Exit(code, sentence, True),)


def enter(s: NodeState, event: Rereading) -> Step:
    """Join; BadRecord when what was read is no record of this version."""
    cfg = s.settings
    job = None if event.job is None else opened(event.job, decode_job)
    if s.launch and (job is None or job.launch != s.launch):
        why = "its launch ended while this agent was cut off: the outcome is unknown; see the other nodes' reports"
        return end(s, why, UNKNOWN)
    if s.seen and (job is None or job.round < s.seen):
        why = f"the store has lost the run (it had reached round {s.seen}): the outcome of the job is unknown"
        return end(s, why, UNKNOWN)
    copy = cfg.kept.run
    if job is None and cfg.kept.refused:
        return end(s, cfg.kept.refused, cfg.kept.code)
    if copy is not None and job is not None and not s.launch and copy.job.round > job.round:
        return end(s, _behind(s, job, copy.job), UNKNOWN)
    kept = copy if job is None else None
    if kept is not None:
        until = s.out_since + cfg.held_s
        if kept.job.phase is not Phase.DONE and event.at < until:  # in the lost store its nodes may hold leases
            why = "the store knows nothing of this run: going on from its copy when no lease of the lost one can live"
            return replace(s, not_before=until), (Wake(until, why),)
        from ..rendezvous.mirrored import go_on

        how = go_on(kept, cfg.begin, cfg.fresh)
        job = kept.job
    else:
        how = standing(job, cfg.begin if not s.launch else replace(cfg.begin, launch=s.launch), cfg.fresh)
    if isinstance(how, Over):
        # Without launch ids a late agent of this launch looks like a new launch: only who has seen the job is of it.
        known = bool(cfg.begin.launch) or s.seen > 0
        mine = known and job is not None and job.launch == (s.launch or cfg.begin.launch)
        return end(s, how.sentence, how.outcome.exit_code if mine else USAGE)
    if how.new is None and not s.launch:  # who comes back has been let in before
        no = refused(s, event.terms)
        if no is not None:
            return no
    if event.node is not None:
        return _taken(s, event.node, event.at)
    record = replace(cfg.record, inc=s.inc, ready=how.ready)
    mod = 0 if event.job is None else event.job.mod_revision
    write = writes.join(cfg.keys, s.own, record, mod, _begin(s, how.new, kept))
    return replace(s, pending=s.pending | {Kind.JOIN.value}, ready=how.ready), (Submit(write),)


def _behind(s: NodeState, job: Job, copy: Job) -> str:
    key = s.settings.keys.prefix
    return (
        f"the store is at round {job.round} of this run, and its copy beside the checkpoints at round {copy.round}: "
        f"the store was restored, or is another one; delete {key} in the store to go on from the copy, or move the "
        "copy away"
    )


def _begin(s: NodeState, new: Job | None, kept: Mirrored | None) -> Begin | None:
    if new is None:
        return None
    begin = Begin(new, Terms(s.settings.node, s.settings.terms))
    if kept is None:
        return begin
    from ..rendezvous.mirrored import entries

    return begin._replace(history=entries(kept), roster=kept.roster)


def refused(s: NodeState, terms: KeyValue | None) -> Step | None:
    """Refuse to join a launch that was begun with another command line."""
    if terms is None:
        key = s.settings.keys.terms
        return end(s, f"{key} is missing: what this run was begun with; start again under another --rdzv-id")
    why = disagreement(s.settings.terms, opened(terms, decode_terms))
    return end(s, why, USAGE) if why else None


def _taken(s: NodeState, node: KeyValue, at: float) -> Step:
    """The node's name is held: by a dead agent of this machine, or by another machine's, which may be dead or not."""
    cfg = s.settings
    if not node.lease:
        return end(s, f"{node.key} hangs on no lease, so no agent wrote it: delete it and start again")
    holder = opened(node, decode_node)
    if holder.machine == cfg.record.machine:  # same machine: its strays are swept, its lock is ours
        lease = Incarnation(node.lease)  # the store's word: what is written in the value may be anybody's
        return later(s, at), (RevokeOld(lease, holder.pid, holder.start, "an earlier agent of this node is dead"),)
    if s.holder is None:
        s = replace(s, holder=node, held_since=at)
    assert s.holder is not None
    alive = node.mod_revision != s.holder.mod_revision  # it has written, or another agent has come in its place
    until = min(s.held_since + cfg.held_s, s.out_since + cfg.patience_s)
    held = f"node name {cfg.node!r} is held by another machine ({holder.address})"
    if alive or at + AGAIN_S >= until:  # there is no time for another look
        return end(
            s,
            f"{held}, whose agent is alive, and this one is {cfg.record.address}; give this node another --local-addr, "
            "or stop the other one",
        )
    return later(s, at), (Wake(at + AGAIN_S, f"{held}; waiting for {until - s.held_since:.0f} s until its lease ends"),)
