"""Which nodes a requeued job is not given again, and what Slurm is told and asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from remuster.agent.exclude import exclude, prepare
from remuster.agent.exclusion import Allocation, Bad, Exclusion, after, exclusion
from remuster.agent.scontrol import Unknown

NODES = ("node1", "node2", "node3")
JOB = Allocation(NODES, needed=3, there=8)
SICK = Bad("node3", "gpu_lost")


def record(n: int, members: str, node: str = "", action: str | None = None, fault: bool = True) -> dict[str, Any]:
    verdict = {"class": "gpu_lost", "node": node, "node_fault": fault}
    places = [{"node": f"node{i}"} for i in members]
    return {"round": n, "members": places, "verdict": verdict, "node_action": action}


@pytest.mark.parametrize(
    ("records", "blamed"),
    [
        ([record(1, "123", "node3", "quarantine")], ["node3"]),
        ([record(1, "123", "node3", "aside")], ["node3"]),
        ([record(1, "123", "node3", "check")], []),  # it must pass its check, and no more is known
        ([record(1, "123", "node3", "aside", fault=False)], []),  # --exit-code-map=…=retry-elsewhere blames no node
        ([record(1, "123", "", None, fault=False)], []),
        ([record(1, "123", "node3", "aside"), record(2, "124", "node2", "quarantine")], ["node3", "node2"]),
        ([record(1, "123", "node3", "aside"), record(2, "123")], []),  # it was needed, and has done its part again
        ([record(1, "123", "node3", "aside"), record(2, "123", "node3", "aside")], ["node3"]),
        ([{"round": 1}, {"members": [1, None], "verdict": []}], []),
    ],
)
def test_who_is_blamed_at_the_end(records: Sequence[dict[str, Any]], blamed: list[str]) -> None:
    bad: tuple[Bad, ...] = ()
    for one in records:
        bad = after(bad, one)
    assert [one.node for one in bad] == blamed


@pytest.mark.parametrize(
    ("bad", "job", "nodes", "says"),
    [
        ((), JOB, (), ""),
        ((SICK,), JOB, ("node3",), "excluded from the requeue: node3 (gpu_lost)"),
        ((Bad("node3#2", "gpu_ecc"),), JOB, ("node3",), "excluded from the requeue: node3 (gpu_ecc)"),
        ((Bad("node3.cluster", "gpu_ecc"),), JOB, ("node3",), "excluded from the requeue: node3 (gpu_ecc)"),
        ((Bad("10.0.0.9", "gpu_ecc"),), JOB, (), ""),  # no name of Slurm's
        ((SICK,), JOB._replace(excluded=("node3", "node7")), (), ""),  # it is
        ((SICK,), JOB._replace(excluded=("node7",)), ("node7", "node3"), "node3 (gpu_lost), as 1 before"),
        ((SICK,), JOB._replace(required=frozenset(NODES)), (), ""),  # Slurm would find no node
        (
            (SICK,),
            JOB._replace(there=3),
            (),
            "node3 (gpu_lost) cannot be excluded from the requeue: the partition has 3 nodes and the job asks for 3; "
            "have it drained",
        ),
        ((SICK,), JOB._replace(there=5, excluded=("node7", "node8")), (), "the partition has 5 nodes"),
        (
            tuple(Bad(f"n{i}", "gpu_ecc") for i in range(6)),
            Allocation(tuple(f"n{i}" for i in range(6)), needed=2, there=99),
            tuple(f"n{i}" for i in range(6)),
            "n3 (gpu_ecc) and 2 more",
        ),
    ],
)
def test_who_is_excluded(bad: tuple[Bad, ...], job: Allocation, nodes: tuple[str, ...], says: str) -> None:
    """Red when what was excluded before is forgotten, and when so many are that the job can start nowhere."""
    chosen = exclusion(bad, job)
    assert chosen.nodes == nodes
    assert says in chosen.sentence if says else not chosen.sentence


# --- Slurm ------------------------------------------------------------------------------------------------------------
JOB_LINE = (
    "JobId=7 JobName=a ExcNodeList=node9 NumNodes=99 UserId=u(1) GroupId=g(1) JobState=RUNNING Partition=main "
    "ReqNodeList=(null) ExcNodeList=node[6-7] NodeList=node[1-3] NumNodes=3-3 NumCPUs=3 Comment=TotalNodes=1\n"
)
ANSWERS = {
    "-o show job 7": JOB_LINE,
    "-o show partition main": "PartitionName=main Nodes=node[1-8] State=UP TotalCPUs=64 TotalNodes=8\n",
    "update JobId=7 ExcNodeList=node6,node7,node3": "",
}


class Slurm:
    """Answers as it was told to, and remembers what it was asked."""

    def __init__(self, times: int = 99, **lost: str) -> None:
        self.asked: list[str] = []
        self.lost = lost
        self.times = times  # so often it does not answer

    async def scontrol(self, words: Sequence[str]) -> str | Unknown:
        line = " ".join(words)
        self.asked.append(line)
        verb = next((word for word in words if word in self.lost), "")
        self.times -= bool(verb)
        return Unknown(self.lost[verb]) if verb and self.times >= 0 else ANSWERS[line]


def play(slurm: Slurm, *bad: Bad) -> tuple[Exclusion, list[str]]:
    said: list[str] = []

    async def both() -> Exclusion:
        chosen = await prepare("7", bad, slurm.scontrol)
        await exclude("7", chosen, slurm.scontrol, said.append)
        return chosen

    return asyncio.run(both()), said


def test_slurm_is_asked_before_and_told_after() -> None:
    slurm = Slurm()
    chosen, said = play(slurm, SICK)
    assert chosen.nodes == ("node6", "node7", "node3")
    assert said == ["excluded from the requeue: node3 (gpu_lost), as 2 before"]
    assert slurm.asked[-1] == "update JobId=7 ExcNodeList=node6,node7,node3"


def test_nobody_to_blame_asks_nothing() -> None:
    slurm = Slurm()
    assert play(slurm) == (Exclusion((), ""), [])
    assert slurm.asked == []


def test_it_is_told_again_when_slurm_ends_who_tells_it() -> None:
    """Red with one try: the first ``scontrol`` after a requeue was seen to end with SIGTERM (Slurm 22.05)."""
    slurm = Slurm(times=1, update="scontrol ended with -15")
    assert play(slurm, SICK)[1] == ["excluded from the requeue: node3 (gpu_lost), as 2 before"]
    assert slurm.asked.count("update JobId=7 ExcNodeList=node6,node7,node3") == 2


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ({"job": "scontrol is not there"}, "node3 cannot be excluded from the requeue: scontrol is not there"),
        ({"partition": "no answer"}, "node3 cannot be excluded from the requeue: no answer"),
        ({"update": "access denied"}, "node3 (gpu_lost), as 2 before: not done, access denied"),
    ],
)
def test_a_slurm_that_does_not_answer_is_no_error(lost: dict[str, str], says: str) -> None:
    _, (said,) = play(Slurm(**lost), SICK)
    assert says in said
