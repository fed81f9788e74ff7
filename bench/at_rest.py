"""Jobs that stand, and what (c) and (d) look at in them: keeper, agent and guardian of ours, the agent of torchrun's.

Four jobs of one node with two ranks: each program without a server, and with its store (ours leads its run in an etcd,
torchrun hosts its c10d store). The ranks are ``sleep``: a Python in them would share pages with the agents.
"""

from __future__ import annotations

import time
import uuid

import procfs
from stage import REMUSTER, TORCHRUN, CannotMeasure, Job, Stage, free_ports, until

REST_S, LEAST_S = 10.0, 3.0  # to the first look: from the start of the commands, and at least from that of the ranks
OURS, OURS_ETCD, THEIRS, THEIRS_C10D = "remuster", "remuster, etcd", "torchrun", "torchrun, c10d"
PAIRS = ((OURS, THEIRS, "standalone"), (OURS_ETCD, THEIRS_C10D, "with a store"))
_RANKS = ("--nproc-per-node", "2", "--no-python", "sleep", "100000")


def start(stage: Stage, name: str) -> Job:
    """Start one of the four jobs."""
    if name in (OURS, THEIRS):
        where: tuple[str, ...] = ("--standalone",)
    else:
        meet = ("etcd", stage.etcd()) if name == OURS_ETCD else ("c10d", free_ports(1)[0])
        where = ("--rdzv-backend", meet[0], "--rdzv-endpoint", f"127.0.0.1:{meet[1]}")
        where += ("--rdzv-id", f"bench-{uuid.uuid4().hex[:8]}", "--nnodes", "1", "--local-addr", "127.0.0.1")
    return stage.start(*(REMUSTER if name in (OURS, OURS_ETCD) else TORCHRUN), *where, *_RANKS)


def supervisors(name: str, job: Job) -> dict[str, int]:
    """Return the processes that look after the ranks, by name."""
    if name in (THEIRS, THEIRS_C10D):
        return {"agent": job.pid}
    agent = next(pid for pid in procfs.children(job.pid) if procfs.argv(pid) == procfs.argv(job.pid))
    guardian = next(pid for pid in procfs.children(agent) if procfs.name(pid) == "rank-guardian")
    return {"keeper": job.pid, "agent": agent, "guardian": guardian}


def rest(jobs: list[Job]) -> None:
    """Wait until jobs that were just started are at rest."""
    began = time.monotonic()

    def standing() -> bool:
        ended = next((job for job in jobs if job.process.poll() is not None), None)
        if ended is not None:
            raise CannotMeasure(f"{ended.process.args!r} ended with {ended.process.returncode}\n{ended.said()}")
        return all(sum(procfs.name(pid) == "sleep" for pid in job.pids()) == 2 for job in jobs)

    until(standing, "the ranks of jobs at rest run")
    time.sleep(max(LEAST_S, REST_S - (time.monotonic() - began)))
