"""When a job is queued again, and that the other nodes leave first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_slurm import put_program

from remuster.agent import requeue
from remuster.agent.requeue import Ended, due
from remuster.agent.spec import SlurmStep
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.store import Put, Txn


@pytest.mark.parametrize(
    ("ended", "wanted"),
    [
        (Ended(75, True), True),
        (Ended(75, True, "user_exception", 900, 1.0), True),
        (Ended(75, False, "notice"), True),
        (Ended(75, False, "node_lost"), True),
        (Ended(75, False, "gpu_lost", 4, 1.0), True),
        (Ended(75, False, "gpu_lost", 5, 1.0), False),
        (Ended(75, False, "gpu_lost", 5, 3600.0), True),
        (Ended(75, False, "rank_hang"), True),
        (Ended(75, False, "rank_hang", 5, 1.0), False),
        (Ended(75, False, "fs_transient"), True),
        (Ended(75, False), False),
        (Ended(143, False), False),
        (Ended(0, True), False),
        (Ended(1, True, "user_exception"), False),
    ],
)
def test_after_which_end_a_job_is_requeued(ended: Ended, wanted: bool) -> None:
    assert due(ended) is wanted


@pytest.mark.parametrize(
    ("body", "done", "words"),
    [
        ("exit 0", True, ""),
        # Slurm ends the scontrol that has asked for it, with all other processes of the step.
        (
            '[ $1 = requeue ] || exit 1; mkdir "$0-once" && kill -TERM $$; '
            'echo "Job is pending execution for job 812" >&2; exit 1',
            True,
            "",
        ),
        ("echo 'Access/permission denied' >&2; exit 1", False, "Access/permission denied; on a login node: scontrol r"),
    ],
)
def test_what_becomes_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, done: bool, words: str) -> None:
    put_program(tmp_path, body)
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    assert asyncio.run(requeue.requeue(SlurmStep("812", "0"), (), lambda pids: None, said.append)) is done
    assert said[0] == "job 812 is requeued: scontrol requeue 812"
    assert len(said) == (1 if done else 2)
    assert words in said[-1]


@pytest.mark.parametrize(
    ("says", "asks"),
    [
        ("JobState=RUNNING Restarts=1", False),
        ("JobState=RUNNING Restarts=0", True),
        ("JobState=COMPLETING Restarts=1", True),  # another node was quicker: the bad nodes are still to be told
    ],
)
def test_a_launch_that_runs_by_now_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, asks: bool
) -> None:
    """An agent was left over where slurmd had died, and Slurm has given the job other nodes since."""
    body = f'[ $1 = requeue ] && echo x >>"$0-asked"; echo "JobId=812 JobName=t UserId=u(1) {says}"'
    put_program(tmp_path, body)
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    assert asyncio.run(requeue.requeue(SlurmStep("812", "0"), (), lambda pids: None, said.append))
    assert (tmp_path / "scontrol-asked").exists() is asks
    assert said[0].startswith("job 812 is requeued" if asks else "job 812 is not requeued: Slurm has done that")


def test_the_other_nodes_leave_first() -> None:
    keys = Keys("run")

    async def play() -> list[str]:
        store, said = MemoryStore(), list[str]()
        await store.grant(60, 7)
        await store.txn(Txn((), (Put(f"{keys.nodes}b", b"x", 7), Put(keys.job, b"y"))))
        waits = asyncio.ensure_future(requeue.others_left(store, keys))
        waits.add_done_callback(lambda _: said.append("waited"))
        await asyncio.wait({waits}, timeout=0.2)
        said.append("there")
        await store.revoke(7)
        await waits
        await asyncio.sleep(0)
        await requeue.others_left(store, keys)
        await store.close()
        return said

    assert asyncio.run(asyncio.wait_for(play(), 5)) == ["there", "waited"]
