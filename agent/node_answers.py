"""What a node says while a round is over or forms: that it is ready, healthy, and can load the checkpoint. Pure.

Rules of the node machine, called by ``node.py`` in the order that stands there.
"""

from __future__ import annotations

from ..rendezvous import writes
from ..rendezvous.asked import encode_sight
from ..rendezvous.gate import blamed_for
from ..rendezvous.records import Phase, Round
from ..rendezvous.replacing import replace
from ..rendezvous.writes import Kind
from .node_calls import free, submit
from .node_state import NodeState, Ranks
from .node_words import Action, Check, Look

OWN_KEY = (Kind.READY.value, Kind.CHECKED.value)  # both write it: one after the other


def undescribed(s: NodeState) -> bool:
    """Tell whether what was seen of the last ranks has still to be gathered."""
    return s.joined and s.ranks is Ranks.NONE and not s.told and not s.words and bool(s.facts) and not s.finished


def answer(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Raise ready once nothing of ours lives and what there is to say has been said."""
    if s.job is None or s.ranks is not Ranks.NONE or s.leaving or not free(s, at, *OWN_KEY):
        return s
    job = s.job.job
    want = {Phase.STOPPING: job.round + 1, Phase.FORMING: job.round}.get(job.phase, 0)
    if s.apart:
        want = job.round  # it had not answered in time, and can join all the same
    if want <= s.ready or s.words or undescribed(s) or "collect" in s.pending:
        return s
    checked, unfit = s.told_check
    record = replace(s.settings.record, inc=s.inc, ready=Round(want), checked=checked, unfit=unfit)
    return submit(s, writes.ready(s.settings.keys, s.own, record, s.mod), out)


def vouch(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Where a verdict has blamed this node: have it checked while it has no ranks, and say how that ended."""
    if s.job is None or s.ranks is not Ranks.NONE or s.leaving or not s.joined or s.job.job.phase.over:
        return s
    n = blamed_for(s.job.job, s.settings.node, s.settings.record.machine)
    if n > max(s.checked, s.checking):
        out.append(Check(n))
        s = replace(s, checking=n)
    if (s.checked, s.unfit) == s.told_check or not free(s, at, *OWN_KEY):
        return s
    cfg = s.settings
    record = replace(cfg.record, inc=s.inc, ready=s.ready, checked=s.checked, unfit=s.unfit)
    return submit(s, writes.checked(cfg.keys, s.own, record, s.mod), out)


def look(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """While a round forms: look at the checkpoint that its leader asks about, and say whether it can be loaded here."""
    asked = s.job.job.asked if s.job and s.job.job.phase is Phase.FORMING else None
    if s.job is None or asked is None or asked.token == s.leading or s.ranks is not Ranks.NONE or not s.joined:
        return s
    question = (s.job.job.round, *asked.mark)
    if s.looking != question:
        out.append(Look(s.job.job.round, asked))
        return replace(s, looking=question, sight=None)
    if s.sight is None or not free(s, at, Kind.LOOKED.value):
        return s
    told = writes.looked(s.settings.keys, s.own, s.job, encode_sight(s.sight))
    return submit(replace(s, saying=question), told, out)
