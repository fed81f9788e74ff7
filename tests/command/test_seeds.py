"""The seeds' experiment: a training run on two nodes is killed over and over; what does it go on from, and how?

It saves every 50 steps. A rank is killed after step 135: the run resumes from 100; again after 150: from 150. Then a
step 200 stands there that nobody may resume from: without COMMITTED, and later with it but without one of its files.
The steps after each way back are those of a run that nobody touched, to the last bit: samples, loss, gradients' norm,
learning rate. Three failures in a row spend the budget. The records say all of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Cluster
from command.figures import FIGURE
from command.processes import boottime, until
from digits_check import EXAMPLE, check, lacking

TRAINING = ("--steps", "250", "--save-every", "50")
PACE = ("--step-ms", "80")  # so that a kill after step 135 comes well before step 150, also on a busy machine
COMPARED = 20  # steps after each way back
ENOUGH = 150 + COMPARED + 1  # a rank that is in a step has logged the one before it, as have all others
RESTARTS = 6  # four failures that are gone on from, and two of three in a row
WAIT_S = 100.0  # importing torch takes seconds, and many times that on a busy machine
SHARD = "rng-1.pt"

pytestmark = [
    pytest.mark.drill,  # for its length; it needs no root
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(lacking), reason=f"needs {lacking}"),
]


def name_of(step: int) -> str:
    return f"step-{step:012d}"


class Experiment:
    """The run, and whoever spoils it. Round ``n`` is attempt ``n - 1``, for every failure is a rank's."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.out = cluster.folder / "run"
        self.kept = cluster.folder / "kept"
        self.heard = cluster.folder / "heard"
        self.killed_s: dict[int, float] = {}  # by round
        self.first_step_s: dict[int, float] = {}
        listener = cluster.script("listener", '#!/bin/sh\nexec cat >> "$1"\n')
        listener.chmod(0o700)
        options = ("--nnodes", "2", "--max-restarts", str(RESTARTS), "--checkpoint-dir", self.kept)
        told = ("--on-event", f"{listener} {self.heard}")
        script = (EXAMPLE / "train.py", "--out", self.out, *TRAINING, *PACE)
        self.nodes = [cluster.start(number, *options, *told, *script) for number in (2, 3)]

    def lines(self, n: int) -> list[dict[str, Any]]:
        """Return what rank 0 of round ``n`` has logged: where it resumed, and each step that it finished."""
        path = self.out / "samples" / f"attempt-{n - 1}-rank-0.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def step(self, n: int) -> int:
        """Return the last step that rank 0 of round ``n`` finished."""
        return int(next((line["step"] for line in reversed(self.lines(n)[1:])), 0))

    def reach(self, n: int, step: int, resumed: int | None) -> None:
        """Wait until round ``n``, which must go on from ``resumed``, has done a step; note when it did its first."""
        until(lambda: self.step(n), f"round {n} does a step", WAIT_S, self.cluster.say)
        self.first_step_s[n] = boottime()
        assert self.lines(n)[0]["resume_step"] == resumed, f"round {n} goes on from another step\n{self.cluster.say()}"
        until(lambda: self.step(n) >= step, f"round {n} does step {step}", WAIT_S, self.cluster.say)

    def started(self, n: int) -> None:
        """Wait until the store knows that all ranks of round ``n`` have started."""
        key = f"started/{n:010d}/"

        def all_of_it() -> bool:
            return len([one for one in self.cluster.tree() if one.startswith(key)]) == len(self.nodes)

        until(all_of_it, f"round {n} has started", WAIT_S, self.cluster.say)

    def kill(self, n: int, rank: int, newest: int) -> None:
        """Kill a rank of round ``n`` while ``newest`` is the newest step that the run has published."""
        pids = {r: pid for node in self.nodes for r, pid in node.ranks().items()}
        self.killed_s[n] = boottime()
        os.kill(pids[rank], signal.SIGKILL)
        assert self.step(n) < newest + 50, "the training outran the test: it needs a slower pace on this machine"

    def plant(self, n: int, committed: bool) -> None:
        """Leave a step 200 as round ``n`` would publish it, but for COMMITTED, or else for one data file."""
        fresh, place = self.kept / "planting", self.kept / name_of(200)
        shutil.copytree(self.kept / name_of(150), fresh)
        manifest = json.loads((fresh / "manifest.json").read_text())
        text = json.dumps({**manifest, "step": 200, "round": n, "attempt": n - 1}, indent=1).encode()
        (fresh / "manifest.json").write_bytes(text)
        (fresh / "COMMITTED").write_text(f"sha256:{hashlib.sha256(text).hexdigest()}\n")
        (fresh / (SHARD if committed else "COMMITTED")).unlink()
        if place.exists():
            shutil.rmtree(place)
        fresh.rename(place)
        hint = {"schema_version": 1, "step": 200, "name": place.name}
        (self.kept / "latest.json").write_text(json.dumps(hint))

    def events(self) -> list[dict[str, Any]]:
        """Return what the listener was told so far."""
        lines = self.heard.read_text().split("\n")[:-1] if self.heard.exists() else []
        return [json.loads(line) for line in lines]

    def warned(self, n: int) -> None:
        """Wait until the listener was told what the end of round ``n`` left of the budget."""

        def found() -> bool:
            return any((event["event"], event["round"]) == ("budget", n) for event in self.events())

        until(found, f"the budget after round {n} is told", WAIT_S, self.cluster.say)


def test_the_seeds_experiment(cluster: Cluster, record_property: Callable[[str, object], None]) -> None:
    cluster.env["TORCHINDUCTOR_CACHE_DIR"] = str(cluster.folder / "inductor")  # torch's, else in TMPDIR
    began_s = boottime()
    job = Experiment(cluster)
    base = cluster.folder / "base"
    untouched = cluster.command("--nproc-per-node", "2", EXAMPLE / "train.py", "--out", base, *TRAINING)

    job.reach(1, 135, resumed=None)
    job.kill(1, rank=1, newest=100)
    job.reach(2, 151, resumed=100)  # ranks go on when all of them know that 150 is published
    job.kill(2, rank=0, newest=150)
    for n, committed in ((3, False), (4, True)):
        job.reach(n, ENOUGH, resumed=150)
        job.plant(n, committed)
        job.kill(n, rank=n % 2, newest=150)
    job.reach(5, ENOUGH, resumed=150)
    job.kill(5, rank=1, newest=150)
    for n in (6, 7):
        job.started(n)
        job.warned(n - 1)
        job.kill(n, rank=0, newest=150)
    assert [node.exit_code(WAIT_S) for node in job.nodes] == [128 + signal.SIGKILL] * 2, cluster.say()
    assert untouched.exit_code(WAIT_S) == 0, untouched.say()
    took_s = boottime() - began_s
    cluster.check_left()

    _compare_steps(job, base)
    records = job.nodes[0].records()
    _check_records(records)
    _check_events(job.events())
    _check_summary(job, records)
    for figure in (f"{took_s:.0f} s, {len(records)} rounds", *_figures(job, records)):
        record_property(FIGURE, figure)


def _compare_steps(job: Experiment, base: Path) -> None:
    """What each attempt did first is what the untouched run did there, to the last bit."""
    expected = check.effective(check.attempts_of(base))
    attempts = {attempt.number + 1: attempt for attempt in check.attempts_of(job.out)}
    for n, start in {1: 0, 2: 100, 3: 150, 4: 150, 5: 150}.items():
        assert attempts[n].resumed_from == start
        assert min(attempts[n].steps) == start + 1
        for step in range(start + 1, start + COMPARED + 1):
            assert attempts[n].steps[step] == expected[step], f"round {n} is another run from step {step} on"
            assert all(expected[step].figures)


def _check_records(records: list[dict[str, Any]]) -> None:
    """Each attempt's record says what it went on from, what it passed over and why, and who pays."""
    assert [record["resume"] and record["resume"]["step"] for record in records] == [None, 100, *[150] * 5]
    assert [record["refused"] for record in records[:3]] == [[], [], []]
    refused = [one for record in records[3:] for one in record["refused"]]
    assert [one["name"] for one in refused] == [name_of(200)] * 4
    stale = "stale: published by round 4, but round 5 had already resumed from step 150"
    reasons = ("'COMMITTED' is missing", f"'{SHARD}' is missing", stale, stale)
    assert all(one["reason"].startswith(reason) for one, reason in zip(refused, reasons, strict=True)), refused
    assert {record["verdict"]["class"] for record in records} == {"killed_unknown"}
    assert [record["verdict"]["rank"] for record in records] == [1, 0, 1, 0, 1, 0, 0]
    assert [record["charged_to"] for record in records] == [*["unknown"] * RESTARTS, None]
    assert records[1]["refunded"] == "unknown", "150 was progress"
    assert [record["state"] for record in records] == [*["retried"] * RESTARTS, "failed"]
    assert "all 6 restarts of this launch are used up" in records[-1]["decision"]


def _check_events(events: list[dict[str, Any]]) -> None:
    """The listener was told in time that the budget ends, that a step was passed over, and at last that it is over."""
    told = [(event["event"], event["round"], event["budget_left"]) for event in events]
    assert [one for one in told if one[0] == "budget"] == [("budget", 5, 1), ("budget", 6, 0)]
    ends = [one for one in told if one[0] not in ("budget", "roll_back")]
    assert ends[-1:] == [("stop", 7, None)]
    assert ends[:-1] in ([], [("recovered", 2, None)])  # the kill after step 151 may come before 150 is verified
    assert told.index(("budget", 6, 0)) < told.index(("stop", 7, None))
    backward = [event for event in events if event["event"] == "roll_back"]
    assert sorted((event["round"], event["step"]) for event in backward) == [(n, 150) for n in (4, 5, 6, 7)]
    assert all(f"{name_of(200)} is passed over" in event["sentence"] for event in backward)


def _check_summary(job: Experiment, records: list[dict[str, Any]]) -> None:
    """The launch in figures lies in each run directory and beside the checkpoints."""
    beside = job.kept / ".remuster" / job.cluster.run_id
    mirrored = json.loads((beside / f"summary-round-{len(records)}.json").read_text())
    assert len(list((beside / "attempts").iterdir())) == len(records)
    for node in job.nodes:
        summary = json.loads((node.run_dir / "summary.json").read_text())
        assert all(summary[name] == mirrored[name] for name in ("run_id", "rounds", "outcome", "attempts", "totals"))
        assert summary["queue_ms"] > 0
    assert (mirrored["rounds"], mirrored["outcome"]["exit_code"]) == ({"first": 1, "last": 7}, 137)
    attempts, totals = mirrored["attempts"], mirrored["totals"]
    assert (totals["attempts"], totals["charged"]) == (7, RESTARTS)
    assert [one["resume_step"] for one in attempts] == [None, 100, *[150] * 5]
    ran = {attempt.number: max(attempt.steps, default=0) for attempt in check.attempts_of(job.out)}
    for before, after in pairwise(attempts[:5]):  # every rank had done what rank 0 has logged, but for its last step
        reached = ran[before["attempt"]]
        assert reached - after["resume_step"] - 1 <= before["lost_steps"] <= reached - after["resume_step"] + 1
        assert before["times_ms"]["load"] > 0
    assert attempts[0]["lost_steps"] >= 34
    assert totals["lost_steps"] == sum(one["lost_steps"] for one in attempts[:-1])
    assert [one["times_ms"]["save"] is not None for one in attempts[:3]] == [True, True, False]
    assert totals["load_ms"]["longest"] == max(one["times_ms"]["load"] or 0 for one in attempts)
    for one in attempts[:4]:
        n = one["round"]
        assert 0 < one["recovery_ms"] < 1000 * (job.first_step_s[n + 1] - job.killed_s[n])
    assert totals["recovery_ms"]["longest"] == max(one["recovery_ms"] for one in attempts[:-1])


def _figures(job: Experiment, records: list[dict[str, Any]]) -> list[str]:
    """Say what each way back took, and how many steps that had been done were done again."""
    ran = {attempt.number + 1: max(attempt.steps, default=0) for attempt in check.attempts_of(job.out)}
    said = []
    for n, record in ((one["round"], after) for one, after in pairwise(records)):
        last, start, times = ran.get(n, 0), record["resume"]["step"], record["times_ms"]
        line = f"killed at step {last}, from step {start}: " if last else f"killed at once, from step {start}: "
        line += f"{max(0, last - start)} steps again, ranks after {times['recovery']:.0f} ms"
        if n + 1 in job.first_step_s:
            line += f", first step after {job.first_step_s[n + 1] - job.killed_s[n]:.1f} s"
        said.append(line)
    return said
