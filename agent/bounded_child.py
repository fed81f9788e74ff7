"""One helper process that is asked one question: bounded in time and output, and dead with all its children afterwards.

Called by the resume hook from the agent's loop. The child leads a session of its own; whatever it leaves behind is
killed too, answered or not. Not for ranks (the guardian's) and not for services.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from . import proc
from .sweep import kill_all

MAX_ANSWER = 1 << 20
MAX_WORDS = 1 << 20  # of its stderr that are passed on
LINE_MAX = 4096
DEATH_BOUND_S = 5.0  # from SIGKILL to proven dead; longer means a kernel that waits for a device
MARK = "REMUSTER_CHILD"  # in the environment of all that descends from one child
_NOTICES = (signal.SIGUSR1, signal.SIGUSR2)  # Slurm sends a notice to every process of a step: no child dies of one
_PAUSE_S = 0.002


class ChildTrouble(Exception):
    """The child gave no reply within its bounds. The sentence is to be put after the child's name."""


class NoAnswer(ChildTrouble):
    """The child took longer than it may."""


@dataclass(frozen=True, slots=True)
class Reply:
    """How the child ended (as subprocess says it), what it printed, and its last line of stderr."""

    status: int
    out: bytes
    last_words: str


async def ask_child(
    argv: Sequence[str],
    question: bytes,
    *,
    timeout_s: float,
    spare: Callable[[tuple[int, ...]], None],
    say: Callable[[str], None],
    env: Mapping[str, str] = MappingProxyType({}),
) -> Reply:
    """Start ``argv`` with ``question`` as its stdin and return its reply; ChildTrouble when there is none.

    ``spare`` is called with the child's pid in the turn of the loop in which it is started, and with nothing when it
    is over; ``say`` with each line of its stderr; ``env`` is added to its environment. When the caller is cancelled the
    child is killed as well.
    """
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    child = _start(argv, question, {**os.environ, **env, MARK: mark})
    spare((child.pid,))
    assert child.stdout is not None
    assert child.stderr is not None
    words = _Words(say)
    ended = _Watch(os.pidfd_open(child.pid))
    out = _Pipe(child.stdout.fileno(), MAX_ANSWER)
    err = _Pipe(child.stderr.fileno(), LINE_MAX, words.take)
    try:
        await asyncio.wait({ended.seen, out.full}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        in_time = ended.seen.done()
    finally:
        try:
            dead = await _end(child, mark, ended.seen)
        finally:
            for watched in (ended, out, err):
                watched.close()
            child.stdout.close()
            child.stderr.close()
            words.finish()
            spare(())  # what is not dead by now is a stray like any other
    if not dead:
        raise ChildTrouble(f"could not be killed (pid {child.pid}); a process in state D waits for a device or server")
    if out.full.done():
        raise ChildTrouble(f"printed more than {MAX_ANSWER} bytes and was killed")
    if not in_time:
        raise NoAnswer(f"gave no answer within {timeout_s:g} s and was killed")
    return Reply(child.returncode, bytes(out.data), words.last)


def _start(argv: Sequence[str], question: bytes, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    stdin = os.memfd_create("question")  # a file, not a pipe: the child may read it late, or never
    try:
        os.write(stdin, question)
        os.lseek(stdin, 0, os.SEEK_SET)
        pipe = subprocess.PIPE
        signal.pthread_sigmask(signal.SIG_BLOCK, _NOTICES)
        return subprocess.Popen(argv, stdin=stdin, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
    except OSError as error:
        raise ChildTrouble(f"could not be started: {_why(argv[0], error)}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOTICES)
        os.close(stdin)


def _why(program: str, error: OSError) -> str:
    """Say what a failed start means; the kernel says the same of a program as of the interpreter it asks for."""
    if error.errno == errno.ENOENT and shutil.which(program) is not None:
        return "the interpreter that its first line asks for is not there"
    if error.errno == errno.ENOEXEC:
        return "it is no program of this machine, and its first line names no interpreter (#!)"
    return error.strerror or str(error)


class _Watch:
    """A pidfd: readable once its process has ended."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self.seen: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(fd, self._ready)

    def _ready(self) -> None:
        self._loop.remove_reader(self._fd)
        self.seen.set_result(None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


class _Pipe:
    """The reading end of a pipe. Without ``take`` the bytes are kept, and ``full`` is set when they are too many."""

    def __init__(self, fd: int, limit: int, take: Callable[[bytearray], None] | None = None) -> None:
        self.data = bytearray()
        self._fd = fd
        self._limit = limit
        self._take = take
        self._loop = asyncio.get_running_loop()
        self.full: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._fd)
        self.data += data
        if self._take is not None:
            self._take(self.data)
        elif len(self.data) > self._limit and not self.full.done():
            self._loop.remove_reader(self._fd)
            self.full.set_result(None)
        return bool(data)

    def close(self) -> None:
        """Read what is there, and no more: a process that outlived the child may hold the other end."""
        while not self.full.done() and self._read():
            pass
        self._loop.remove_reader(self._fd)


class _Words:
    """What the child says on stderr, line by line and within bounds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.last = ""
        self._say = say
        self._room = MAX_WORDS
        self._rest = bytearray()

    def take(self, data: bytearray) -> None:
        """Say the whole lines in ``data`` and leave the rest in it."""
        while (end := data.find(b"\n") + 1) or len(data) > LINE_MAX:
            end = end or LINE_MAX
            self._line(bytes(data[:end]))
            del data[:end]
        self._rest = data

    def finish(self) -> None:
        self._line(bytes(self._rest))

    def _line(self, raw: bytes) -> None:
        text = raw[:LINE_MAX].decode(errors="replace").rstrip()
        if not text:
            return
        self.last = text
        if self._room > 0:
            self._say(text if self._room > len(raw) else "(it says more; only this much is kept)")
            self._room -= len(raw)


async def _end(child: subprocess.Popen[bytes], mark: str, ended: asyncio.Future[None]) -> bool:
    """Kill what is left of the child and of all below it; True when it is proven that nothing is."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + DEATH_BOUND_S
    family: dict[int, str] = {}
    while True:
        # those in sessions of their own, whom no group signal reaches; orphans among them have come to us
        for pid in (*proc.below(child.pid), *_orphans(mark, child.pid)):
            family.setdefault(pid, proc.start_ticks(pid))
        left = [pid for pid, ticks in family.items() if proc.alive(pid) and proc.start_ticks(pid) == ticks]
        if ended.done() and child.poll() is not None and not left and _group_is_gone(child.pid):
            _reap(family)  # those that have died since the last look
            return True
        if loop.time() >= deadline_s:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        kill_all(left)
        await asyncio.sleep(_PAUSE_S)
        _reap(family)


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _orphans(mark: str, child: int) -> list[int]:
    """Return our children that carry the mark, with all below them: the agent is a subreaper and is given them."""
    found = [
        pid
        for pid in proc.children(os.getpid())
        if pid != child and f"{MARK}={mark}".encode() in proc.read(f"/proc/{pid}/environ").split(b"\0")
    ]
    return [*found, *(other for pid in found for other in proc.below(pid))]


def _group_is_gone(group: int) -> bool:
    """Reap those of the group that were given to us, and look whether any other is there. The leader is reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return not any(_group_of(pid) == group and proc.alive(pid) for pid in proc.all_pids())  # zombies of others


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
