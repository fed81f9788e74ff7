"""Runs command lines under torchrun and under ours, each in a folder of its own, and returns what the workers said.

What differs between two such runs only because they are two (paths, port, run id) is written in the same way for both.
Used by the tests of this folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from command.cluster import FOREIGN
from command.processes import MARK, marked, signal_all, until
from dropin.rows import Row

AT_A_TIME = 2  # an agent of torchrun's works for two seconds before its ranks start
PATIENCE_S = 60.0  # until a run has ended; two agents of torchrun take three seconds where nothing else runs
_BIN = Path(sys.executable).parent
_PYTHONS = tuple(_BIN.glob("python*"))  # the installer of a command chooses one of its names
TELL = Path(__file__).with_name("tell.py").read_text()
_SCRIPTS = ("train.py", "pkg/module.py", "scripts/base_train.py")
_MODULE = "python -m torch.distributed.run"
_FOREIGN = (*FOREIGN, "PYTEST_")
PROGRAMS: Mapping[str, Mapping[str, list[str]]] = {
    "torchrun": {"torchrun": [str(_BIN / "torchrun")], _MODULE: [sys.executable, "-m", "torch.distributed.run"]},
    "remuster": {"torchrun": [str(_BIN / "remuster")], _MODULE: [sys.executable, "-m", "remuster"]},
}


def chosen_port() -> int:
    """Return a port with a free one above it, from below those that the kernel gives away by itself."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = 10000 + int.from_bytes(os.urandom(4), "big") % max(low - 10002, 1000)
        if _is_free(port) and _is_free(port + 1):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


class Program:
    """One run of a row under ``name``, torchrun or remuster: ``start`` it, ask for its ``codes``, then what it said."""

    def __init__(self, name: str, row: Row, folder: Path, etcd_port: int = 0) -> None:
        self.name = name
        self.row = row
        self.folder = folder
        self.work = folder / "work"
        self.mark = uuid.uuid4().hex
        self._port = str(chosen_port())
        self._words = {"@PORT": self._port, "@ID": f"job-{self.mark[:8]}", "@ETCD": str(etcd_port)}
        self._out = folder / "out"
        self._inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        self._agents: list[subprocess.Popen[bytes]] = []
        for path in (self.work, self._out, folder / "tmp", folder / "run"):
            path.mkdir(parents=True, mode=0o700)
        for script in _SCRIPTS:
            self.script(script, TELL)
        self.script("run.sh", f'exec {shlex.quote(sys.executable)} train.py "$0" "$@"\n')

    def script(self, name: str, text: str) -> None:
        """Write a script into the directory that the command is started in."""
        path = self.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def start(self) -> None:
        """Start the row's agents; none waits for another to be there."""
        for number in range(self.row.nodes):
            with (self.folder / f"log-{number}").open("wb") as log:
                self._agents.append(
                    subprocess.Popen(
                        self._argv(number),
                        env=self._env(number),
                        cwd=self.work,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )

    def run(self) -> list[int]:
        """Start it, and return its exit codes."""
        self.start()
        return self.codes()

    def signal(self, signum: int) -> None:
        """Send a signal to each agent."""
        for agent in self._agents:
            agent.send_signal(signum)

    def codes(self) -> list[int]:
        """Wait until all agents have ended, check that nothing is left of them, and return their exit codes."""
        end = time.monotonic() + PATIENCE_S
        try:
            codes = [agent.wait(max(end - time.monotonic(), 0.1)) for agent in self._agents]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} goes on after {PATIENCE_S:g} s: {self.pids()}\n{self.log()}") from None
        if self.name == "torchrun":  # its resource tracker ends when it notices that it is alone
            until(lambda: not self.pids(), "torchrun's own helper has ended", PATIENCE_S, self.log)
        left = self.pids()
        assert not left, f"{self.name} has ended with {codes} and left {left}\n{self.log()}"
        return codes

    def said(self) -> dict[int, dict[str, Any]]:
        """Return what each rank said, by rank, with what is this run's alone written as in every run."""
        mine = {json.dumps(str(self.folder))[1:-1]: "@FOLDER", self.mark: "@MARK", self._words["@ID"]: "@ID"}
        mine |= {json.dumps(str(path)): '"@PYTHON"' for path in _PYTHONS}
        port = re.compile(rf"(?:^|(?<=:)){self._port}$")
        found: dict[int, dict[str, Any]] = {}
        for path in self._out.glob("*.json"):
            text = path.read_text()
            for value, name in mine.items():
                text = text.replace(value, name)
            said = json.loads(text)
            said["env"] = {name: port.sub("@PORT", value) for name, value in said["env"].items()}
            said |= {name: [port.sub("@PORT", word) for word in said[name]] for name in ("argv", "command")}
            found[int(path.stem)] = said
        return found

    def pids(self) -> dict[int, str]:
        """Return everything of this run that is alive."""
        return marked(self.mark)

    def log(self) -> str:
        """Return what the agents and their ranks wrote."""
        logs = [path.read_text(errors="replace") for path in sorted(self.folder.glob("log-*"))]
        return "\n".join(f"--- {self.name}, agent {number}\n{log[-4000:]}" for number, log in enumerate(logs))

    def close(self) -> None:
        """End whatever is left."""
        while pids := self.pids():
            signal_all(pids, signal.SIGSTOP)  # nobody sees the others die
            signal_all(pids)
        for agent in self._agents:
            agent.wait()

    def _argv(self, number: int) -> list[str]:
        start = "torchrun" if self.row.line.startswith("torchrun ") else _MODULE
        here = [f"--local-addr={_address(number)}"] if self.row.nodes > 1 else []
        words = shlex.split(self.row.line.removeprefix(start))
        return [*PROGRAMS[self.name][start], *here, *(self._filled(word, number) for word in words)]

    def _env(self, number: int) -> dict[str, str]:
        env = self._inherited | {"TMPDIR": str(self.folder / "tmp"), "XDG_RUNTIME_DIR": str(self.folder / "run")}
        env |= {"HOME": str(self.folder), "OUT": str(self._out), "NODE": _address(number), MARK: self.mark}
        return env | {name: self._filled(value, number) for name, value in self.row.env.items()}

    def _filled(self, text: str, number: int) -> str:
        words = {"@R": str(number), "@FIRST": str(int(number == 0)), "@MORE": str(number + 1), **self._words}
        words["@HOST"] = socket.gethostname()
        for word, value in words.items():
            text = text.replace(word, value)
        return text


class Stage:
    """All runs of the session; torchrun's are made ahead of the tests that ask for them, a few at a time."""

    def __init__(self, folder: Path, etcd_port: int) -> None:
        self._folder = folder
        self._etcd_port = etcd_port
        self._programs: list[Program] = []
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._ahead: dict[str, tuple[Program, Future[list[int]]]] = {}

    def prepare(self, name: str, row: Row) -> Program:
        """Return a run of ``row`` under program ``name`` that is to be started."""
        program = Program(name, row, self._folder / f"{len(self._programs)}-{name}", self._etcd_port)
        self._programs.append(program)
        return program

    def go_ahead(self, rows: Iterable[Row]) -> None:
        """Run these under torchrun, in this order."""
        for row in rows:
            program = self.prepare("torchrun", row)
            self._ahead[row.name] = program, self._pool.submit(program.run)

    def torchrun(self, row: Row) -> tuple[Program, list[int]]:
        """Return how a row went under torchrun, and its exit codes; it has gone ahead."""
        program, codes = self._ahead[row.name]
        return program, codes.result()

    def close(self) -> None:
        """End all runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for _ in range(2):  # one that was just being started is seen the second time
            for program in self._programs:
                program.close()
            self._pool.shutdown()


def _address(number: int) -> str:
    return f"127.0.0.{number + 1}"
