"""The node machine's rules for a scheduler that ends the job: it is asked, and all is over before it kills. Pure.

Called by ``node.py``, whose rules look at the state alone as these do; by ``node_take.py`` with the answer.
"""

from __future__ import annotations

from ..health.evidence import Left
from ..rendezvous.replacing import replace
from .node_state import About, NodeState, Ranks
from .node_words import Action, AskLimit, Limited, Tell, Wake

SIGTERM = 15
ANSWER_S = 7.0  # for the scheduler to say why; its bound in ``scontrol.py``, a child's end, and the nodes' turns


def noticed(s: NodeState) -> bool:
    """Tell whether the job is to end soon, by a signal here or by another node's word."""
    return s.noticed or (s.job is not None and bool(s.job.job.notice))


def ask_limit(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Ask the scheduler, where there is one, about a notice, and about a SIGTERM; each once."""
    if not s.settings.asks or s.asked is About.TERM:
        return s
    if s.leaving is not None and s.leaving.signal == SIGTERM:
        out.append(AskLimit(True))
        return replace(s, asked=About.TERM, answer_by=at + ANSWER_S)
    if noticed(s) and s.asked is About.NOTHING:
        out.append(AskLimit(False))
        return replace(s, asked=About.NOTICE)
    return s


def limited(s: NodeState, event: Limited) -> tuple[NodeState, tuple[Action, ...]]:
    """Take the scheduler's word: whom it ends pays nothing, and is done before it kills."""
    told = (Tell(event.sentence),) if event.sentence else ()
    if event.leaving:
        s = replace(s, answer_by=0.0)
    if event.why:
        s = replace(s, noticed=True, why_ended=event.why)
    if event.left_s is None:
        return s, told
    reserve = min(s.settings.reserve_s, event.left_s / 2)
    kill_by = event.at + event.left_s - reserve
    term_by = kill_by - min(s.settings.grace_s, (kill_by - event.at) / 2)
    leave_by, ends_at = min(s.leave_by, kill_by + reserve / 2), event.at + event.left_s
    return replace(s, term_by=term_by, kill_by=kill_by, leave_by=leave_by, ends_at=ends_at), told


def in_time(s: NodeState, at: float, out: list[Action]) -> NodeState:
    """Leave, when ranks have not left by themselves by then, so early that the scheduler need not kill."""
    if not s.term_by or s.leaving is not None or s.ranks is not Ranks.LIVE:
        return s
    if at < s.term_by:
        out.append(Wake(s.term_by, "the scheduler's limit"))
        return s
    left = Left(0)
    return replace(s, leaving=left, leave_by=s.kill_by + s.settings.reserve_s / 2, facts=(*s.facts, left))


def why_left(s: NodeState) -> str:
    """Return what the scheduler's word adds to the sentence of this node's end."""
    return f": {s.why_ended}" if s.why_ended else ""
