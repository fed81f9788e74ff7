"""Which CPUs each rank of this node is bound to (--numa-binding): pure, from what `topology` has read.

The CPUs are those that this command may use, and no others: a share of a node that a scheduler or a container gave is
divided as a whole node is. Where that cannot be, the reason is told, and no rank is bound. Called by `build`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ..agent.rank_ranges import listed


class Mode(str, Enum):
    """How near a rank's CPUs are, in torchrun's words."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


class Cpu(NamedTuple):
    """Where one CPU is: its NUMA node and socket, and the lowest CPU of its core and of its last-level cache."""

    node: int
    socket: int
    core: int
    cache: int


class CannotBindError(Exception):
    """Why no rank is bound: the end of a sentence."""


def spread(cpus: Mapping[int, Cpu], ranks: int) -> tuple[int, ...]:
    """Return a NUMA node for each of ``ranks`` without GPUs: neighbours together, as many on each as can be."""
    nodes = sorted({cpu.node for cpu in cpus.values()})
    return tuple(nodes[rank * len(nodes) // ranks] for rank in range(ranks))


def bind(mode: Mode, cpus: Mapping[int, Cpu], nodes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each rank, whose NUMA nodes are ``nodes``; CannotBindError when one would have none."""
    here = {node: {n: cpu for n, cpu in cpus.items() if cpu.node == node} for node in set(nodes)}
    for rank, node in enumerate(nodes):
        if not here[node]:
            raise CannotBindError(
                f"local rank {rank} belongs to NUMA node {node}, and none of that node's CPUs may be used here"
            )
    peers = {node: [rank for rank, other in enumerate(nodes) if other == node] for node in here}
    return tuple(
        tuple(sorted(_of_rank(mode, cpus, here[node], peers[node].index(rank), len(peers[node]))))
        for rank, node in enumerate(nodes)
    )


def _of_rank(mode: Mode, cpus: Mapping[int, Cpu], near: Mapping[int, Cpu], nth: int, peers: int) -> Sequence[int]:
    """Return the CPUs of the ``nth`` of ``peers`` ranks on the NUMA node whose CPUs are ``near``."""
    if mode is Mode.NODE:
        return list(near)
    if mode is Mode.SOCKET:
        socket = near[min(near)].socket
        return [n for n, cpu in cpus.items() if cpu.socket == socket]
    if mode is Mode.CORE_COMPLEX:
        groups = sorted(_grouped({n: cpu.cache for n, cpu in near.items()}), key=lambda group: (-len(group), group))
        return groups[nth % len(groups)]
    cores = _grouped({n: cpu.core for n, cpu in near.items()})
    if len(cores) < peers:
        node = next(iter(near.values())).node
        raise CannotBindError(
            f"{peers} ranks belong to NUMA node {node}, and {len(cores)} of its cores may be used here"
        )
    each, more = divmod(len(cores), peers)  # as torchrun has it, the first ranks get one core more
    begin = nth * each + min(nth, more)
    return [n for core in cores[begin : begin + each + (nth < more)] for n in core]


def _grouped(keys: Mapping[int, int]) -> list[list[int]]:
    """Return the CPUs with the same key together, in the order of their keys."""
    groups: dict[int, list[int]] = {}
    for n in sorted(keys):
        groups.setdefault(keys[n], []).append(n)
    return [groups[key] for key in sorted(groups)]


def words(sets: Sequence[tuple[int, ...]]) -> str:
    """Return who is bound to what, for a line: '0-3 to CPUs 0-15, 4-7 to CPUs 16-31'."""
    begins = [i for i in range(len(sets)) if i == 0 or sets[i] != sets[i - 1]]
    ends = [*begins[1:], len(sets)]
    parts = (f"{listed(range(b, e))} to CPUs {listed(sets[b])}" for b, e in zip(begins, ends, strict=True))
    return "; ".join(parts)


def parsed(text: str) -> list[int]:
    """Return the numbers of a list of CPUs as the kernel writes it; ValueError for anything else."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
