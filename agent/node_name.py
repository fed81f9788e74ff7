"""Under which address and name a node takes part in a run. Used by ``main.py`` before the agent joins."""

from __future__ import annotations

from ..rendezvous.records import NodeId
from .identity import Machine
from .node_lock import NodeBusy, NodeLock
from .ports import literal, reachable_address
from .spec import Backend, JobSpec

NAMES = 64  # agents of one run on one host without --local-addr, told apart by a number


def own_address(spec: JobSpec) -> str:
    """Return the address that other nodes reach this one by; AddressError when there is none."""
    if spec.backend is Backend.MEMORY:
        return literal(spec.local_addr) if spec.local_addr else "127.0.0.1"
    host, port = spec.endpoints[0]
    return reachable_address(host, port, spec.local_addr)


async def take_name(spec: JobSpec, machine: Machine) -> tuple[NodeId, str, int]:
    """Return a node name that no live agent of this run holds on this machine, and its lock."""
    base = spec.local_addr or machine.host
    for i in range(1, NAMES + 1):
        node = NodeId(base if i == 1 else f"{base}#{i}")
        lock = NodeLock(spec.run_id, node)
        try:
            return node, lock.tag, await lock.acquire()
        except NodeBusy:
            if spec.local_addr is not None or spec.backend is Backend.MEMORY or i == NAMES:
                raise  # two groups of one run without a store between them would publish side by side
    raise AssertionError("unreachable")
