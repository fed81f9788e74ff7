"""What a plant may replace: the machines' steps, their writes, the guardian's rule, and other actors of this model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remuster.agent import node
from remuster.agent.fence import Fence
from remuster.agent.node_state import NodeState
from remuster.rendezvous import leader
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.writes import Write

Actions = tuple[Any, ...]


def same(_node: str, wanted: Write) -> Write:
    """Every write as the machine made it."""
    return wanted


@dataclass(frozen=True, slots=True)
class Rules:
    """How agents behave in one search; the default is the product as it is."""

    node: Callable[[NodeState, Any], tuple[NodeState, Actions]] = node.step
    leader: Callable[[Leader, Any], tuple[Leader, Actions]] = leader.step
    write: Callable[[str, Write], Write] = same
    may_start: Callable[[Fence, int, float], str | None] = Fence.may_start
    fences: bool = True  # the guardian kills at the deadline
    kill_cancels: bool = True  # a kill drops a start that is on its way
    sweep_first: bool = True  # a new agent waits until the old guardian has proven its ranks dead
    keepalive_thread: bool = False  # keepalives go on while the agent's loop hangs
    early_expiry: bool = False  # the store may end a lease before the guardian's deadline
    leaves_first: bool = False  # a leaving agent gives its lease up before its ranks are dead
    view_survives: bool = False  # after a lost lease the agent takes another one and goes on with its old view
    newest_at_start: bool = False  # every node takes the newest checkpoint when it starts its ranks
