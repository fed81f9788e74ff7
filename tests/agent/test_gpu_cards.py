"""Which rank uses which GPU, and what counts as shown since the attempt began."""

from __future__ import annotations

import pytest

from remuster.agent.gpu_cards import Card, User, Xid, announced, cards_of, chosen, computing, shown, users
from remuster.health.observed import Gpu

A, B, C = "GPU-aa11-1", "GPU-aa22-2", "GPU-bb33-3"
PARTS = ("MIG-c1-0", "MIG-c2-1")
CARDS = (Card(0, A, "0000:1b:00.0"), Card(1, B, "0000:2b:00.0"), Card(2, C, "0000:3b:00.0", PARTS))


@pytest.mark.parametrize(
    ("visible", "local", "found"),
    [
        (None, 0, (0,)),
        (None, 2, (2,)),
        (None, 3, ()),
        ("2,0", 0, (2,)),
        ("2,0", 1, (0,)),
        ("2,0", 2, ()),
        (" 1 , 2 ", 1, (2,)),
        ("1", 0, (1,)),  # --virtual-local-rank
        ("", 0, ()),
        ("-1", 0, ()),
        ("0,-1,2", 2, ()),  # CUDA ends the list there
        ("7", 0, ()),
        (f"{C},{A}", 0, (2,)),
        ("GPU-bb", 0, (2,)),
        ("GPU-aa", 0, ()),  # means two
        ("GPU-zz", 0, ()),
        ("NoDevFiles", 0, ()),
        (",".join(PARTS), 1, (2,)),
        ("MIG-c1", 0, (2,)),
        (f"MIG-{B}/1/0", 0, (1,)),
        ("MIG-zz", 0, ()),
    ],
)
def test_the_environment_gives_a_rank_its_gpu(visible: str | None, local: int, found: tuple[int, ...]) -> None:
    assert cards_of(User(9, local, visible), CARDS) == found


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2,0", (2, 0)),
        ("0,9,1", (0,)),  # CUDA ends the list there
        ("GPU-bb,0", (2, 0)),
        (",".join(PARTS), (2,)),  # two parts of one
    ],
)
def test_all_that_a_list_leaves(visible: str | None, found: tuple[int, ...]) -> None:
    assert chosen(visible, CARDS) == found


def test_two_ranks_may_share_a_gpu_and_one_may_have_two() -> None:
    ranks = (User(4, 0, "2,2"), User(5, 1, "2,2"), User(6, 2, None))
    assert users(CARDS, ranks, {}, frozenset()) == {0: (), 1: (), 2: (4, 5, 6)}
    seen = {4: frozenset({0, 1})}
    assert users(CARDS, ranks, seen, frozenset()) == {0: (4,), 1: (4,), 2: (5, 6)}


def test_a_gpu_that_only_others_use_is_no_ranks_unless_it_names_it() -> None:
    ranks = (User(0, 0, None), User(1, 1, "0,1"))
    assert users(CARDS, ranks, {}, frozenset({0, 1})) == {0: (), 1: (1,), 2: ()}


@pytest.mark.parametrize(
    ("percent", "found"),
    [
        ({0: 90, 1: 0, 2: 0, 3: 90}, {4: True, 5: True, 6: False}),
        ({0: 0, 1: 0, 2: 0}, {4: False, 5: False, 6: False}),
        ({0: 0, 2: 0}, {4: False, 6: False}),  # of rank 5 one is unknown
        ({1: 1}, {5: True}),
        ({}, {}),
    ],
)
def test_a_rank_computes_when_one_of_its_gpus_does(percent: dict[int, int], found: dict[int, bool]) -> None:
    assert computing(percent, {0: (4, 5), 1: (5,), 2: (6,), 3: ()}) == found


BUSY = Card(1, B, "0000:2b:00.0", counters={"ecc_uncorrected": 5, "pcie_replay": 2, "slowed_by_heat": 0})


@pytest.mark.parametrize(
    ("now", "most", "xids", "fact"),
    [
        (BUSY, {}, (), None),
        (
            BUSY._replace(counters={**BUSY.counters, "ecc_uncorrected": 7}),
            {},
            (),
            {"counters": (("ecc_uncorrected", 2),)},
        ),
        (BUSY._replace(counters={**BUSY.counters, "pcie_replay": 0}), {}, (), None),  # the driver was loaded anew
        (BUSY, {"slowed_by_heat": 1}, (), {"counters": (("slowed_by_heat", 1),)}),
        (BUSY._replace(counters={}), {}, (), None),
        (BUSY._replace(lost=True, counters={}), {}, (), {"lost": True}),
        (BUSY._replace(recovery=2), {}, (), {"recovery": 2}),
        (BUSY, {}, (Xid(0, 79, 104.0), Xid(1, 31, 99.5), Xid(1, 45, 101.25)), {"xids": ((31, -0.5), (45, 1.25))}),
    ],
    ids=["nothing", "risen", "fallen", "gauge", "unread", "lost", "recovery", "xids"],
)
def test_only_what_has_changed_is_shown(
    now: Card, most: dict[str, int], xids: tuple[Xid, ...], fact: dict[str, object] | None
) -> None:
    found = shown(now, BUSY, most, xids, (3,), 100.0)
    assert found == (None if fact is None else Gpu(B, "0000:2b:00.0", 1, (3,))._replace(**fact))


@pytest.mark.parametrize(
    ("env", "answer"),
    [
        ({}, False),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, False),
        ({"CUDA_VISIBLE_DEVICES": None}, False),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, True),
        ({"SLURM_JOB_GPUS": "0"}, True),
    ],
)
def test_who_names_gpus_means_to_use_them(env: dict[str, str | None], answer: bool) -> None:
    assert announced(env) == answer
