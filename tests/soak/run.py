"""One run of the digits example on two nodes and a spare, kept up by somebody who starts again what was killed.

``tick`` looks at everything once and waits for nothing; whatever must not be is an AssertionError of its own. Not a
test module; ``test_soak.py`` decides what is done to it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from command.cluster import Node, Place
from command.processes import MARK, alive, boottime, environ
from soak.plan import Fault, Kind
from soak.stores import SoakStore

from remuster.agent.cgroup import of_tag
from remuster.agent.node_lock import LOCKS, NodeLock

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
WRAPPER = Path(__file__).with_name("one_world.py")
NODES = (2, 3, 4)
LEASE_S = 6
CONF = f"lease_ttl={LEASE_S},kill_bound=2,last_call_timeout=2,join_timeout=600,connect_timeout=120"
LEAVING_S = 45.0  # an agent whose keeper was killed: the grace of its ranks (30 s), 10 s for its last words, and moving
KILLED = (128 + signal.SIGKILL, -signal.SIGKILL)  # the agent was, the keeper was


class Training(NamedTuple):
    """The arguments of the example."""

    steps: int
    save_every: int
    step_ms: int

    def args(self, out: Path, slowly: bool = True) -> tuple[str | Path, ...]:
        args = ("--out", out, "--steps", str(self.steps), "--save-every", str(self.save_every))
        return (*args, "--step-ms", str(self.step_ms)) if slowly else args


class Gone(NamedTuple):
    """A command that was killed: when its end was seen, and from when on it may be started again."""

    node: Node
    since: float
    again: float


class Start(NamedTuple):
    """A rank's first moment, as it told itself."""

    round: int
    attempt: int
    rank: int
    node: str
    pid: int
    at: float


class SoakRun(Place):
    """The nodes of one run id, and what is known of its rounds."""

    def __init__(self, folder: Path, store: SoakStore, run_id: str, training: Training, witness: int) -> None:
        super().__init__(folder)
        self.env["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # torch's, else in TMPDIR
        self.store = store
        self.run_id = run_id
        self.training = training
        self.witness = witness  # its command is never killed: its agent lives as long as the run
        self.out = folder / "out"
        self.kept = self.out / "checkpoints"
        self.world = folder / "world"
        self.up: dict[int, Node] = {}
        self.gone: dict[int, Gone] = {}
        self.over: set[int] = set()  # the nodes that saw the end of the job
        self.pause_s: dict[int, float] = {}  # until the next start, for those about to end
        self.starts: list[Start] = []
        self.stepped: dict[int, float] = {}  # when a round's first step was seen
        self._read = 0
        for number in NODES:
            self._start(number)

    def _start(self, number: int) -> None:
        address = f"127.0.0.{number}"
        self.up[number] = self.command(
            *("--rdzv-backend", "etcd", "--rdzv-endpoint", self.store.endpoints, "--rdzv-id", self.run_id),
            *("--rdzv-conf", CONF, "--local-addr", address, "--nnodes", "2", "--max-restarts", "1000000"),
            *("--checkpoint-dir", self.kept, WRAPPER, self.world, EXAMPLE / "train.py", *self.training.args(self.out)),
            name=address,
        )

    # --- looking ------------------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Note what ended, started and stepped; start again what was killed, once nothing is left of it."""
        for number, node in list(self.up.items()):
            if node.process.poll() is not None:
                self._ended(number, node)
        for number, gone in list(self.gone.items()):
            self._buried(number, gone)
        self._look_at_starts()
        self._look_at_steps()

    def _ended(self, number: int, node: Node) -> None:
        code = node.process.returncode
        del self.up[number]
        if code in KILLED and number in self.pause_s:
            now = boottime()
            self.gone[number] = Gone(node, now, now + self.pause_s.pop(number))
            assert code == -signal.SIGKILL or not node.pids(), (
                f"the keeper has ended and left {node.pids()}\n{node.say()}"
            )
            return
        assert code == 0, f"the command of node {number} ended with {code}, and nobody had killed it\n{node.say()}"
        assert not node.pids(), f"the command has ended and left {node.pids()}\n{node.say()}"
        self.over.add(number)

    def _buried(self, number: int, gone: Gone) -> None:
        now = boottime()
        if left := gone.node.pids():
            assert now < gone.since + LEAVING_S, f"what a killed command left lives on: {left}\n{gone.node.say()}"
        elif now >= gone.again:
            del self.gone[number]
            self._start(number)

    def _look_at_starts(self) -> None:
        try:
            with open(f"{self.world}.starts", "rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        for line in whole.decode().split("\n") if whole else ():
            n, attempt, rank, node, pid, at = line.split()
            self.starts.append(Start(int(n), int(attempt), int(rank), node, int(pid), float(at)))
        self._read += len(whole) + bool(whole)
        overlaps = Path(f"{self.world}.overlaps")
        assert not overlaps.exists(), f"two rounds were alive at once:\n{overlaps.read_text()}\n{self.say()}"

    def _look_at_steps(self) -> None:
        for n, attempt in {(s.round, s.attempt) for s in self.starts[-8:]}:
            log = self.out / "samples" / f"attempt-{attempt}-rank-0.jsonl"
            if n not in self.stepped and log.exists() and log.read_bytes().count(b"\n") > 1:
                self.stepped[n] = boottime()

    @property
    def round(self) -> int:
        """The newest round of which a rank has started."""
        return self.starts[-1].round if self.starts else 0

    def step(self) -> int:
        """Return the newest published step: a step gets its name when it is whole."""
        try:
            names = os.listdir(self.kept)
        except FileNotFoundError:
            return 0
        return max((int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit()), default=0)

    @property
    def prefix(self) -> str:
        return f"/remuster/{self.run_id}/"

    # --- doing --------------------------------------------------------------------------------------------------------
    def strike(self, fault: Fault) -> int:
        """Do to a process what ``fault`` says and return its pid; 0 when there is no such process now."""
        if fault.kind is Kind.RANK:
            pids = [pid for node in self.up.values() for pid in node.ranks().values()]
            return self._kill(pids[fault.pick % len(pids)]) if pids else 0
        numbers = [n for n in NODES if n != self.witness or not fault.kind.ends_agent]
        number = numbers[fault.node % len(numbers)]
        node = self.up.get(number)
        if node is None:
            return 0
        match fault.kind:
            case Kind.NODE:
                self.pause_s[number] = fault.lasts * LEASE_S
                node.power_off()
                return node.keeper
            case Kind.STALL:
                return self._kill(node.agent, signal.SIGSTOP) if node.agent else 0
            case Kind.GUARDIAN:
                return self._kill(node.guardian) if node.guardian else 0
            case _:
                pid = node.agent if fault.kind is Kind.AGENT else node.keeper
                if pid:
                    self.pause_s[number] = fault.lasts * LEASE_S
                    self._kill(pid)
                return pid

    def go_on(self, pid: int) -> None:
        """Continue a suspended agent, if it is still there; its keeper may not be."""
        if environ(pid).get(MARK) in {node.mark for node in self.nodes}:
            self._kill(pid, signal.SIGCONT)

    @staticmethod
    def _kill(pid: int, signum: int = signal.SIGKILL) -> int:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            return 0
        return pid

    # --- at the end ---------------------------------------------------------------------------------------------------
    def compare(self, baseline: Path) -> int:
        """Assert that it ended as the uninterrupted run did; return how many steps were done more than once."""
        command = [sys.executable, str(EXAMPLE / "check.py"), str(baseline), str(self.out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        lines = done.stdout.splitlines() or [done.stderr]
        same = (done.returncode, lines[-1]) == (0, "final weights identical to the uninterrupted run: yes")
        assert same, "it did not end as the uninterrupted run did\n" + "\n".join(lines)
        logs = (self.out / "samples").glob("attempt-*-rank-0.jsonl")
        return sum(max(0, log.read_bytes().count(b"\n") - 1) for log in logs) - self.training.steps

    def check_left(self) -> None:
        """Assert that no process, temporary file or cgroup of the ended run is there."""
        pids = [node.pids() for node in self.nodes if node.pids()]
        assert not pids, f"processes are left: {pids}"
        living = [start for start in self.starts if alive(start.pid) and self._is(start)]
        assert not living, f"ranks are left: {living}"
        files = self.left_files()
        assert not files, f"temporary files are left: {files}"
        groups = [path for number in NODES for path in of_tag(NodeLock(self.run_id, f"127.0.0.{number}").tag)]
        assert not groups, f"cgroups are left: {groups}"

    def _is(self, start: Start) -> bool:
        """Whether the pid is still that rank's, and not somebody's who was given it later."""
        try:
            return str(self.world).encode() in Path(f"/proc/{start.pid}/cmdline").read_bytes()
        except OSError:
            return False

    def lock_files(self) -> int:
        """Count the lock files of this run: one for each node name, a few bytes, kept."""
        tags = [NodeLock(self.run_id, f"127.0.0.{number}").tag for number in NODES]
        return sum((LOCKS / f"remuster-{os.getuid()}" / f"{tag}.lock").exists() for tag in tags)

    def say(self) -> str:
        """Return what is worth seeing when a test fails: of the last starts."""
        return "\n".join([*(node.say() for node in self.nodes[-6:]), self.store.say()])
