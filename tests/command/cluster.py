"""Nodes of the real command on this machine: started, looked at from outside, killed, and checked for what they left.

A ``Node`` is one start of the command with files of its own; a ``Cluster`` is an etcd and nodes on 127.0.0.x. All that
is known about them comes from /proc, the run directory and the store. Not a test module; used by ``tests/command`` and
``tests/crash``.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from command.processes import MARK, PATIENCE_S, alive, boottime, children, environ, marked, read, signal_all, until
from etcd_server import EtcdServer

from remuster.agent.cgroup import of_tag
from remuster.agent.node_lock import NodeLock
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.records import Round
from remuster.rendezvous.store import prefix_end

HERE = Path(__file__).parent
STEADY = HERE / "steady.py"
PROGRESS = HERE / "progress.py"
COMMAND = Path(sys.executable).with_name("remuster")
LEFT_S = 2.0  # until what a killed keeper left behind is gone: its agent and guardian see it and sweep
OUTER = dict(os.environ)  # pytest changes its own while the rows of tests/bad_input are played in threads
FOREIGN = (
    *("PET_", "REMUSTER_", "TORCHELASTIC_", "OMP_", "MASTER_", "LOGLEVEL", "PYTHON_EXEC"),
    *("SLURM_", "PBS_", "LSB_", "OAR_", "JOB_COMPLETION_INDEX"),
)


class Node:
    """One start of the command. ``name`` is its folder's and, in its ranks' files, nobody else's."""

    def __init__(
        self,
        folder: Path,
        args: Iterable[str | bytes | Path],
        env: Mapping[str, str],
        cwd: Path,
        stdout: int | None = None,  # instead of the file
        merge: bool = False,  # 2>&1
        program: Iterable[str] = (str(COMMAND),),  # what executes the command in the end, if it is not the command
        terminal: int | None = None,  # its stdin, and its stdout and stderr, unless stdout is given
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder
        self.log_dir = folder / "logs"
        folder.mkdir(parents=True)
        self.args = [os.fsencode(a) for a in args]
        self._out = folder / "stdout"
        self._err = folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.started_s = boottime()
            shown: Any = out if terminal is None else terminal
            self.process = subprocess.Popen(
                [*map(os.fsencode, program), *self.args],
                env={**env, MARK: self.mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=shown if stdout is None else stdout,
                stderr=subprocess.STDOUT if merge else err if terminal is None else terminal,
                start_new_session=terminal is not None,
                preexec_fn=None if terminal is None else lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
            )

    # --- processes ----------------------------------------------------------------------------------------------------
    @property
    def keeper(self) -> int:
        return self.process.pid

    @property
    def agent(self) -> int:
        """The agent's pid: the child of the keeper that is still the keeper's own program; 0 when there is none."""
        mine = read(self.keeper, "cmdline")
        return next((pid for pid in children(self.keeper) if mine and read(pid, "cmdline") == mine), 0)

    @property
    def guardian(self) -> int:
        """The guardian's pid, once it has its own name; 0 when there is none."""
        kids = children(self.agent)
        return next((pid for pid in kids if read(pid, "comm") == b"rank-guardian\n" and alive(pid)), 0)

    def ranks(self) -> dict[int, int]:
        """Return the pids of this node's ranks by global rank."""
        guardian = self.guardian
        found = {}
        for pid in children(guardian) if guardian else ():
            rank = environ(pid).get("RANK")
            if rank is not None and alive(pid):
                found[int(rank)] = pid
        return found

    def pids(self) -> dict[int, str]:
        """Return everything of this start that is alive."""
        return marked(self.mark)

    def kill(self, who: str, signum: int = signal.SIGKILL) -> int:
        """Send a signal to keeper, agent or guardian; return its pid."""
        pid = until(lambda: getattr(self, who), f"there is a {who}", show=self.say)
        os.kill(pid, signum)
        return pid

    def power_off(self) -> None:
        """Kill all its processes, as when the machine loses its power."""
        while pids := self.pids():
            signal_all(pids, signal.SIGSTOP)  # nobody sees the others die
            signal_all(pids)
        self.process.wait(PATIENCE_S)

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the command's end, check that nothing is left of it, and return its code."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the command goes on after {timeout_s:g} s: {self.pids()}\n{self.say()}") from None
        left = self.pids()
        if code == -signal.SIGKILL:  # who was killed cannot sweep: those below it do
            until(lambda: not self.pids(), f"what a killed keeper left is gone: {left}", LEFT_S, self.say)
        else:
            assert not left, f"the command has ended with {code} and left {left}\n{self.say()}"
        return code

    def close(self) -> None:
        """End whatever is left, silently."""
        pids = self.pids()
        signal_all(pids, signal.SIGCONT)
        signal_all(pids)
        self.process.kill()
        self.process.wait()
        until(lambda: not [signal_all(self.pids())] or not self.pids(), "cleaning up")

    # --- what it wrote ------------------------------------------------------------------------------------------------
    @property
    def out(self) -> bytes:
        return self._out.read_bytes()

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def run_dir(self) -> Path:
        """The run directory, once there is one."""
        return next(self.log_dir.glob("*_*"))

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the events of that name so far, or all; a line that is being written is not there yet."""
        found = []
        for path in self.log_dir.glob("*/events.jsonl"):
            found += [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        return [event for event in found if not name or event["event"] == name]

    def records(self) -> list[dict[str, Any]]:
        """Return the attempt records in its run directory, in order of their names."""
        paths = sorted(self.run_dir.glob("attempts/attempt-*.json"))
        return [json.loads(path.read_text()) for path in paths]

    def say(self) -> str:
        """Return what is worth seeing when a test fails."""
        out = self.out[-2000:].decode(errors="replace")
        return f"--- {self.folder.name}: stdout\n{out}\n--- stderr\n{self.err[-6000:]}"


class Place:
    """A folder with an environment of its own, in which commands are started; checks what they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tmp = folder / "tmp"
        self.desk = folder / "desk"  # where ranks and test write to each other
        self.nodes: list[Node] = []
        for path in (self.tmp, self.desk, folder / "run"):
            path.mkdir(parents=True, mode=0o700)
        self.env = {name: value for name, value in OUTER.items() if not name.startswith(FOREIGN)}
        self.env |= {"TMPDIR": str(self.tmp), "XDG_RUNTIME_DIR": str(folder / "run"), "HOME": str(folder)}

    def command(
        self,
        *args: str | bytes | Path,
        name: str = "",
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        merge: bool = False,
        terminal: int | None = None,
    ) -> Node:
        """Start the command with a log directory of its own; a script by name is looked for in this folder."""
        folder = self.folder / "nodes" / f"{len(self.nodes)}{name and '-' + name}"
        line = ("--log-dir", folder / "logs", *args)
        node = Node(folder, line, self.env | (env or {}), self.folder, stdout, merge, terminal=terminal)
        self.nodes.append(node)
        return node

    def script(self, name: str, text: str) -> Path:
        """Write a script of the user's and return its path."""
        path = self.folder / name
        path.write_text(text)
        return path

    def say(self) -> str:
        return "\n".join(node.say() for node in self.nodes)

    # --- the ranks of steady.py ---------------------------------------------------------------------------------------
    def rank(self, n: int, rank: int) -> dict[str, Any] | None:
        """Return what rank ``rank`` of round ``n`` said of itself when it started."""
        try:
            return json.loads((self.desk / f"round-{n}" / f"rank-{rank}").read_text())
        except FileNotFoundError:
            return None

    def wait_round(self, n: int, world: int, timeout_s: float = PATIENCE_S) -> dict[int, dict[str, Any]]:
        """Wait until all ranks of round ``n`` stand; return what each said."""

        def standing() -> dict[int, dict[str, Any]]:
            found = {rank: self.rank(n, rank) for rank in range(world)}
            return {r: said for r, said in found.items() if said} if all(found.values()) else {}

        return until(standing, f"round {n} of {world} ranks stands", timeout_s, self.say)

    def order(self, what: str, n: int | None = None, text: str = "") -> None:
        """Leave an order for the ranks: ``done``, or for one of them ``exit-<rank>`` (a status)."""
        place = self.desk if n is None else self.desk / f"round-{n}"
        fresh = place / f".{what}"
        fresh.write_text(text)
        fresh.rename(place / what)

    def left_files(self) -> list[str]:
        """Return what lies in the folder for temporary files, but for what a killed rank's torch leaves there."""
        torchs = {path.parent for path in self.tmp.glob("*/_remote_module_non_scriptable.py")}
        torchs |= {path for path in self.tmp.glob("tmp*") if path.is_dir() and not any(path.iterdir())}  # not yet there
        found = [path for path in self.tmp.rglob("*") if not torchs & {path, *path.parents}]
        return sorted(str(path.relative_to(self.tmp)) for path in found)

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()


class Cluster(Place):
    """Nodes that meet in an etcd, under a run id of their own."""

    ttl_s = 4
    conf = "lease_ttl=4,kill_bound=1,last_call_timeout=2,join_timeout=60"

    def __init__(self, folder: Path, etcd: EtcdServer) -> None:
        super().__init__(folder)
        self.etcd = etcd
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"

    def start(
        self, number: int, *args: str | bytes | Path, conf: str = "", env: Mapping[str, str] | None = None
    ) -> Node:
        """Start the command as node 127.0.0.``number``; ``args`` end with the script and its arguments."""
        return self.command(
            *("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{self.etcd.port}", "--rdzv-id", self.run_id),
            *("--rdzv-conf", f"{self.conf}{conf and ',' + conf}", "--local-addr", f"127.0.0.{number}", *args),
            name=f"127.0.0.{number}",
            env=env,
        )

    def steady(self, number: int, *args: str | Path, conf: str = "") -> Node:
        """Start a node with two ranks that stand until they are told to end."""
        return self.start(number, "--nproc-per-node", "2", *args, STEADY, self.desk, conf=conf)

    def wait_round(self, n: int, world: int, timeout_s: float = PATIENCE_S) -> dict[int, dict[str, Any]]:
        """Wait also until the store knows that all have started: what ends before that is not charged."""
        said = super().wait_round(n, world, timeout_s)
        nodes = {one["REMUSTER_NODE"] for one in said.values()}
        start = f"started/{n:010d}/"
        until(lambda: len([k for k in self.tree() if k.startswith(start)]) == len(nodes), "started", show=self.say)
        return said

    # --- the store ----------------------------------------------------------------------------------------------------
    @property
    def prefix(self) -> str:
        return f"/remuster/{self.run_id}/"

    def tree(self) -> dict[str, bytes]:
        """Return all keys of the run, without their prefix."""
        return self.keys(self.prefix)

    def keys(self, prefix: str) -> dict[str, bytes]:
        """Return all keys that begin with ``prefix``, without it."""
        start, end = (base64.b64encode(key.encode()).decode() for key in (prefix, prefix_end(prefix)))
        found = self.etcd.post("kv/range", {"key": start, "range_end": end}).get("kvs", [])
        pairs = ((base64.b64decode(kv["key"]).decode(), base64.b64decode(kv.get("value", ""))) for kv in found)
        return {key.removeprefix(prefix): value for key, value in pairs}

    def records(self) -> dict[int, dict[str, Any]]:
        """Return the attempt records in the store, by round."""
        return {
            int(key[-10:]): json.loads(raw)
            for key, raw in self.tree().items()
            if self.prefix + key == self._record(key)
        }

    def _record(self, key: str) -> str:
        """Return the record's key of the round that ``key`` ends with, whatever ``key`` is about."""
        return Keys(self.run_id).attempt(Round(int(key[-10:]))) if key[-10:].isdigit() else ""

    def job(self) -> dict[str, Any]:
        """Return the job record as it stands."""
        return json.loads(self.tree()["job"])

    def leader(self) -> Node:
        """Return the node whose agent leads."""

        def leading() -> Node | None:
            keys = self.tree()
            by_inc = {json.loads(raw)["inc"]: key for key, raw in keys.items() if key.startswith("nodes/")}
            name = by_inc.get(int(self._lease("leader")), "").removeprefix("nodes/")
            living = [node for node in self.nodes if node.process.poll() is None]
            return next((node for node in living if name and node.folder.name.endswith(f"-{name}")), None)

        return until(leading, "there is a leader", show=self.say)

    def _lease(self, key: str) -> str:
        body = {"key": base64.b64encode(f"{self.prefix}{key}".encode()).decode()}
        found = self.etcd.post("kv/range", body).get("kvs", [])
        return found[0].get("lease", "0") if found else "0"

    def leaked_keys(self) -> list[str]:
        """Return keys that a finished job must not have left."""
        roster = f"rounds/{self.job()['formed']:010d}"
        return [
            key
            for key in self.tree()
            if key not in ("job", "terms", roster)
            and not key.startswith("history/")
            and self.prefix + key != self._record(key)
        ]

    def check_left(self) -> None:
        """Assert that an ended job left no key, process or temporary file."""
        keys = self.leaked_keys()
        assert not keys, f"keys of the run are left: {keys}"
        self.check_nodes_left()
        names = {node.folder.name.partition("-")[2] for node in self.nodes}
        groups = [path for name in names for path in of_tag(NodeLock(self.run_id, name).tag)]
        assert not groups, f"cgroups are left: {groups}"

    def check_nodes_left(self) -> None:
        """Assert that the nodes left no process and no temporary file, whatever became of the job."""
        pids = [node.pids() for node in self.nodes if node.pids()]
        assert not pids, f"processes are left: {pids}"
        files = self.left_files()
        assert not files, f"temporary files are left: {files}"
