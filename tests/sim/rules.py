"""What a plant may replace in the simulator: the machines' steps, their writes, the guardian's rule, the sweep.

The default is the product as it is. A plant is another ``Rules`` value, so a wrong reading of the protocol is played
without touching a line of the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from remuster.agent import node
from remuster.agent.fence import Fence
from remuster.agent.node_state import NodeState
from remuster.rendezvous import leader, leader_state
from remuster.rendezvous.writes import Write

if TYPE_CHECKING:
    from .agents import Agent

Actions = tuple[Any, ...]


class Revoke(NamedTuple):
    """What no leader of the product may want: end the lease of another machine's agent."""

    inc: int


def altered(value: Any, /, **changes: Any) -> Any:
    """Return a value of the product with some fields changed, whichever kind of value it is."""
    return value._replace(**changes) if isinstance(value, tuple) else replace(value, **changes)


def node_step(_agent: Agent, state: NodeState, event: Any) -> tuple[NodeState, Actions]:
    """The node machine as the product has it."""
    return node.step(state, event)


def leader_step(_agent: Agent, state: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    """The job machine as the product has it."""
    return leader.step(state, event)


def write(_agent: Agent, wanted: Write) -> Write:
    """Every write as the machine made it."""
    return wanted


@dataclass(frozen=True, slots=True)
class Rules:
    """How this run's agents behave."""

    name: str = "the product"
    node: Callable[[Agent, NodeState, Any], tuple[NodeState, Actions]] = node_step
    leader: Callable[[Agent, leader_state.Leader, Any], tuple[leader_state.Leader, Actions]] = leader_step
    write: Callable[[Agent, Write], Write] = write
    may_start: Callable[[Fence, int, float], str | None] = Fence.may_start
    keepalive_thread: bool = False  # keepalives go on while the agent's loop hangs
    fences: bool = True  # the guardian kills at the deadline
    kill_cancels: bool = True  # a kill drops starts that are queued before it
    sweep_first: bool = True  # a new agent waits until the old guardian has proven its ranks dead
    bury_late: bool = True  # and so does the keeper before it gives up the old one's lease
