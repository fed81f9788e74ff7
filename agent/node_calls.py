"""Store calls of the node machine: when one may be made, and that it is under way. Pure; part of ``node.py``."""

from __future__ import annotations

from ..rendezvous import writes
from ..rendezvous.replacing import replace
from .node_state import NodeState
from .node_words import Action, Submit


def submit(s: NodeState, write: writes.Write, out: list[Action]) -> NodeState:
    """Ask for a write; it is pending until it is answered."""
    out.append(Submit(write))
    return replace(s, pending=s.pending | {write.kind.value})


def free(s: NodeState, at: float, *kinds: str) -> bool:
    """Tell whether a store call may be made now: joined, not pausing, none of ``kinds`` under way."""
    return s.joined and at >= s.not_before and "reread" not in s.pending and not (s.pending & set(kinds))
