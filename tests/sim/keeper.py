"""A keeper in virtual time: what it does when its agent was killed. The revoker is the product's, with its very writes.

Only what the revoker waits for is played here: each of its calls travels, may be lost, and may arrive late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuster.agent.letter import Letter
from remuster.agent.revoker import Dead, give_up
from remuster.agent.spec import StoreAccess
from remuster.rendezvous.errors import OutcomeUnknown, StoreError, TransientError
from remuster.rendezvous.store import Get, Txn, TxnResult

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from .agents import Agent

LOOK_S = 0.05
TRY_S = 2.0
SIGKILL = 9


class _Call:
    """One call to the store, awaited by the revoker."""

    def __init__(self, op: Callable[[], Any], writes: bool) -> None:
        self.op = op
        self.writes = writes

    def __await__(self) -> Generator[_Call, Any, Any]:
        return (yield self)


class Keeper:
    """The keeper of one agent, and the store as its revoker sees it."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.world = agent.world
        self.boot = agent.machine.boot
        self.lease = agent.lease
        self.end = 0.0

    def bury(self) -> None:
        """Wait until nothing of the agent's lives, then give its lease up; past its deadline there is nothing to do."""
        agent, rules = self.agent, self.world.rules
        if agent.machine.boot != self.boot:
            return  # the power has gone
        if rules.bury_late and any(guardian.holds_lock for guardian in agent.guardians):
            self.world.after(LOOK_S, self.bury)
        elif self.lease and agent.clock() < agent.deadline:
            keys = self.world.cfg.keys
            letter = Letter(keys.run_id, keys.root, agent.name, (), StoreAccess(), None)
            self.end = self.world.now + TRY_S
            dead = Dead(self.lease, -SIGKILL, agent.node.settings.record.machine)
            self._go_on(give_up(self, letter, dead), None)  # type: ignore[arg-type]  (as much of a store as it needs)

    # -- the store

    async def txn(self, txn: Txn) -> TxnResult:
        """Apply ``txn`` some time from now."""
        writes = any(not isinstance(op, Get) for op in txn.then)
        result = await _Call(lambda: self.world.store.apply(txn, self.lease), writes)
        self.world.stats["word left by a keeper"] += writes and result.succeeded
        return result

    async def revoke(self, lease: int) -> None:
        """Revoke ``lease`` some time from now."""
        await _Call(lambda: self.world.store.revoke(lease), False)
        self.world.note(self.agent.name, "KEEPER REVOKES", lease)
        self.world.stats["lease given up by a keeper"] += 1

    # -- the way there and back

    def _go_on(self, revoker: Coroutine[_Call, Any, None], answer: Any) -> None:
        """Let the revoker run to its next call, and send that on its way."""
        try:
            call = revoker.throw(answer) if isinstance(answer, StoreError) else revoker.send(answer)
        except StopIteration:
            return
        except StoreError:
            self.world.stats["a keeper could not reach the store"] += 1
            return
        world, net = self.world, self.world.net
        silence = OutcomeUnknown("no answer") if call.writes else TransientError("no answer")

        def arrive() -> None:
            reached = world.now < self.end and world.store.reachable(self.agent)
            answer = call.op() if reached else silence
            heard = silence if net.loses("answer", call.writes) else answer
            world.after(net.delay(self.agent), lambda: self._go_on(revoker, heard))

        if call.writes and (late := net.late()) is not None:
            world.after(late, lambda: self._stray(call))
            world.after(TRY_S, lambda: self._go_on(revoker, silence))
        else:
            world.after(net.delay(self.agent), arrive)

    def _stray(self, call: _Call) -> None:
        self.world.truth.stray = True
        call.op()
        self.world.truth.stray = False
