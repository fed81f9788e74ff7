"""(b) From ``kill -9`` of a rank to the first line of *every* rank of the next round, with a script without torch.

All jobs of a setting stand side by side and lose a rank in turn, each time another one. torchrun looks at its ranks
every 0.1 s from a round's start on: the kills are spread evenly over that beat, so that its luck is the same in every
run of the bench. Times are the ranks' own clocks. torchrun runs twice, as it comes and with
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; the better one counts. Rounds of one node are cheap: three times as many there.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rows import Found, Row, best, medians
from stage import HERE, REMUSTER, TORCHRUN, CannotMeasure, Desk, Job, Stage, free_ports

RANK = str(HERE / "rank.py")
OURS = "remuster"
SHARED, UNSHARED = "torchrun as it comes", "torchrun, store not shared"
THEIRS: dict[str, dict[str, str]] = {SHARED: {}, UNSHARED: {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}}
SLOTS = 2
RANKS = ("--nproc-per-node", str(SLOTS), "--max-restarts", "1000", RANK)
NODES = ("127.0.0.2", "127.0.0.3")
QUIET_S, BEAT_S = 0.5, 0.1  # from the first lines of a round to the next kill: between the one and the sum of both
CALM = 4  # failures in a row that are no storm
Samples = dict[str, list[float]]


class Standing(NamedTuple):
    """A job whose ranks stand, and where they report."""

    jobs: list[Job]
    desk: Desk
    world: int


Starts = dict[str, Callable[[], Standing]]


def measure(stage: Stage, runs: int) -> Found:
    """Compare restarts on one node, and on two agents at two addresses."""
    one = _alternate(stage, _one_node(stage), 3 * runs)
    two = _alternate(stage, _two_agents(stage), runs)
    rows: list[Row] = []
    notes: list[str] = []
    for what, samples, bar in (("one node, 2 ranks", one, 4.0), ("two agents, 4 ranks", two, 10.0)):
        s = medians(samples)
        better = best(s, list(THEIRS))
        rows.append(Row("b", f"kill -9 to all first lines, {what}", s[OURS], better, s[better], "s", at_least=bar))
        said = ", ".join(f"{name} {s[name]:.3f} s" for name in THEIRS)
        notes.append(f"(b) {what}: {said}; the better one counts")
    return Found(rows, {"one node": one, "two agents": two}, tuple(notes))


def _one_node(stage: Stage) -> Starts:
    def alone(args: tuple[str, ...], env: dict[str, str]) -> Standing:
        desk = stage.desk()
        return Standing([stage.start(*args, "--standalone", *RANKS, desk=desk, env=env)], desk, SLOTS)

    return {OURS: partial(alone, REMUSTER, {}), **{name: partial(alone, TORCHRUN, env) for name, env in THEIRS.items()}}


def _two_agents(stage: Stage) -> Starts:
    """Start two agents of each program: ours meet in an etcd, torchrun's in the store that the first of them hosts."""
    meet = ("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{stage.etcd()}")
    starts: Starts = {OURS: partial(_pair, stage, (*REMUSTER, *meet), {})}
    for name, env in THEIRS.items():
        meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NODES[0]}:{free_ports(1)[0]}")
        starts[name] = partial(_pair, stage, (*TORCHRUN, *meet), env)
    return starts


def _pair(stage: Stage, args: tuple[str, ...], env: dict[str, str]) -> Standing:
    desk, run_id = stage.desk(), f"bench-{uuid.uuid4().hex[:8]}"
    args = (*args, "--rdzv-id", run_id, "--nnodes", str(len(NODES)))
    jobs = [stage.start(*args, "--local-addr", node, *RANKS, desk=desk, env=env) for node in NODES]
    return Standing(jobs, desk, SLOTS * len(NODES))


def _alternate(stage: Stage, starts: Starts, runs: int) -> Samples:
    """Kill a rank of each job in turn, ``runs`` times; the first time all around is not counted.

    Ours is started anew before it would take so many failures without progress for a storm, and wait.
    """
    samples: Samples = {name: [] for name in starts}
    standing = {name: start() for name, start in starts.items()}
    for name, job in standing.items():
        _first_lines(name, job, 0.0)
    for i in range(runs + 1):
        if i and i % CALM == 0:
            stage.end(standing[OURS].jobs)
            standing[OURS] = starts[OURS]()
            _first_lines(OURS, standing[OURS], 0.0)
        for name, job in standing.items():
            time.sleep(QUIET_S + BEAT_S * i / runs)
            began = time.monotonic()
            os.kill(job.desk.pids[i % job.world], signal.SIGKILL)
            took = _first_lines(name, job, began) - began
            if i:
                samples[name].append(took)
    stage.end(job for one in standing.values() for job in one.jobs)
    return samples


def _first_lines(name: str, job: Standing, since_s: float) -> float:
    try:
        return job.desk.first_lines(job.world, since_s, job.jobs)
    except CannotMeasure as error:
        raise CannotMeasure(f"{name}: {error}") from None
