"""torchrun under the same faults in the same lab, for the table: ``torchrun_beside.py PAGE [FAULT...]``.

Run by hand as root, with ``tests`` in PYTHONPATH; not in CI. Real torchrun on three hosts (c10d on h1,
``--nnodes 2:3``, ``--max-restarts 3``, default settings) runs the script that ours runs, and what it does within a
bounded time is put into words. PAGE is docs/faults.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from drills.catalogue import FAULTS
from drills.course import After, Fault, Victim
from drills.job import HERE
from drills.lab import Host, Lab
from drills.sight import Process, boottime, until
from drills.signs import Signs
from drills.table import keep_outcome

TORCHRUN = Path(sys.executable).with_name("torchrun")
WATCH_S, HEALED_S, START_S = 60.0, 25.0, 90.0
LEADER = 0  # h1 has torchrun's store


@dataclass
class TorchCommand:
    """torchrun on one host."""

    host: Host
    waiter: subprocess.Popen[bytes]
    agent: Process
    ended_s: float | None = None
    code: int = 0

    @property
    def ranks(self) -> list[Process]:
        """Its ranks, whoever is their parent by now."""
        return [p for p in self.host.processes() if "train.py" in p.title and "--nnodes" not in p.title]


class TorchScene:
    """A torchrun job on three hosts, for strikes of the catalogue: what they ask of a scene is here."""

    def __init__(self, fault: Fault, lab: Lab, undo: ExitStack) -> None:
        self.lab, self.undo, self.job = lab, undo, self
        self.hosts = lab.host("h1", "h2", "h3")
        self.victim = self.hosts[LEADER if fault.victim is Victim.LEADER else -1]
        self.heal = lambda: None
        self.conf = ""
        self.arguments = fault.arguments
        self.env: dict[str, Mapping[str, str]] = {}
        self.commands: dict[str, TorchCommand] = {}
        self.steps = Signs(lab.directory / "alive.steps")
        self.at = 0.0
        self.before: set[int] = set()
        self.old: dict[str, bool] = {}  # by host: has it a rank of before the fault?
        self.started: dict[str, set[int]] = {host.name: set() for host in self.hosts}

    @property
    def rest(self) -> list[Host]:
        return [host for host in self.hosts if host is not self.victim]

    @property
    def command(self) -> TorchCommand:
        return self.commands[self.victim.name]

    def start(self) -> None:
        """Start torchrun on all hosts and wait until all ranks train."""
        for host in self.hosts:
            env = {
                "PATH": os.defpath,
                "HOME": "/run",
                "LANG": "C.UTF-8",
                "GLOO_SOCKET_IFNAME": "eth0",
                **self.env.get(host.name, {}),
            }
            argv = [
                *(str(TORCHRUN), "--nnodes", "2:3", "--nproc-per-node", "1", "--max-restarts", "3"),
                *(
                    "--rdzv-backend",
                    "c10d",
                    "--rdzv-endpoint",
                    f"{self.hosts[LEADER].address}:29400",
                    "--rdzv-id",
                    "drill",
                ),
                *(
                    str(HERE / "train.py"),
                    str(self.lab.directory / "alive"),
                    str(self.lab.directory / "finish"),
                    *self.arguments,
                ),
            ]
            waiter, agent = host.spawn(argv, env, self.lab.directory / f"{host.name}.out")
            self.commands[host.name] = TorchCommand(host, waiter, agent)
        until(lambda: len(self._stepping(0.0, self.hosts)) == 3, "all ranks train", START_S)
        self.before = {rank.pid for command in self.commands.values() for rank in command.ranks}

    def _stepping(self, after: float, hosts: list[Host]) -> set[str]:
        """Return the hosts that have taken a step after ``after``."""
        names = {host.name for host in hosts}
        return {b.node for b in self.steps.read() if b.at > after and b.node in names}

    def anew(self, hosts: list[Host]) -> dict[str, float]:
        """Return when each host first took a first step after the fault."""
        found: dict[str, float] = {}
        for b in self.steps.read():
            if b.at > self.at and b.step == 1 and b.node in {host.name for host in hosts}:
                found.setdefault(b.node, b.at - self.at)
        return found

    def new_ranks(self, hosts: list[Host]) -> set[str]:
        """Return the hosts that have or had ranks which were not there before the fault."""
        return {host.name for host in hosts if self.started[host.name]}

    def look(self) -> None:
        """Note who has ended, who was started, and which ranks are still those of before."""
        for command in self.commands.values():
            name = command.host.name
            pids = {rank.pid for rank in command.ranks} if command.host.up else set()
            self.old[name] = bool(pids & self.before)
            self.started[name] |= pids - self.before
            if command.ended_s is None and (code := command.waiter.poll()) is not None:
                command.ended_s, command.code = boottime() - self.at, code

    def advancing(self, hosts: list[Host]) -> set[str]:
        """Return the hosts that take steps now."""
        return self._stepping(boottime() - 2.0, hosts)


@dataclass
class Watch:
    """What was seen of one fault."""

    scene: TorchScene
    fault: Fault
    ranks_s: float | None = None
    step_s: float | None = None
    lost_s: float | None = None
    words: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[Host]:
        """Those that should train on."""
        return self.scene.rest if self.fault.after is After.REST else self.scene.hosts

    def go(self, for_s: float) -> None:
        """Watch until they train anew, all commands have ended, or the time is over."""
        scene, end = self.scene, boottime() + for_s

        def over() -> bool:
            scene.look()
            now = boottime() - scene.at
            if self.ranks_s is None and len(scene.new_ranks(self.hosts)) == len(self.hosts):
                self.ranks_s = now
                if self.fault.heals_early:
                    scene.heal()
            if self.step_s is None and len(anew := scene.anew(self.hosts)) == len(self.hosts):
                self.step_s = max(anew.values())
            commands = [scene.commands[host.name] for host in self.hosts]
            if self.lost_s is None and all(command.ended_s is not None for command in commands):
                self.lost_s = now
            return self.step_s is not None or self.lost_s is not None or boottime() >= end

        while not over():
            time.sleep(0.1)

    def say(self, what: str) -> None:
        self.words.append(what)


def outcome(fault: Fault, lab: Lab) -> str:
    """Carry the fault out on a torchrun job and put into words what comes of it."""
    with ExitStack() as undo:
        scene = TorchScene(fault, lab, undo)
        if fault.before:
            fault.before(scene)
        try:
            scene.start()
        except AssertionError:
            if fault.before is None:
                raise
            return f"**does not get to train at all**: watched for {START_S:.0f} s"
        watch = Watch(scene, fault)
        scene.at = boottime()
        fault.strike(scene)
        return _bearing(scene, watch) if fault.after is After.ON else _recovery(scene, watch)


def _recovery(scene: TorchScene, watch: Watch) -> str:
    watch.go(WATCH_S)
    first = _said(scene, watch, WATCH_S)
    if watch.step_s is not None or watch.lost_s is not None or not watch.fault.rejoins:
        return first
    scene.heal()
    since = boottime()
    watch.go(HEALED_S)
    then = _said(scene, watch, boottime() - since)
    return f"{first}, before the heal and after it" if then == first else f"{first}; healed then: {then}"


def _bearing(scene: TorchScene, watch: Watch) -> str:
    """A fault that may be borne: does training go on once it is over, and with the same ranks?"""
    fault = watch.fault
    until(lambda: boottime() > scene.at + fault.hold_s, "it lasts", fault.hold_s + 5.0)
    scene.heal()
    healed = boottime()
    watch.go(HEALED_S)
    if watch.step_s is None and watch.lost_s is None and scene.advancing(scene.hosts) >= {h.name for h in scene.hosts}:
        resumed = max(min(b.at for b in scene.steps.read() if b.node == h.name and b.at > healed) for h in scene.hosts)
        if not fault.proof:
            return f"goes on, first step {resumed - healed:.1f} s after its end"
        scene.at = boottime()
        scene.command.ranks[0].signal(9)
        watch.go(WATCH_S)
        return f"goes on; a rank killed then: {_said(scene, watch, WATCH_S)}"
    return _said(scene, watch, HEALED_S)


def _said(scene: TorchScene, watch: Watch, watched_s: float) -> str:
    hosts = watch.hosts
    if watch.step_s is not None:
        ranks = f"{watch.ranks_s:.1f}" if watch.ranks_s is not None else "?"
        return f"new ranks after {ranks} s, first all-reduce after {watch.step_s:.1f} s"
    if watch.lost_s is not None:
        codes = sorted({scene.commands[h.name].code for h in hosts})
        return f"**job lost** after {watch.lost_s:.1f} s (exit code {', '.join(map(str, codes))})"
    ended = [
        f"{c.host.name} after {c.ended_s:.1f} s"
        for c in scene.commands.values()
        if c.ended_s is not None and c.host in hosts
    ]
    new = scene.new_ranks(hosts)
    going = scene.advancing(hosts)
    orphan = scene.victim.up and scene.command.ended_s is not None and scene.victim.name in scene.advancing(scene.hosts)
    if orphan:
        return f"nobody notices: the orphaned rank trains on, and so do the others ({watched_s:.0f} s watched)"
    if going == {h.name for h in hosts} and not new:
        return "the same ranks go on"
    old = {host.name for host in hosts if scene.old[host.name]}
    if not ended and not new and len(old) == len(hosts):
        return f"**no reaction** in {watched_s:.0f} s: agents and ranks hang"
    said = []
    if old:
        said.append(f"ranks of before hang on {', '.join(sorted(old))}")
    if new:
        often = ", ".join(f"{len(scene.started[name])} × on {name}" for name in sorted(new))
        said.append(f"ranks started again ({often}) do not get to train")
    if none := {host.name for host in hosts} - old - new:
        said.append(f"no new rank on {', '.join(sorted(none))}")
    if ended:
        said.append(f"torchrun ended on {', '.join(ended)}")
    return f"**no training** in {watched_s:.0f} s: {'; '.join(said)}"


def main(page: Path, names: list[str]) -> None:
    """Strike torchrun with each fault, or with those that are named, and keep what came of it."""
    for fault in FAULTS:
        if fault.theirs is not None or (names and fault.name not in names):
            continue
        directory = Path(tempfile.mkdtemp(prefix="torchrun-beside-"))
        lab = Lab(directory)
        try:
            said = outcome(fault, lab)
        except AssertionError as error:
            said = ""
            print(f"{fault.name}: {error}", flush=True)
        finally:
            lab.close()
        print(f"{fault.name}: {said}", flush=True)
        if said:
            keep_outcome(page, fault.name, said)
            shutil.rmtree(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
