"""The whole story on one machine, with nothing faked: two nodes and a spare, a real etcd, a real training run.

A rank is killed with SIGKILL, later a whole node; each time all ranks stop, the cause is named, and the run goes on
from a verified checkpoint. At the end the weights are compared, bit for bit, with those of an uninterrupted run.
``make demo`` runs it; it needs no root, no GPU, and about a minute. What it leaves lies in demo-out/.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
OUT = Path(os.environ.get("DEMO_OUT", "demo-out")).absolute()
STEPS, SAVE_EVERY, STEP_MS = 600, 25, 12
NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
LEASE_S = 6
PATIENCE_S = 120.0


def command(name: str) -> str:
    """Return a program of this environment, or of PATH."""
    here = Path(sys.executable).parent / name
    found = str(here) if here.exists() else shutil.which(name)
    if found is None:
        sys.exit(f"demo: {name} is not installed; run `make demo`, which installs it")
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"demo: waited {PATIENCE_S:g} s in vain until {what}; the logs are in {OUT}")
        time.sleep(0.005)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def etcd(directory: Path) -> Iterator[str]:
    """Run an etcd of one member on loopback; yield its endpoint."""
    clients, peers = (f"127.0.0.1:{free_port()}" for _ in range(2))
    directory.mkdir(mode=0o700)
    argv = [command("etcd"), "--data-dir", str(directory / "data"), "--name", "demo"]
    argv += ["--listen-client-urls", f"http://{clients}", "--advertise-client-urls", f"http://{clients}"]
    argv += ["--listen-peer-urls", f"http://{peers}", "--initial-advertise-peer-urls", f"http://{peers}"]
    argv += ["--initial-cluster", f"demo=http://{peers}"]
    with open(directory / "log", "wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        yield clients
    finally:
        server.kill()
        server.wait()


@dataclass
class Node:
    """One agent of the run, as a node on an address of its own."""

    address: str
    process: subprocess.Popen[bytes]
    logs: Path

    def events(self) -> list[dict[str, object]]:
        lines = [line for path in self.logs.glob("*/events.jsonl") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    def family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            keeper = psutil.Process(self.process.pid)
            return [keeper, *keeper.children(recursive=True)]
        return []

    def ranks(self) -> list[psutil.Process]:
        return [p for p in self.family() if "train.py" in " ".join(p.cmdline()) and "-u" in p.cmdline()[:3]]


def launch(endpoint: str, address: str, out: Path, checkpoints: Path) -> Node:
    logs = OUT / "logs" / address
    argv = [command("remuster"), "--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint]
    argv += ["--rdzv-id", "demo", "--rdzv-conf", f"lease_ttl={LEASE_S},kill_bound=2", "--local-addr", address]
    argv += ["--max-restarts", "3", "--log-dir", str(logs), "--checkpoint-dir", str(checkpoints)]
    argv += [str(DIGITS / "train.py"), *training(out), "--step-ms", str(STEP_MS)]
    logs.mkdir(parents=True)
    with open(logs / "console", "wb") as console:
        return Node(address, subprocess.Popen(argv, stdout=console, stderr=console), logs)


def training(out: Path) -> list[str]:
    return ["--out", str(out), "--steps", str(STEPS), "--save-every", str(SAVE_EVERY)]


def steps_of(out: Path, attempt: int) -> int:
    """Return how many steps rank 0 has logged in an attempt."""
    path = out / "samples" / f"attempt-{attempt}-rank-0.jsonl"
    return max(0, path.read_text().count("\n") - 1) if path.exists() else 0


def recovery(nodes: list[Node], out: Path, attempt: int, what: str, victim: list[psutil.Process]) -> None:
    """Kill, wait for the first step after it, and show what happened when."""
    began = time.time()
    for process in victim:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    print(f"\n{what}: kill -9 of {', '.join(str(p.pid) for p in victim)}")
    until(lambda: steps_of(out, attempt + 1) > 0, f"attempt {attempt + 1} takes a step")
    stepped = time.time()
    alive = [node for node in nodes if node.process.poll() is None]
    seen: dict[str, float] = {}
    for event in (event for node in alive for event in node.events()):
        at = datetime.datetime.fromisoformat(str(event["timestamp"]).replace("Z", "+00:00")).timestamp()
        name, rounds = str(event["event"]), event.get("round")
        if at >= began and rounds in (attempt + 1, attempt + 2):
            seen[name] = min(at, seen.get(name, at))
            if name == "verdict":
                verdict = event
    rows = [
        ("noticed; every node stops its ranks", seen.get("stopping")),
        ("all ranks proven dead, the cause judged", seen.get("forming")),
        ("mustered again on healthy nodes", seen.get("running")),
        ("first step of the new attempt", stepped),
    ]
    for label, at in rows:
        print(f"  {'-' if at is None else f'{(at - began) * 1000:8.0f} ms'}  {label}")
    print(f"  verdict: {verdict['sentence']}")
    print(f"  decision: {verdict['decision']}")


def main() -> int:
    if OUT.exists():
        shutil.rmtree(OUT)
    OUT.mkdir(mode=0o700)
    baseline, run, checkpoints = OUT / "baseline", OUT / "run", OUT / "checkpoints"
    for path in (baseline, run, checkpoints):
        path.mkdir()
    print(f"1. the uninterrupted run: {STEPS} steps, 2 ranks, one node")
    argv = [command("remuster"), "--nproc-per-node", "2", "--log-dir", str(OUT / "logs" / "baseline")]
    with open(OUT / "baseline-console", "wb") as console:
        subprocess.run(
            [*argv, str(DIGITS / "train.py"), *training(baseline)], check=True, stdout=console, stderr=console
        )
    print(f"2. the same run on two nodes and a spare ({', '.join(NODES)}), leases of {LEASE_S} s, a real etcd")
    with etcd(OUT / "etcd") as endpoint:
        nodes = [launch(endpoint, address, run, checkpoints) for address in NODES]
        try:
            return story(nodes, baseline, run, checkpoints)
        finally:
            for process in [p for node in nodes for p in node.family()]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def story(nodes: list[Node], baseline: Path, run: Path, checkpoints: Path) -> int:
    until(lambda: steps_of(run, 0) >= 4 * SAVE_EVERY, "the run has taken some steps")
    busy = [node for node in nodes if node.ranks()]
    recovery(nodes, run, 0, f"a rank on {busy[1].address}", busy[1].ranks()[:1])
    until(lambda: steps_of(run, 1) >= 4 * SAVE_EVERY, "attempt 1 has taken some steps")
    busy = [node for node in nodes if node.ranks()]
    recovery(nodes, run, 1, f"the whole node {busy[0].address}", busy[0].family())
    gone = busy[0]
    codes = {node.address: node.process.wait(PATIENCE_S) for node in nodes if node is not gone}
    print(f"\n3. the job has ended; exit codes {codes}")
    survivor = next(node for node in nodes if node is not gone)
    for path in sorted(survivor.logs.glob("*/attempts/attempt-*.json")):
        record = json.loads(path.read_text())
        members = ", ".join(f"{m['node']} (ranks {m['ranks']})" for m in record["members"])
        start = f"resumed from step {record['resume']['step']}" if record["resume"] else "started from nothing"
        print(f"  attempt {record['attempt']}: {record['state']:9} {start}; {members}; {record['verdict']['class']}")
    left = [p for p in psutil.process_iter() if str(run) in cmdline(p)]
    print(f"  processes left: {len(left)}; published steps: {len(list(checkpoints.glob('step-*')))}")
    print("\n4. the proof")
    check = subprocess.run([sys.executable, str(DIGITS / "check.py"), str(baseline), str(run)], check=False)
    return check.returncode if not any(codes.values()) and not left else 1


def cmdline(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


if __name__ == "__main__":
    sys.exit(main())
