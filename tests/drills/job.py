"""The command on the hosts of a lab, and what is asserted about every drill.

Not a test module. ``Job`` starts the installed command on hosts, follows the file in which the ranks say that they are
alive, and at the end checks what must hold whatever was broken: exit codes, one world, nothing left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drills.etcd import Etcd
from drills.lab import Host, Lab
from drills.sight import PATIENCE_S, Process, boottime, until
from drills.signs import Beat, Signs, overlap

import remuster

HERE = Path(__file__).parent
ROOT = Path(remuster.__file__).parent.parent
COMMAND = Path(sys.executable).with_name("remuster")
STEPS_PATIENCE_S = 150.0  # torch, on two busy cores
LEASE_S = 6.0  # the least that a kill bound of 2 s allows
CONF = "lease_ttl=6,kill_bound=2,last_call_timeout=3"
FENCED_S = LEASE_S * (1 - 1e-3) - 2.0 - 0.25  # after the last acknowledged renewal was sent
# Bounds of a recovery, in leases: from the fault to the first sign of life of the last rank of the next round.
# Detected at once, the way back is two transactions and a start; a silent node costs its lease and etcd's own second.
AT_ONCE, SILENT = 0.5, 1 + 2 / LEASE_S + 0.33
FENCE_SLACK_S = 0.5  # for the kill itself, on a busy machine
THAW_S = 0.5
KEPT_KEYS = ("job", "terms", "rounds", "history", "~attempts")  # of an ended run, on purpose


class Late(AssertionError):
    """All came as it must, but not within its bound."""

    def __init__(self, took_s: float, what: str) -> None:
        super().__init__(what)
        self.took_s = took_s


@dataclass
class Command:
    """The command on one host."""

    host: Host
    waiter: subprocess.Popen[bytes]
    keeper: Process
    output: Path
    log_dir: Path

    @property
    def agent(self) -> Process:
        found = [p for p in self.keeper.children if "rank-guardian" not in p.title]
        assert len(found) == 1, f"the keeper's children: {found}"
        return found[0]

    @property
    def guardian(self) -> Process:
        return next(p for p in self.agent.children if "rank-guardian" in p.title)

    @property
    def ranks(self) -> list[Process]:
        return self.guardian.children

    def said(self) -> str:
        """Return all that the command has printed."""
        return self.output.read_text(errors="replace")

    def record(self, attempt: int) -> dict[str, Any]:
        """Return an attempt's record, once this node has it."""

        def read() -> dict[str, Any] | None:
            found = sorted(self.log_dir.glob(f"*/attempts/attempt-{attempt:03d}.json"))
            text = found[-1].read_text() if found else ""
            return json.loads(text) if text else None

        record = until(read, f"{self.host.name} keeps the record of attempt {attempt}")
        assert record is not None
        return record


class Job:
    """One run. ``start`` the command on hosts, break something, then ``finish``."""

    def __init__(self, lab: Lab, etcd: Etcd) -> None:
        self.lab = lab
        self.etcd = etcd
        self.run_id = f"drill-{uuid.uuid4().hex[:8]}"  # locks in /tmp are common to all drills that run
        self.commands: dict[str, Command] = {}
        self.ended: list[Command] = []  # those that were started again on their host
        self.nnodes = "2"
        self.script = HERE / "beat.py"
        self.arguments: tuple[str, ...] = ()  # more of the script's
        self.options: tuple[str, ...] = ("--max-restarts", "3")
        self.conf = CONF
        self.env: dict[str, Mapping[str, str]] = {}  # more of it, by host
        self._alive = lab.directory / "alive"
        self._finish = lab.directory / "finish"
        self._signs = Signs(self._alive)
        self.steps = Signs(lab.directory / "alive.steps")
        self.recovery_s: float | None = None  # for the table
        self.verdict = ""

    def start(self, *hosts: Host) -> None:
        """Start the command on each host, all at once."""
        for host in hosts:
            before = self.commands.pop(host.name, None)
            if before is not None:
                self.ended.append(before)
            name = f"{host.name}.{len(self.ended)}" if before else host.name
            log_dir = self.lab.directory / f"{name}-logs"
            output = self.lab.directory / f"{name}.out"
            host.sh("mkdir -p -m 700 /run/user")
            home = "/run/user"
            env = {
                "PATH": os.defpath,
                "HOME": home,
                "XDG_RUNTIME_DIR": home,
                "LANG": "C.UTF-8",
                "PYTHONPATH": str(ROOT),
                **self.env.get(host.name, {}),
            }
            argv = [
                *(str(COMMAND), "--nnodes", self.nnodes, "--rdzv-backend", "etcd"),
                *("--rdzv-endpoint", self.etcd.endpoint, "--rdzv-id", self.run_id, "--rdzv-conf", self.conf),
                *(*self.options, "--log-dir", str(log_dir)),
                *(str(self.script), str(self._alive), str(self._finish), *self.arguments),
            ]
            waiter, keeper = host.spawn(argv, env, output)
            self.commands[host.name] = Command(host, waiter, keeper, output, log_dir)

    def start_with_spare(self, *hosts: Host) -> None:
        """Start on all but the last host, wait for round 1 to run, then let the last one join as the spare."""
        self.start(*hosts[:-1])
        self.wait_round(1, *hosts[:-1])
        self.start(hosts[-1])
        spare = self.commands[hosts[-1].name]
        until(lambda: "] running " in spare.said(), "the spare has joined and seen the round that runs")

    # --- what is seen -------------------------------------------------------------------------------------------------
    @property
    def _prefix(self) -> str:
        return f"/remuster/{self.run_id}/"

    def beats(self) -> list[Beat]:
        """Return all signs of life until now, in the order in which they were written."""
        return self._signs.read()

    def wait_round(self, n: int, *hosts: Host) -> float:
        """Wait until a rank on each of ``hosts`` lives in round ``n``; return when the last of them said so first."""
        names = {host.name for host in hosts}

        def there() -> bool:
            for name in names:
                code = self.commands[name].waiter.poll()
                assert code is None, f"the command on {name} ended with {code}:\n{self.commands[name].said()[-3000:]}"
            return names <= set(self._first(n))

        until(there, lambda: f"round {n} on {sorted(names)}; rounds seen: {self.rounds()}", 40.0)
        assert set(self._first(n)) == names, f"round {n} also has {set(self._first(n)) - names}"
        return max(self._first(n).values())

    def wait_later_round(self, n: int, count: int) -> float:
        """Wait until some round later than ``n`` lives on ``count`` nodes; return as ``wait_round``."""

        def there() -> int:
            return next((m for m, nodes in self.rounds().items() if m > n and len(nodes) == count), 0)

        return max(self._first(until(there, lambda: f"a round on {count} nodes; seen: {self.rounds()}", 40.0)).values())

    def wait_steps(self, n: int, *hosts: Host, after: float = 0.0) -> float:
        """Wait until each of ``hosts`` has taken a step of round ``n`` after ``after``; return when the last had."""
        names = sorted(host.name for host in hosts)
        until(
            lambda: self.steps_of(n, *hosts, after=after) is not None,
            f"steps of round {n} on {names}",
            STEPS_PATIENCE_S,
        )
        return self.steps_of(n, *hosts, after=after) or 0.0

    def steps_of(self, n: int, *hosts: Host, after: float = 0.0) -> float | None:
        """Return when the last of ``hosts`` had taken a step of round ``n`` after ``after``; None before that."""
        signs = self.steps.last(n) if after else self.steps.first(n)
        taken = [sign.at for host in hosts if (sign := signs.get(host.name)) is not None and sign.at > after]
        return max(taken) if len(taken) == len(hosts) else None

    def wait_trained_round(self, n: int, at_least: int) -> int:
        """Wait until a round later than ``n`` takes steps on that many nodes; return it."""

        def there() -> int:
            return next((m for m, nodes in self.steps.rounds().items() if m > n and len(nodes) >= at_least), 0)

        return until(there, lambda: f"a round that trains; alive: {self.rounds()}", 60.0)

    def first_lines(self, n: int) -> float:
        """Return when the last rank of round ``n`` that was seen said so first."""
        return max(self._first(n).values())

    def _first(self, n: int) -> dict[str, float]:
        return {node: beat.at for node, beat in self._signs.first(n).items()}

    def last_signs(self, n: int) -> dict[str, Beat]:
        """Return each node's newest sign of life in round ``n``."""
        return self._signs.last(n)

    def rounds(self) -> dict[int, list[str]]:
        """Return the nodes that were seen alive in each round."""
        return self._signs.rounds()

    def steady(self, n: int, *hosts: Host, for_s: float) -> None:
        """See that round ``n`` goes on beating on ``hosts`` for a while, and nothing else does."""
        start = boottime()
        names = {host.name for host in hosts}
        until(
            lambda: all(
                name in last and last[name].at > start + for_s for last in [self._signs.last(n)] for name in names
            ),
            f"round {n} goes on for {for_s:g} s on {sorted(names)}",
            for_s + PATIENCE_S,
        )
        assert {b.round for b in self.beats() if b.at > start} == {n}

    def wait_silence(self, for_s: float) -> None:
        """Wait ``for_s``, and see that no rank lives in its last half second."""
        start = boottime()
        until(lambda: boottime() > start + for_s, "time passes", 2 * for_s)
        last = max(beat.at for beat in self.beats())
        assert last < boottime() - 0.5, "ranks live without the store"

    def wait_joined_again(self, host: Host) -> None:
        """Wait until an agent on ``host`` has a lease again; its first one has gone."""
        until(lambda: host.name in self.joined(), f"{host.name} has joined again")

    def joined(self) -> set[str]:
        """Return the hosts on which an agent has a lease; one that came before the last was quite gone is HOST#2."""
        return {node.partition("#")[0] for node in self.etcd.keys(self._prefix + "nodes/")}

    def leader(self) -> Host:
        """Return the host whose agent leads."""

        def find() -> str:
            lease = self.etcd.keys(self._prefix).get("leader", {}).get("lease")
            nodes = self.etcd.keys(self._prefix + "nodes/")
            return next((name for name, kv in nodes.items() if kv["lease"] == lease), "")

        return self.lab.hosts[until(find, "somebody leads")]

    def job(self) -> dict[str, Any]:
        """Return the job record."""
        return json.loads(self.etcd.keys(self._prefix)["job"]["value"])

    # --- what must hold -----------------------------------------------------------------------------------------------
    def finish(self, *hosts: Host) -> None:
        """Let the ranks end, and see the command on each of ``hosts`` exit 0."""
        self._finish.touch()
        for host in hosts:
            command = self.commands[host.name]
            code = command.waiter.wait(30.0)
            assert code == 0, f"the command on {host.name} ended with {code}:\n{command.said()[-3000:]}"

    def check_one_world(self, thawed: tuple[Host, float] | None = None) -> None:
        """See in the signs of life that each round was dead before the next one lived.

        What a host that was ``thawed`` still said in its first moment is let pass: nothing can run on it before its
        ranks do, and they can do no harm.
        """
        counted = [
            beat
            for beat in self.beats()
            if not (thawed and beat.node == thawed[0].name and thawed[1] <= beat.at < thawed[1] + THAW_S)
        ]
        assert not (lived := overlap(counted)), lived

    def check_fenced(self, n: int, host: Host, since: float) -> None:
        """See that the ranks of round ``n`` on ``host``, cut off at ``since``, were silent when the lease could go."""
        last = max(beat.at for beat in self.beats() if beat.node == host.name and beat.round == n)
        assert last < since + FENCED_S + FENCE_SLACK_S, f"{host.name} lived {last - since:.2f} s without the store"

    def check_unharmed(self) -> None:
        """See that round 1 is still the only one and nothing was charged."""
        record = self.job()
        assert (record["phase"], record["round"]) == ("R", 1), record
        assert {beat.round for beat in self.beats()} == {1}

    def check_nothing_left(self, over: bool = True) -> None:
        """See that nothing of the job is left: no process on a host that is up, no lease, no key but the kept ones."""
        stores = {p.pid for p in self.etcd.members.values()}

        def left() -> list[Process]:
            return [p for h in self.lab.hosts.values() if h.up for p in h.processes() if p.pid not in stores]

        until(lambda: not left(), lambda: f"nothing is left: {left()}", 5.0)
        # A dead agent's lease goes by itself, and etcd looks once in half a second.
        until(lambda: not self.etcd.leases(), lambda: f"no lease is left: {self.etcd.leases()}", LEASE_S + 2.0)
        if not over:  # the job is to be gone on with
            return
        kinds = {key.partition("/")[0] for key in self.etcd.keys(self._prefix)}
        assert kinds <= set(KEPT_KEYS), f"keys are left: {kinds - set(KEPT_KEYS)}"

    def check_recovery(self, since: float, at: float, within: float) -> None:
        """See that the way back from the fault at ``since`` took at most ``within`` leases."""
        self.recovery_s = at - since
        leases = self.recovery_s / LEASE_S
        if leases > within:
            raise Late(
                self.recovery_s, f"recovered after {leases:.2f} leases, {self.recovery_s:.2f} s; bound {within:.2f}"
            )

    def check_failure(
        self, attempt: int, cls: str, node: str | None, charged_to: str | None, *hosts: Host
    ) -> dict[str, Any]:
        """See that the records of ``attempt`` on ``hosts`` agree: ``cls``, the fault of ``node`` or (None) of nobody.

        Return one of them.
        """
        record, *others = [self.commands[host.name].record(attempt) for host in hosts]
        assert all(other == record for other in others), "the nodes keep different records of one attempt"
        verdict = record["verdict"]
        self.verdict = f"{verdict['class']} {verdict['node']}, charged to {record['charged_to']}"
        seen = (verdict["class"], verdict["node"], record["charged_to"], record["state"])
        expected = (cls, verdict["node"] if node is None else node, charged_to, "retried")
        assert seen == expected, f"{seen}: {verdict['sentence']}; {record['decision']}"
        assert node is not None or not verdict["node_fault"]
        return record
