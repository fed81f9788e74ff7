"""Which CPUs ranks are bound to, as a table over machines that we do not have, and what holds on any machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.rank_ranges import listed
from remuster.launcher.binding import CannotBindError, Cpu, Mode, bind, parsed, spread, words


def machine(sockets: int, nodes: int, cores: int, per_cache: int = 4) -> dict[int, Cpu]:
    """Return ``nodes`` NUMA nodes on each socket, ``cores`` on each, two CPUs on a core, numbered as Linux does."""
    count = sockets * nodes * cores
    return {
        n: Cpu(n % count // cores, n % count // (nodes * cores), n % count, n % count // per_cache * per_cache)
        for n in range(2 * count)
    }


BIG = machine(2, 2, 8)  # 4 nodes of 8 cores; node 1 has CPUs 8-15 and 40-47


def of(mode: Mode, nodes: list[int], allowed: str = "0-63") -> list[str]:
    cpus = {n: BIG[n] for n in parsed(allowed)}
    return [listed(one) for one in bind(mode, cpus, nodes)]


@pytest.mark.parametrize(
    ("mode", "nodes", "allowed", "bound"),
    [
        (Mode.NODE, [1, 3], "0-63", ["8-15,40-47", "24-31,56-63"]),
        (Mode.NODE, [1, 1], "0-9", ["8-9", "8-9"]),  # torchrun takes the mask into account, too
        (Mode.SOCKET, [1, 2], "0-63", ["0-15,32-47", "16-31,48-63"]),
        (Mode.SOCKET, [1], "0-3,8-9,40", ["0-3,8-9,40"]),
        (Mode.EXCLUSIVE, [1, 1], "0-63", ["8-11,40-43", "12-15,44-47"]),
        (Mode.EXCLUSIVE, [1, 1, 1], "0-63", ["8-10,40-42", "11-13,43-45", "14-15,46-47"]),
        (Mode.EXCLUSIVE, [0, 1, 0], "0-2,8", ["0-1", "8", "2"]),
        (Mode.EXCLUSIVE, [0], "0,32", ["0,32"]),
        (Mode.CORE_COMPLEX, [1, 1, 1], "0-63", ["8-11,40-43", "12-15,44-47", "8-11,40-43"]),
        (Mode.CORE_COMPLEX, [1, 1], "11-15", ["12-15", "11"]),  # the larger part first
    ],
)
def test_who_is_bound_to_what(mode: Mode, nodes: list[int], allowed: str, bound: list[str]) -> None:
    assert of(mode, nodes, allowed) == bound


@pytest.mark.parametrize(
    ("mode", "nodes", "allowed", "why"),
    [
        (Mode.NODE, [0, 2], "0-15", "local rank 1 belongs to NUMA node 2, and none of that node's CPUs may be used"),
        (Mode.EXCLUSIVE, [0, 0, 0], "0-1,32", "3 ranks belong to NUMA node 0, and 2 of its cores may be used here"),
    ],
)
def test_who_cannot_be_bound_is_told_why(mode: Mode, nodes: list[int], allowed: str, why: str) -> None:
    with pytest.raises(CannotBindError, match=why):
        of(mode, nodes, allowed)


@given(
    st.sampled_from(Mode),
    st.sets(st.sampled_from(sorted(BIG)), min_size=1),
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
)
def test_no_rank_leaves_the_mask_and_none_is_without_a_cpu(mode: Mode, allowed: set[int], nodes: list[int]) -> None:
    cpus = {n: BIG[n] for n in allowed}
    try:
        bound = bind(mode, cpus, nodes)
    except CannotBindError:
        here = {BIG[n].node for n in allowed}
        assert mode is Mode.EXCLUSIVE or not here >= set(nodes), "only a node without CPUs is a reason"
        return
    assert len(bound) == len(nodes)
    for node, one in zip(nodes, bound, strict=True):
        assert one
        assert set(one) <= allowed
        assert any(BIG[n].node == node for n in one)
    if mode is Mode.EXCLUSIVE:
        cores = [BIG[n].core for one in bound for n in {BIG[m].core: m for m in one}.values()]
        assert len(set(cores)) == len(cores), "two ranks share a core"


def test_without_gpus_ranks_are_spread_in_neighbours() -> None:
    assert spread(BIG, 8) == (0, 0, 1, 1, 2, 2, 3, 3)
    assert spread(BIG, 2) == (0, 2)
    assert spread({n: BIG[n] for n in (8, 30)}, 3) == (1, 1, 3)


def test_lists_of_cpus_as_the_kernel_writes_them() -> None:
    assert parsed("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert parsed("\n") == []
    with pytest.raises(ValueError, match="x"):
        parsed("x")
    assert listed((0, 1, 2, 5)) == "0-2,5"
    assert words([(0, 1), (0, 1), (2, 3), (0, 1)]) == "0-1 to CPUs 0-1; 2 to CPUs 2-3; 3 to CPUs 0-1"
