"""Ranks of a round that has been replaced, thawed on purpose while nobody of their node can stop them."""

from __future__ import annotations

import importlib.util
import signal

import pytest
from drills.etcd import Etcd
from drills.job import HERE, Job
from drills.lab import Host, Lab
from drills.sight import boottime, until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="needs torch: pip install -r requirements/train.txt"
    ),
]
LATER = 30  # steps, three publications


def newest_step(job: Job, n: int) -> int:
    """Return the newest step that a rank of round ``n`` has taken."""
    return max((beat.step for beat in job.steps.last(n).values()), default=0)


def test_a_stale_rank_neither_joins_nor_has_its_checkpoint_chosen(
    lab: Lab, hosts: list[Host], etcd: Etcd, job: Job
) -> None:
    directory, worst = lab.directory / "checkpoints", lab.directory / "alive.stale"
    job.nnodes = "2:3"
    job.script = HERE / "stale.py"
    job.arguments = (str(directory),)
    job.options = ("--max-restarts", "3", "--checkpoint-dir", str(directory))
    job.start(*hosts)
    job.wait_round(1, *hosts)
    until(lambda: newest_step(job, 1) > LATER, "round 1 has saved", 60.0)

    master = job.job()["master"].partition(":")[0]
    victim = next(host for host in hosts if host.address != master and host is not job.leader())
    rest = [host for host in hosts if host is not victim]
    ranks = job.commands[victim.name].ranks
    victim.freeze()
    job.wait_round(2, *rest)
    began = newest_step(job, 1)
    until(lambda: newest_step(job, 2) > began + LATER, "round 2 has saved more", 60.0)

    (lab.directory / "alive.worst").write_text(f"{victim.name} 1")
    thawed = boottime()
    for rank in ranks:  # keeper, agent and guardian still stand
        rank.signal(signal.SIGCONT)
    until(lambda: worst.exists() and "joined" in worst.read_text(), "the stale rank has done its worst", 40.0)
    assert "published: 0 " in worst.read_text()
    assert "joined: no" in worst.read_text()
    assert (directory / "step-000000001000" / "COMMITTED").exists()
    job.wait_steps(2, *rest, after=boottime() + 1.0)
    assert job.job()["round"] == 2

    saved = newest_step(job, 2) // 10 * 10
    job.commands[rest[0].name].ranks[0].signal(signal.SIGKILL)
    job.wait_round(3, *rest)
    job.wait_steps(3, *rest)
    lines = [line.split() for line in (lab.directory / "alive.resumed").read_text().splitlines()]
    resumed = {int(step) for _, n, step in lines if n == "3"}
    assert len(resumed) == 1
    assert saved - 10 <= resumed.pop() < 1000

    victim.thaw()
    job.wait_joined_again(victim)
    until(lambda: not any(rank.alive for rank in ranks), "the stale rank is dead")
    job.finish(*hosts)
    refused = {entry["name"]: entry["reason"] for entry in job.commands[rest[0].name].record(2)["refused"]}
    assert "stale: published by round 1, but round 2 had already resumed from step" in refused["step-000000001000"]
    overlapping = [beat for beat in job.beats() if beat.node == victim.name and beat.round == 1 and beat.at > thawed]
    assert overlapping, "the stale rank never lived beside the new round: nothing was shown"
    job.check_nothing_left()
