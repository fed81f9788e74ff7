"""Imports torch once, and forks ranks that train, one attempt for each line of JSON on its stdin. Not a test module.

A fork costs a tenth of a second, where a fresh rank imports torch for seconds. This process has one thread and has
computed nothing when it forks. For tests only: the launcher never forks a process that has threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from training.trainer import Job, run

PATIENCE_S = 60.0


def attempt(job: Job) -> list[int]:
    """Run all ranks of one attempt; when one has failed the others are killed, as a launcher would. -99: it hung."""
    alive: dict[int, int] = {}
    statuses = [-99] * job.world
    for rank in range(job.world):
        pid = os.fork()
        if pid == 0:
            _become(job, rank)
        alive[pid] = rank
    deadline = time.monotonic() + PATIENCE_S
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            statuses[alive.pop(pid)] = os.waitstatus_to_exitcode(status)
            if status:
                _kill(alive)
        elif time.monotonic() > deadline:
            _kill(alive)
            for left in alive:
                os.waitpid(left, 0)
            break
        else:
            time.sleep(0.005)
    return statuses


def _kill(alive: dict[int, int]) -> None:
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _become(job: Job, rank: int) -> None:
    code = 1
    try:
        environ = {
            "RANK": str(rank),
            "WORLD_SIZE": str(job.world),
            "REMUSTER_RUN_ID": "run-a",
            "REMUSTER_ROUND": str(job.attempt + 1),
            "REMUSTER_ATTEMPT": str(job.attempt),
            "REMUSTER_CHECKPOINT_DIR": f"{job.out}/checkpoints",
        }
        os.environ.update(environ)
        with open(f"{job.out}/rank-{rank}.said", "a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        run(job, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    assert len(os.listdir("/proc/self/task")) == 1
    for line in sys.stdin:
        job = Job(**json.loads(line))
        Path(job.out).mkdir(parents=True, exist_ok=True)
        print(json.dumps(attempt(job)), flush=True)


if __name__ == "__main__":
    main()
