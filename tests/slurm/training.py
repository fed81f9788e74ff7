"""A training job of a cluster: its command line, what is seen of it, and that it ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from drills.sight import until
from drills.signs import Signs, overlap
from slurm.cluster import ROOT, Cluster

SCRIPT = Path(__file__).with_name("train.py")
LEASE_S = 6  # the least that a kill bound of 2 s allows
KEEP = "--no-kill --kill-on-bad-exit=0"  # of srun: a node that is lost or ends does not take the others with it
CONF = f"lease_ttl={LEASE_S},kill_bound=2"

# What a job's output says of steps.
ENDS, GOES_ON = re.compile(r"round \d+ ends at step (\d+)"), re.compile(r"round \d+ goes on at step (\d+)")
VERIFIED = re.compile(r"step (\d+) verified")


class Training:
    """``train.py`` in a job, with everything that it leaves in one directory that all nodes share."""

    def __init__(self, cluster: Cluster, steps: int, step_ms: int = 50, restarts: int = 3) -> None:
        self.out = cluster.directory / "training"
        self.out.mkdir()
        self._steps = steps
        self._step_ms = step_ms
        self._restarts = restarts
        self._signs = Signs(self.out / "alive")
        self.steps = Signs(self.out / "alive.steps")

    def remuster(self, *options: str) -> str:
        """Return the command with ``options``, without the srun before it."""
        words = ["remuster", "--rdzv-conf", CONF, f"--max-restarts={self._restarts}"]
        words += ["--checkpoint-dir", f"{self.out}/checkpoints", "--log-dir", f"{self.out}/logs"]
        words += [*options, str(SCRIPT), str(self.out)]
        return " ".join([*words, str(self._steps), str(self._step_ms)])

    def rounds(self) -> dict[int, list[str]]:
        return self._signs.rounds()

    def wait_round(self, n: int, count: int, timeout_s: float = 40.0) -> set[str]:
        """Wait until ranks of ``count`` nodes train in round ``n``; return the nodes' names."""
        until(
            lambda: len(self.steps.first(n)) == count,
            lambda: f"round {n} trains on {count} nodes; alive: {self.rounds()}, trained: {self.steps.rounds()}",
            timeout_s,
        )
        return set(self.steps.first(n))

    def wait_saved(self, n: int = 1) -> None:
        """Wait until ``n`` checkpoints are whole."""
        until(lambda: len(list((self.out / "checkpoints").glob("step-*/manifest.json"))) >= n, "a checkpoint")

    def wait_agents(self, count: int) -> None:
        """Wait until so many agents have seen a round run, in it or standing by."""
        logs = self.out / "logs"
        until(
            lambda: sum('"running"' in f.read_text() for f in logs.glob("*/events.jsonl")) >= count,
            f"{count} agents have joined",
        )

    def begun(self, n: int) -> int:
        """Return at which step round ``n`` began."""
        return int((self.out / f"round-{n}").read_text())

    def wait_step(self, n: int) -> None:
        until(lambda: any(sign.step >= n for sign in self.steps.read()), f"step {n}")

    def first_sign(self, n: int) -> float:
        """Return when the last rank of round ``n`` first said that it lives."""
        return max(sign.at for sign in self._signs.first(n).values())

    def check_soon(self, n: int, since: float) -> None:
        """See that all ranks of round ``n`` lived within a lease and two seconds after the fault at ``since``."""
        took_s = self.first_sign(n) - since
        assert took_s < LEASE_S + 2.0, f"round {n} began {took_s:.2f} s after the fault; the lease is {LEASE_S} s"

    def last_signs(self, n: int) -> dict[str, float]:
        return {node: sign.at for node, sign in self._signs.last(n).items()}

    def record(self, attempt: int) -> dict[str, Any]:
        """Return the attempt's record, from beside the checkpoints."""

        def read() -> dict[str, Any] | None:
            found = list((self.out / "checkpoints").glob(f".remuster/*/attempts/attempt-{attempt:03d}-round-*.json"))
            return json.loads(found[0].read_text()) if found else None

        record = until(read, f"the record of attempt {attempt}")
        assert record is not None
        return record

    def check_final(self) -> None:
        """See that the weights are those of a run that nothing has disturbed, and that the world was always one."""
        alone = self.out / "undisturbed"
        alone.mkdir()
        env = {"PATH": os.defpath, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, str(SCRIPT), str(alone), str(self._steps)], env=env, check=True)
        assert (self.out / "final").read_text() == (alone / "final").read_text()
        self.check_one_world()

    def check_one_world(self, without: Collection[str] = ()) -> None:
        """See that each round was dead before the next one lived."""
        assert not (lived := overlap([sign for sign in self._signs.read() if sign.node not in without])), lived
