"""A node that is no longer its Slurm job's leaves; what Slurm does not say clearly, and twice, ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from command.processes import until
from fake_slurm import put_program

from remuster.agent import node_words as words
from remuster.agent.slurm_job import SlurmJob
from remuster.agent.slurm_watch import SlurmWatch, gone, pause_s
from remuster.agent.sources import Begun
from remuster.agent.spec import SlurmStep
from remuster.rendezvous.records import Round

STEP = SlurmStep("7", "0", 1)
MINE = SlurmJob("RUNNING", restarts=1, nodes="node[1-3]")
LINE = "JobId=7 JobName=t UserId=u(0) GroupId=g(0) JobState={state} Reason=None Restarts={restarts} NodeList={nodes}\n"
RUNS = LINE.format(state="RUNNING", restarts=1, nodes="node2")
TAKEN = LINE.format(state="RUNNING", restarts=1, nodes="node1")


@pytest.mark.parametrize(
    ("job", "node", "why"),
    [
        (MINE, "node2", ""),
        (MINE._replace(nodes="node[1,3]"), "node2", "Slurm has taken node2 from job 7"),
        (MINE._replace(nodes="node[1,3]"), "", ""),  # it is not known what Slurm calls this node
        (MINE._replace(nodes=""), "node2", ""),
        (MINE._replace(nodes="node[1,3"), "node2", ""),  # no list
        (MINE._replace(nodes="node1,node22"), "node2", "Slurm has taken node2 from job 7"),
        (MINE._replace(state="SUSPENDED"), "node2", ""),
        (MINE._replace(state="SOMETHING_NEW"), "node2", ""),
        (MINE._replace(state="COMPLETING"), "node2", "Slurm says COMPLETING of job 7"),
        (MINE._replace(state="NODE_FAIL"), "", "Slurm says NODE_FAIL of job 7"),
        (MINE._replace(state="PENDING", restarts=2, nodes=""), "node2", "Slurm has requeued job 7"),
        (MINE._replace(restarts=2), "node2", "Slurm has requeued job 7"),  # it runs again, by other agents
        (MINE._replace(restarts=0), "node2", ""),  # not printed by every version
    ],
)
def test_what_slurm_says_of_a_job(job: SlurmJob, node: str, why: str) -> None:
    assert gone(job, STEP, node) == why


@pytest.mark.parametrize(("lease_ttl_s", "nodes", "wait_s"), [(15, 1, 30.0), (15, 1000, 1000.0), (6, 4, 12.0)])
def test_all_nodes_together_ask_at_most_once_in_a_second(lease_ttl_s: int, nodes: int, wait_s: float) -> None:
    assert pause_s(lease_ttl_s, nodes) == wait_s
    assert nodes / wait_s <= 1


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a scontrol that gives these answers, one after the other, then the last for ever; return its diary."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(*answers: str) -> Path:
        for i, answer in enumerate(answers, 1):
            (tmp_path / str(i)).write_text(answer)
        last = len(answers)
        put_program(
            tmp_path,
            f'cd {tmp_path}\necho "$*" >> diary\nn=$(wc -l < diary)\n'
            f"[ $n -le {last} ] || n={last}\n[ -s $n ] || exit 1\ncat $n",
        )
        return tmp_path / "diary"

    return make


def asked(diary: Path) -> int:
    return len(diary.read_text().splitlines()) if diary.exists() else 0


async def test_a_node_that_slurm_has_taken_leaves_once_slurm_has_said_so_twice(slurm: Callable[..., Path]) -> None:
    diary = slurm(RUNS, TAKEN)
    posted: list[words.Event] = []
    watch = SlurmWatch(STEP, "node2", 0.01, posted.append, lambda pids: None)
    watch.begin(Begun(Round(1), 0.0, ()))
    await asyncio.to_thread(until, lambda: posted, "the node is to leave")
    await watch.close()
    assert [(event.signal, event.why) for event in posted if isinstance(event, words.LeaveAsked)] == [
        (0, "Slurm has taken node2 from job 7")
    ]
    assert diary.read_text().splitlines() == ["-o show job 7"] * 3


async def test_once_is_not_enough_and_no_answer_is_none(slurm: Callable[..., Path]) -> None:
    diary = slurm(TAKEN, RUNS, TAKEN, "")  # and then it fails for ever
    posted: list[words.Event] = []
    watch = SlurmWatch(STEP, "node2", 0.01, posted.append, lambda pids: None)
    for n in (1, 2):
        watch.begin(Begun(Round(n), 0.0, ()))
    await asyncio.to_thread(until, lambda: asked(diary) > 4, "it has been asked five times")
    await watch.close()
    assert posted == []
