"""What a node is compared by, as a table: the words in which its command line is told to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.agent.spec import Backend, Embedded, JobSpec
from remuster.agent.terms import ELSEWHERE, terms
from remuster.health.own_signatures import OwnSignatures
from remuster.rendezvous.admission import Admit
from remuster.rendezvous.budget import Bound
from remuster.rendezvous.membership import Order, disagreement
from remuster.rendezvous.records import NodeId, StoreLoss, Terms

SPEC = JobSpec(
    *(2, 2, 8, "run", "/home/me/train.py", ("--lr", "1")),
    backend=Backend.ETCD,
    endpoints=(("10.0.0.1", 2379),),
    max_restarts=3,
)
C10D = Embedded("10.0.0.1", 29400)


def test_the_whole_table() -> None:
    assert terms(SPEC, ELSEWHERE) == (
        ("--rdzv-backend", "etcd"),
        ("an --rdzv-endpoint by which it is reached at", ELSEWHERE),
        ("--nnodes", "2"),
        ("the script", "train.py"),
        ("--max-restarts", "3"),
        ("--retry-budget", "none"),
        ("--exit-code-map", "none"),
        ("--checkpoint-format", "none"),
        ("--signatures", "none"),
        ("--on-store-loss", "fence"),
        ("--admit", "restart"),
        ("--rank-order", "sticky"),
        ("in --rdzv-conf a lease_ttl of", "15"),
        ("in --rdzv-conf a kill_bound of", "3"),
    )


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (replace(SPEC, max_nodes=4), "--nnodes 2, the run (begun by node b) has 2:4"),
        (replace(SPEC, script="eval.py"), "the script train.py, the run (begun by node b) has eval.py"),
        (replace(SPEC, script="train.py", module=True), "the run (begun by node b) has -m train.py"),
        (replace(SPEC, no_python=True), "the script train.py, the run (begun by node b) has --no-python train.py"),
        (replace(SPEC, max_restarts=5), "--max-restarts 3, the run (begun by node b) has 5"),
        (replace(SPEC, bound_restarts=False), "--max-restarts 3, the run (begun by node b) has none"),
        (replace(SPEC, retry_budget=(Bound("network", 2, 5400), Bound("user", 1))), "b) has network=2/90m,user=1"),
        (replace(SPEC, signatures=OwnSignatures()), "--signatures none, the run (begun by node b) has digest "),
        (replace(SPEC, admit=Admit.NOW), "--admit restart, the run (begun by node b) has now"),
        (replace(SPEC, rank_order=Order.HOSTNAME), "--rank-order sticky, the run (begun by node b) has hostname"),
        (replace(SPEC, store_loss=StoreLoss.HOLD), "--on-store-loss fence, the run (begun by node b) has hold"),
        (replace(SPEC, lease_ttl_s=30), "in --rdzv-conf a lease_ttl of 15, the run (begun by node b) has 30"),
        (replace(SPEC, kill_bound_s=2.5), "in --rdzv-conf a kill_bound of 3, the run (begun by node b) has 2.5"),
        (replace(SPEC, embedded=C10D), "--rdzv-backend etcd, the run (begun by node b) has c10d"),
        (replace(SPEC, embedded=C10D, place=1, master=("10.0.0.1", 29400)), "etcd, the run (begun by node b) has st"),
    ],
)  # fmt: skip
def test_what_differs_is_named(there: JobSpec, says: str) -> None:
    assert says in disagreement(terms(SPEC, ELSEWHERE), Terms(NodeId("b"), terms(there, ELSEWHERE)))


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, nproc=4),
        replace(SPEC, script="/elsewhere/train.py", script_args=("--lr", "2")),
        replace(SPEC, endpoints=(("10.0.0.2", 2379),), launch_id="two", local_addr="10.0.0.7"),
        replace(SPEC, join_timeout_s=5.0, last_call_timeout_s=1.0),
    ],
)
def test_what_may_differ(other: JobSpec) -> None:
    assert terms(other, ELSEWHERE) == terms(SPEC, ELSEWHERE)


@pytest.mark.parametrize("there", [ELSEWHERE, "loopback of h1 (b1-f0)", "loopback of h2 (b2-f1)"])
def test_nodes_of_several_loopbacks_are_told_apart(there: str) -> None:
    """etcd under ``localhost`` on each of its members' machines: every node would call itself 127.0.0.1."""
    here = "loopback of h2 (b2-f1)"
    why = disagreement(terms(SPEC, here), Terms(NodeId("h1"), terms(SPEC, there)))
    assert bool(why) == (here != there)
    assert (
        not why or f"an --rdzv-endpoint by which it is reached at {here}, the run (begun by node h1) has {there}" in why
    )


def test_places_and_the_address_of_the_master_are_not_compared() -> None:
    one = replace(SPEC, embedded=C10D, place=0, master=("node-0", 29500))
    assert terms(one, ELSEWHERE) == terms(replace(one, place=1, master=("10.0.0.1", 29500)), ELSEWHERE)


def test_it_is_bounded() -> None:
    long = replace(SPEC, script="x" * 10_000, retry_budget=tuple(Bound(f"{i}" * 100, i) for i in range(100)))
    assert all(len(value) <= 256 for _, value in terms(long, ELSEWHERE))
