"""The soak as a whole: runs that follow each other, each judged at its end, and the report. Not a test module."""

from __future__ import annotations

import itertools
import json
import os
import platform
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from command.cluster import Place
from command.processes import boottime
from soak.growth import grown
from soak.plan import bursts
from soak.report import KEPT, Report, RunReport
from soak.run import CONF, EXAMPLE, LEASE_S, NODES, SoakRun, Training
from soak.stores import SoakStore
from soak.storm import Storm

from remuster.rendezvous.keys import RECORDS

STEP_MS = 50
SAVE_EVERY = 10
SHARE = 0.1  # of the time: one run, if nobody disturbed it
LEAST_S, MOST_S = 30.0, 600.0
ROLL_CALL = 3  # bursts between two looks at the store
ALONE_S = 900.0  # the uninterrupted run
EXPIRED = 3.0  # leases, until the last one of a killed agent is gone
BLAMELESS = ("user", "config", "gpu-app", "oom", "numerical", "checkpoint")  # families that nothing here belongs to


class Soak:
    """Everything between the first start and the last look."""

    def __init__(self, folder: Path, seed: str, seconds: float) -> None:
        share = min(MOST_S, max(LEAST_S, seconds * SHARE))
        steps = int(share * 1000 / STEP_MS) // SAVE_EVERY * SAVE_EVERY
        self.training = Training(steps, SAVE_EVERY, STEP_MS)
        self.report = Report(seed, seconds, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), (), self._settings())
        self._folder = folder
        self._baseline = folder / "baseline"
        self._began = boottime()
        self._stores = {size: SoakStore(folder / f"etcd-{size}", size) for size in (1, 3)}
        self._plans = {size: bursts(f"{seed}/{size}", size) for size in (1, 3)}
        self._run: SoakRun | None = None

    def _settings(self) -> tuple[str, ...]:
        return (
            f"{len(NODES)} nodes of one rank, two of them in a round",
            f"{self.training.steps} steps of at least {STEP_MS} ms, a checkpoint every {SAVE_EVERY}",
            f"`{CONF}`",
        )

    def go(self) -> None:
        """Soak for the time given; AssertionError when something does not hold."""
        try:
            self._train_undisturbed()
            end = boottime() + self.report.asked_s
            for i in itertools.count():
                self._one_run(i, (1, 3)[i % 2], end)
                if boottime() >= end:
                    break
            self.report.verdict = "Passed."
        except AssertionError as error:
            self.report.verdict = f"FAILED: {str(error).partition(chr(10))[0]}."
            raise
        finally:
            self.report.took_s = boottime() - self._began

    def close(self) -> None:
        """End whatever is left."""
        if self._run is not None:
            self._run.close()
        for store in self._stores.values():
            store.close()

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def _train_undisturbed(self) -> None:
        place = Place(self._folder / "alone")
        place.env["TORCHINDUCTOR_CACHE_DIR"] = str(self._folder / "inductor")
        args = self.training.args(self._baseline, slowly=False)
        try:
            node = place.command("--nproc-per-node", "2", EXAMPLE / "train.py", *args)
            assert node.exit_code(ALONE_S) == 0, node.say()
        finally:
            place.close()
        self._say(f"uninterrupted: {self.training.steps} steps in {boottime() - self._began:.0f} s")

    def _one_run(self, i: int, size: int, end: float) -> None:
        store = self._stores[size]
        store.start()
        self.report.machine = self.report.machine or machine(store)
        witness = NODES[i % len(NODES)]
        report = RunReport(size, witness)
        self.report.runs.append(report)
        self._say(f"run {i}, etcd of {size}; the command of node {witness} is never killed")
        began = boottime()
        run = SoakRun(self._folder / f"run-{i}", store, f"soak-{self.report.seed}-{i}", self.training, witness)
        self._run = run
        storm = Storm(run, report, self._say)
        storm.recover("its start")
        for number, burst in enumerate(self._plans[size], 1):
            if boottime() >= end or run.over:
                break
            storm.pass_over(burst)
            if number % ROLL_CALL == 0:
                storm.roll_call()
            self.report.load.append(os.getloadavg()[0])
        storm.finish()
        store.wait_ready()  # it may just have been started again
        report.took_s = boottime() - began
        report.stepped = len(run.stepped)
        self._judge(run, report)
        report.ended = True
        run.close()
        store.rest()
        self._run = None

    def _judge(self, run: SoakRun, report: RunReport) -> None:
        """Assert what must hold of a run that has ended."""
        store = run.store
        tree = store.tree(run.prefix)
        job = json.loads(tree["job"])
        assert (job["phase"], job["outcome"]["exit_code"]) == ("D", 0), job
        report.rounds = job["round"]
        records = {int(key[-10:]): json.loads(raw) for key, raw in tree.items() if key.startswith(RECORDS)}
        missing = set(range(1, report.rounds + 1)) - set(records)
        assert not missing, f"rounds without a record: {missing}"
        report.classes = Counter(record["verdict"]["class"] for record in records.values())
        blamed = [
            record["verdict"]["sentence"] for record in records.values() if record["verdict"]["family"] in BLAMELESS
        ]
        assert not blamed, f"the program was blamed for what was done to it: {blamed}"

        report.lost_steps = run.compare(self._baseline)
        report.left, report.left_bytes = store.keys(run.prefix), sum(len(k) + len(v) for k, v in tree.items())
        over = {kind: count for kind, count in report.left.items() if kind not in KEPT}
        assert not over, f"keys of an ended run are left: {over}"
        gone = boottime() + EXPIRED * LEASE_S
        while leases := store.leases():
            assert boottime() < gone, f"{leases} leases are left of an ended run"
            time.sleep(0.1)
        run.check_left()
        self.report.locks += run.lock_files()

        trends = report.trends()
        much = {who: found for who, t in trends.items() if (found := grown(t))}
        self._say(
            f"done: {report.rounds} rounds, {dict(report.classes)}; of {len(trends)} processes grow: {much or 'none'}"
        )
        assert not much, f"growth in run {len(self.report.runs) - 1}: {much}"


def machine(store: SoakStore) -> tuple[str, ...]:
    """Return what the summary says of the machine."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()})",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"torch {version('torch')}",
        f"grpcio {version('grpcio')}",
        f"etcd {store.status().version}",
    )
