"""The promise as a whole: kill -9 of random ranks, agents, guardians and keepers under a real training run.

Two nodes and a spare train on digits; a node whose command ended is started again, as a person or systemd would do.
The final weights are bit for bit those of a run that nobody touched, and nothing is left: no process, key, file or
descriptor. Another order of kills: KILLS_SEED.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command.cluster import Cluster, Node
from command.figures import FIGURE
from command.processes import until
from etcd_server import EtcdServer

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
SEED = int(os.environ.get("KILLS_SEED", "20261129"))
NODES = (2, 3, 4)
KINDS = ("rank", "agent", "guardian", "keeper")
SAVE_EVERY = 5
STEPS_PER_KILL = 4 * SAVE_EVERY  # more than it loses and waits for
PROGRESS_S = 60.0  # from a kill to the next checkpoint: three imports of torch on a busy machine
MOST_DESCRIPTORS = 64


class Storm:
    """A job, who keeps its nodes up, and who kills them."""

    def __init__(self, cluster: Cluster, steps: int) -> None:
        self.cluster = cluster
        self.out = cluster.folder / "run"
        self.kept = self.out / "checkpoints"
        self.script = ("--steps", str(steps), "--save-every", str(SAVE_EVERY), "--step-ms", "10")
        self.random = random.Random(SEED)
        self.up = {number: self.start(number) for number in NODES}
        self.killed: Counter[str] = Counter()

    def start(self, number: int) -> Node:
        """Start a node, for the first time or again."""
        return self.cluster.start(
            number,
            *("--nnodes", "2", "--max-restarts", "10000", "--checkpoint-dir", self.kept),
            *(EXAMPLE / "train.py", "--out", self.out, *self.script),
        )

    def tend(self) -> None:
        """Start again what has been killed; whoever else ended is a failure."""
        for number, node in self.up.items():
            if node.process.poll() is not None:
                code = node.exit_code()  # checks that nothing is left of it
                assert code in (137, -signal.SIGKILL), node.say()
                self.up[number] = self.start(number)

    def step(self) -> int:
        """Return the newest committed step."""
        self.tend()
        steps = [
            int(path.parent.name.removeprefix("step-")) for path in self.kept.glob(f"step-{'[0-9]' * 12}/COMMITTED")
        ]
        return max(steps, default=0)

    def progress(self, beyond: int) -> None:
        """Wait until a step beyond that one is committed."""
        until(lambda: self.step() > beyond, f"a step beyond {beyond} is committed", PROGRESS_S, self.cluster.say)

    def kill_one(self) -> None:
        """Kill something that was chosen by chance, once it is there."""
        kind = self.random.choice(KINDS)
        number = self.random.choice(NODES)
        rank = self.random.randrange(2)

        def victim() -> int:
            self.tend()
            if kind != "rank":
                return int(getattr(self.up[number], kind))
            return next((pid for node in self.up.values() for r, pid in node.ranks().items() if r == rank), 0)

        os.kill(until(victim, f"there is a {kind}", show=self.cluster.say), signal.SIGKILL)
        self.killed[kind] += 1

    def end(self) -> None:
        """Wait for the end of the job on all nodes, and look for what is left."""
        until(lambda: self.cluster.job()["phase"] == "D" or self.tend(), "the job is done", 120, self.cluster.say)
        assert [node.exit_code() for node in self.up.values()] == [0, 0, 0], self.cluster.say()
        self.cluster.check_left()


def descriptors(node: Node) -> int:
    """Return how many descriptors the node's agent holds."""
    return len(os.listdir(f"/proc/{node.agent}/fd"))


def storm(cluster: Cluster, kills: int) -> str:
    """Run the job under ``kills`` kills and compare it with an undisturbed one; return the figures."""
    began = time.monotonic()
    steps = 3 * SAVE_EVERY + kills * STEPS_PER_KILL
    base = cluster.folder / "base"
    args = ("--steps", str(steps), "--save-every", str(SAVE_EVERY))
    untouched = cluster.command("--nproc-per-node", "2", EXAMPLE / "train.py", "--out", base, *args)
    assert untouched.exit_code(120) == 0, untouched.say()

    job = Storm(cluster, steps)
    job.progress(0)
    for _ in range(kills):
        before = job.step()
        job.kill_one()
        job.progress(before)
    assert max(descriptors(node) for node in job.up.values()) <= MOST_DESCRIPTORS
    assert job.step() < steps, "the job ended before the last kill; make STEPS_PER_KILL larger"
    job.end()

    done = subprocess.run(
        [sys.executable, EXAMPLE / "check.py", base, job.out], capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "final weights identical to the uninterrupted run: yes", done.stdout
    assert done.returncode == 0
    state = cluster.job()
    assert set(cluster.records()) == set(range(1, state["round"] + 1))
    took = time.monotonic() - began
    who = ", ".join(f"{count} {kind}s" for kind, count in sorted(job.killed.items()))
    return f"{kills} kills ({who}), {state['round']} rounds, {took:.0f} s, weights identical"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    etcd = EtcdServer(tmp_path / "etcd", durable=False)
    etcd.start()
    made = Cluster(tmp_path / "cluster", etcd)
    made.env["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "inductor")  # torch's, else in TMPDIR
    made.conf = "lease_ttl=6,kill_bound=2,last_call_timeout=2,join_timeout=60"
    yield made
    made.close()
    etcd.close()


@pytest.mark.drill  # for its length; it needs no root
@pytest.mark.timeout(420)
def test_twenty_kills(cluster: Cluster, record_property: Callable[[str, object], None]) -> None:
    record_property(FIGURE, storm(cluster, 20))


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_two_hundred_kills(cluster: Cluster, record_property: Callable[[str, object], None]) -> None:
    record_property(FIGURE, storm(cluster, 200))
