"""Under which address and name a node takes part in a run. Used by ``main.py`` before the agent joins."""

from __future__ import annotations

from typing import NamedTuple

from ..rendezvous.records import NodeId
from .identity import Machine
from .node_lock import NodeBusy, NodeLock
from .ports import AddressError, is_loopback, reachable_address
from .spec import Backend, JobSpec

NAMES = 64  # agents of one run on one host without a name of their own, told apart by a number


class Address(NamedTuple):
    """Where other nodes reach this one. ``name`` is the node's own for --local-addr, '' when that names none."""

    text: str
    name: str = ""
    interface: str = ""  # that --local-addr named


def own_address(spec: JobSpec) -> Address:
    """Return how other nodes reach this one; AddressError when they cannot."""
    if spec.local_addr:
        return _given(spec, spec.local_addr)
    if spec.backend is Backend.MEMORY:
        return Address("127.0.0.1")
    host, port = spec.endpoints[0]
    return Address(reachable_address(host, port))


def _given(spec: JobSpec, local_addr: str) -> Address:
    from .interfaces import is_interface, local_address

    store = spec.endpoints[0][0] if spec.endpoints else ""
    text = local_address(local_addr, store)
    if spec.max_nodes > 1 and is_loopback(text) and not is_loopback(store):
        raise AddressError(
            f"--local-addr {local_addr} is {text}, which leads every node to itself, and the nodes meet at {store}; "
            "give the address or the interface at which the others reach this machine, or leave it out"
        )
    if is_interface(local_addr):  # the same word on all nodes
        return Address(text, interface=local_addr)
    return Address(text, name=local_addr)


async def take_name(spec: JobSpec, machine: Machine, given: str) -> tuple[NodeId, str, int]:
    """Return a node name that no live agent of this run holds on this machine, ``given`` if there is one; its lock."""
    base = given or machine.host
    for i in range(1, NAMES + 1):
        node = NodeId(base if i == 1 else f"{base}#{i}")
        lock = NodeLock(spec.run_id, node)
        try:
            return node, lock.tag, await lock.acquire()
        except NodeBusy:
            if given or spec.backend is Backend.MEMORY or i == NAMES:
                raise  # two groups of one run without a store between them would publish side by side
    raise AssertionError("unreachable")
