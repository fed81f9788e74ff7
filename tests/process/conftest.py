"""Starts nodes (keeper, agent, guardian) as real processes, and tells what of them is alive."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import remuster

HERE = Path(__file__).parent
ROOT = Path(remuster.__file__).parent.parent
PATIENCE_S = 20.0


def until(condition, what, timeout_s=PATIENCE_S):
    """Wait until ``condition()`` is true; return what it said."""
    end = time.monotonic() + timeout_s
    while True:
        if result := condition():
            return result
        assert time.monotonic() < end, f"timed out after {timeout_s} s: {what}"
        time.sleep(0.002)


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid):
    return state_of(pid) not in ("", "Z", "X")


class ByMark:
    """Finds processes by a variable in their environment. One scan misses what keeps forking, so it takes several."""

    def __init__(self):
        self.variable = f"PROCESS_TEST_MARK={uuid.uuid4().hex}"

    def enter(self):
        return None

    def pids(self):
        found = set()
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if self.variable.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                        found.add(int(name))
                except OSError:
                    continue
        return {pid for pid in found if alive(pid)}

    def close(self):
        until(lambda: not [os.kill(pid, signal.SIGKILL) for pid in self.pids()], "cleaning up")


class ByCgroup(ByMark):
    """Finds them in a private cgroup v2: nothing that forks can hide."""

    def __init__(self, mount):
        super().__init__()
        self.path = Path(mount, f"process-test-{uuid.uuid4().hex[:12]}")
        self.path.mkdir()

    def enter(self):
        (self.path / "cgroup.procs").write_text("0")

    def pids(self):
        if "populated 0" in (self.path / "cgroup.events").read_text():
            return set()
        folders = [self.path, *(p for p in self.path.iterdir() if p.is_dir())]
        return {int(pid) for folder in folders for pid in self._procs(folder)}

    def _procs(self, folder):
        try:
            return (folder / "cgroup.procs").read_text().split()
        except OSError:
            return []

    def left_folders(self):
        return [p.name for p in self.path.iterdir() if p.is_dir()]

    def close(self):
        (self.path / "cgroup.kill").write_text("1")
        until(lambda: not self.pids(), "cleaning up")
        for folder in self.path.iterdir():
            if folder.is_dir():
                folder.rmdir()
        self.path.rmdir()


def make_oracle():
    for mount in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        if os.path.exists(f"{mount}/cgroup.procs") and os.access(mount, os.W_OK) and os.getuid() == 0:
            try:
                return ByCgroup(mount)
            except OSError:
                break
    return ByMark()


class Node:
    """One node under test; ``events`` keeps everything that was heard."""

    def __init__(self, oracle, tmp_path, env=None, driver="driver.py", **options):
        self.oracle = oracle
        self.options = options
        self.tmp_path = tmp_path
        self.events = []
        self._rest = b""
        command_r, self._commands = os.pipe()
        self._events, event_w = os.pipe()
        mark, value = oracle.variable.split("=")
        self.env = os.environ | {"PYTHONPATH": str(ROOT), mark: value, "XDG_RUNTIME_DIR": str(tmp_path)} | (env or {})
        self.errors = open(tmp_path / "stderr", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", str(HERE / driver), str(command_r), str(event_w), json.dumps(options)],
            pass_fds=(command_r, event_w),
            env=self.env,
            stdin=subprocess.DEVNULL,
            stderr=self.errors,
            preexec_fn=oracle.enter,  # noqa: PLW1509
        )
        os.close(command_r)
        os.close(event_w)
        self.keeper = self.process.pid

    def up(self):
        heard = self.wait("Up")
        self.agent, self.guardian = heard["agent"], heard["guardian"]
        assert heard["keeper"] == self.keeper
        return self

    def tell(self, *command):
        os.write(self._commands, json.dumps(command).encode() + b"\n")

    def wait(self, event, timeout_s=PATIENCE_S, **fields):
        """Return the first event of this kind that no earlier wait has returned."""
        return self.wait_any(event, timeout_s=timeout_s, **fields)

    def wait_any(self, *event, timeout_s=PATIENCE_S, **fields):
        end = time.monotonic() + timeout_s
        while True:
            for heard in self.events:
                if heard["event"] in event and not heard.get("seen") and fields.items() <= heard.items():
                    heard["seen"] = True
                    return heard
            left = end - time.monotonic()
            assert left > 0, f"no {event} {fields} within {timeout_s} s; heard {self.events}; {self.stderr()}"
            if select.select([self._events], [], [], left)[0]:
                data = os.read(self._events, 1 << 16)
                assert data, f"the node has gone without {event} {fields}; heard {self.events}; {self.stderr()}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.events += [json.loads(line) for line in lines]

    def heard(self, event):
        return [e for e in self.events if e["event"] == event]

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()

    def lease(self, inc=1, for_s=None):
        self.tell("lease", inc, for_s)

    def start(self, *argvs, n=1, inc=1, command="start", **fields):
        self.tell(command, n, inc, [self.order(i, argv, **fields) for i, argv in enumerate(argvs)])

    def order(self, local_rank, argv, **fields):
        return {"local_rank": local_rank, "argv": list(argv), "env": {}, **fields}

    def plant(self, ranks=2, hop=True, n=1, inc=1):
        """Start ranks with whole trees below them and wait until they stand."""
        argv = [sys.executable, "-S", "-E", str(HERE / "tree.py"), *(["hop"] if hop else [])]
        logs = [self.tmp_path / f"rank-{uuid.uuid4().hex[:8]}" for _ in range(ranks)]
        orders = [self.order(i, argv, stdout=str(log)) for i, log in enumerate(logs)]
        self.tell("start", n, inc, orders)
        started = self.wait("RanksStarted")
        until(lambda: all(log.exists() and log.read_text() for log in logs), "the trees stand")
        return [pid for _, pid in started["pids"]]

    def alive(self, pid):
        return alive(pid)

    def strangers(self):
        """Return what is alive of this node besides its three processes, seen in several looks."""
        found = set()
        for _ in range(3 if isinstance(self.oracle, ByCgroup) else 6):
            known = {self.keeper, self.agent, self.guardian}
            found |= {pid for pid in self.oracle.pids() - known if "rank-guardian" not in title(pid)}
        return found

    def kill(self, *who, signum=signal.SIGKILL):
        for name in who:
            with contextlib.suppress(ProcessLookupError):  # the end of the one before has ended it too
                os.kill(getattr(self, name), signum)

    def exit_code(self, timeout_s=PATIENCE_S):
        return self.process.wait(timeout_s)

    def close(self):
        for name in ("keeper", "agent", "guardian"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(getattr(self, name, 0) or self.keeper, signal.SIGCONT)
        os.close(self._commands)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._events)
        self.errors.close()


def title(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def oracle():
    made = make_oracle()
    yield made
    made.close()


@pytest.fixture
def node(oracle, tmp_path):
    """Return a function that starts a node; ``up=False`` leaves it young."""
    nodes = []

    def make(*, up=True, where=None, **options):
        one = Node(where or oracle, tmp_path, **options)
        nodes.append(one)
        return one.up() if up else one

    yield make
    for one in nodes:
        one.close()


@pytest.fixture(name="until")
def until_fixture():
    return until
