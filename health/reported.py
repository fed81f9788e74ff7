"""What launchers say on a console about their ranks: exit statuses, pids, whom they stopped. Pure.

Read when nobody gave the statuses. torchrun's own report and its ``api`` lines, srun's lines about tasks.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field

_RANK = re.compile(r"\brank\s{1,8}: (\d{1,7}) \(local_rank: (\d{1,5})\)")
_CODE = re.compile(r"\bexitcode\s{1,8}: (-?\d{1,3}) {0,2}\(pid: (\d{1,9})\)")
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,3})\) local_rank: (\d{1,5}) \(pid: (\d{1,9})\)")
_STOPPED = re.compile(r"Sending process (\d{1,9}) closing signal SIG[A-Z]{2,8}")
_SRUN = re.compile(r"srun: error: ([\w.-]{1,64}): tasks? ([\d,-]{1,200}): ([A-Z][\w ]{1,60}?)(?: \(core dumped\))?$")
_EXITED = re.compile(r"Exited with exit code (\d{1,3})$")
SIGNALS = {  # strsignal's, as srun says them
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Aborted": signal.SIGABRT,
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Interrupt": signal.SIGINT,
    "Hangup": signal.SIGHUP,
    "Out Of Memory": signal.SIGKILL,
}
_PID = re.compile(
    r"(?i)^\W{0,3}(?:global[_ ]?)?(?:rank)?[ _=:]{0,3}(\d{1,7})[\s,;:=]{1,8}(?:pid[ =:]{0,3})?(\d{1,9})\s*$"
)
MOST = 8192


@dataclass(slots=True)
class Reported:
    """By rank, as far as it was said. ``tasks`` are srun's: ranks only where each task is one."""

    statuses: dict[int, int] = field(default_factory=dict[int, int])
    tasks: dict[int, int] = field(default_factory=dict[int, int])
    pids: dict[int, int] = field(default_factory=dict[int, int])
    locals: dict[int, int] = field(default_factory=dict[int, int])  # local rank: status, of one node's agent
    stopped: set[int] = field(default_factory=set[int])  # pids
    root: int = -1  # the rank that the launcher's report calls the first failure

    def __bool__(self) -> bool:
        return bool(self.statuses or self.tasks or self.locals)


def read(lines: Iterable[str]) -> Reported:
    """Return what the lines say; the last word about a rank counts: it is of the last attempt."""
    said = Reported()
    rank, first = -1, False
    for line in lines:
        if line.startswith("Root Cause"):
            first = True
        elif found := _RANK.search(line):
            rank = int(found[1])
            said.root, first = (rank if first else said.root), False
        elif (found := _CODE.search(line)) and rank >= 0:
            said.statuses[rank] = int(found[1])
            said.pids[rank] = int(found[2])
            rank = -1
        elif found := _FAILED.search(line):
            said.locals[int(found[2])] = int(found[1])
        elif found := _STOPPED.search(line):
            said.stopped.add(int(found[1]))
        elif found := _SRUN.search(line.rstrip()):
            status = _status(found[3])
            for task in _tasks(found[2]) if status is not None else ():
                said.tasks[task] = status or 0
    return said


def reports(line: str) -> bool:
    """Return whether a line says how a rank ended, and nothing else."""
    return any(pattern.search(line) for pattern in (_SRUN, _FAILED, _CODE))


def pids(lines: Iterable[str]) -> dict[int, int]:
    """Return pids by rank from lines such as ``rank0 41001``."""
    found = (_PID.match(line) for line in lines)
    return {int(match[1]): int(match[2]) for match in found if match}


def _status(words: str) -> int | None:
    if found := _EXITED.match(words):
        return int(found[1])
    number = SIGNALS.get(words.strip())
    return None if number is None else -number


def _tasks(text: str) -> list[int]:
    """Return 0, 1, 2, 5 for 0-2,5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found += range(int(first), min(int(last or first), int(first) + MOST) + 1)
    return found[:MOST]
