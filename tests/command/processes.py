"""What /proc says about the command's processes, and waiting for a condition. Not a test module."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
MARK = "COMMAND_TEST_MARK"  # in the environment of all that a start of the command has below it
PATIENCE_S = 30.0


def until(condition: Callable[[], T], what: str, timeout_s: float = PATIENCE_S, show: Callable[[], str] = str) -> T:
    """Wait until ``condition()`` is true and return what it said; fail with ``what``, and ``show()`` for people."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        in_time = time.monotonic() < end
        assert in_time, f"timed out after {timeout_s:g} s: {what}\n{show()}"
        time.sleep(0.01)
    return found


def boottime() -> float:
    """Return seconds on the clock that the product counts leases with."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def alive(pid: int) -> bool:
    """Tell whether a process runs, sleeps or is stopped: a zombie is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def read(pid: int, name: str) -> bytes:
    """Return a file of a process's folder in /proc; nothing when it has gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def environ(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with."""
    pairs = (os.fsdecode(item).partition("=") for item in read(pid, "environ").split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    return [int(child) for child in read(pid, f"task/{pid}/children").split()]


def marked(mark: str) -> dict[int, str]:
    """Return the living processes that carry ``mark`` in their environment, with their command lines."""
    token = f"{MARK}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and token in read(int(name), "environ") and alive(int(name)):
            found[int(name)] = os.fsdecode(read(int(name), "cmdline").replace(b"\0", b" ").strip())
    return found


def signal_all(pids: Iterable[int], signum: int = signal.SIGKILL) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
