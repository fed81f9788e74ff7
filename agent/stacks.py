"""Where each rank is before it is stopped: py-spy where it is installed, else Python's faulthandler, else the kernel.

Called by ``crew.py`` as a source. py-spy looks from outside, and may not be allowed to (ptrace); faulthandler answers
in ranks that have sent a heartbeat (``worker/stack_signal.py``), into the memory that they share with this agent. What
the kernel says of a process, its state and where it waits, is there for every one. All of it within a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from ..health.evidence import Fact
from ..health.observed import Lacked, Stack
from ..worker.stack_signal import NUMBER
from . import proc
from .bounded_child import ChildTrouble, ask_child
from .sources import Begun, RankHere

WITHIN_S = 1.1  # for all ranks
END_S = 0.2  # for what is late to be killed
ANSWER_S = 0.5  # for a rank to write its stack
PAUSE_S = 0.02
MOST_RANKS = 64
MOST_FRAMES = 30
LONGEST = 200  # characters of a frame
TOGETHER = 8  # pieces of py-spy at a time
_LINE = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')  # faulthandler's


class Stacks:
    """The source. ``written``: what a local rank has written of its stack since its round began."""

    name = "stacks"

    def __init__(self, written: Callable[[int], bytes]) -> None:
        self._written = written
        self._begun: Begun | None = None
        self._found: dict[int, Stack] = {}
        self._lacked = ""

    def begin(self, begun: Begun) -> None:
        """Forget the round before."""
        self._begun, self._found, self._lacked = begun, {}, ""

    async def inspect(self) -> None:
        """Take the stacks of all living ranks. What was found counts, even when this is cut short."""
        if self._begun is None:
            return
        ranks = [rank for rank in self._begun.ranks if proc.alive(rank.pid)][:MOST_RANKS]
        for rank in ranks:
            self._keep(Stack(rank.rank, "proc", in_kernel(rank.pid)))
        pids = {rank.rank: _python_of(rank.pid) for rank in ranks}
        work = [self._by_signal(ranks, pids)]
        program = find_py_spy()
        if program:
            gate = asyncio.Semaphore(TOGETHER)
            work += [self._by_py_spy(program, rank.rank, pids[rank.rank], gate) for rank in ranks]
        tasks = [asyncio.ensure_future(one) for one in work]
        _, late = await asyncio.wait(tasks, timeout=WITHIN_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=END_S)
            self._lacked = self._lacked or f"not all ranks answered within {WITHIN_S:g} s"

    async def facts(self) -> tuple[Fact, ...]:
        """Return what was found, one stack for each rank."""
        lacked = (Lacked("py-spy", self._lacked),) if self._lacked else ()
        return (*(self._found[rank] for rank in sorted(self._found)), *lacked)

    async def close(self) -> None:
        """Nothing is left open."""

    def _keep(self, stack: Stack) -> None:
        """Keep the better of two: py-spy's is sure to be of the main thread, faulthandler's nearly so."""
        order = ("proc", "faulthandler", "py-spy")
        known = self._found.get(stack.rank)
        if stack.frames and (known is None or order.index(stack.by) >= order.index(known.by)):
            self._found[stack.rank] = stack

    async def _by_signal(self, ranks: Iterable[RankHere], pids: dict[int, int]) -> None:
        asked = [rank for rank in ranks if _ask(pids[rank.rank])]
        seen: dict[int, bytes] = {}
        for _ in range(int(ANSWER_S / PAUSE_S)):
            if not asked:
                return
            await asyncio.sleep(PAUSE_S)
            for rank in tuple(asked):
                raw = self._written(rank.local_rank)
                if raw and raw == seen.get(rank.rank):  # no more is coming
                    self._keep(Stack(rank.rank, "faulthandler", of_faulthandler(raw)))
                    asked.remove(rank)
                seen[rank.rank] = raw

    async def _by_py_spy(self, program: str, rank: int, pid: int, gate: asyncio.Semaphore) -> None:
        async with gate:
            argv = (program, "dump", "--nonblocking", "--json", "--pid", str(pid))
            try:
                reply = await ask_child(argv, b"", timeout_s=WITHIN_S, spare=lambda pids: None, say=lambda line: None)
            except ChildTrouble as error:
                self._lacked = f"it {error}"
                return
        frames = of_py_spy(reply.out, pid) if reply.status == 0 else ()
        if frames:
            self._keep(Stack(rank, "py-spy", frames))
        elif proc.alive(pid):
            self._lacked = f"it ended with {reply.status}: {reply.last_words[:LONGEST] or 'no stack'}"


def find_py_spy() -> str | None:
    """Return the program's path: on PATH, or beside this interpreter."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else None)


def of_py_spy(raw: bytes, pid: int) -> tuple[str, ...]:
    """Return the main thread's frames of ``py-spy dump --json``; none when it is something else."""
    try:
        threads: object = json.loads(raw)
        if not isinstance(threads, list):
            return ()
        found = [cast("dict[str, object]", one) for one in cast("list[object]", threads) if isinstance(one, dict)]
        main = next((one for one in found if one.get("os_thread_id") == pid), found[0] if found else {})
        frames = cast("list[dict[str, object]]", main.get("frames") or [])
        return _bounded(f"{one.get('filename')}:{one.get('line')} {one.get('name')}" for one in frames)
    except (ValueError, RecursionError, TypeError, AttributeError):
        return ()


def of_faulthandler(raw: bytes) -> tuple[str, ...]:
    """Return the frames that Python wrote."""
    lines = map(_LINE.fullmatch, raw.decode(errors="replace").splitlines())
    return _bounded(f"{line[1]}:{line[2]} {line[3]}" for line in lines if line)


def in_kernel(pid: int) -> tuple[str, ...]:
    """Return a process's state, and where it waits, if that can be read."""
    state = proc.state(pid)
    said = {"R": "running", "S": "sleeping", "D": "waiting for a device or a server", "T": "stopped", "t": "traced"}
    frames = [f"{proc.name(pid)}: {said.get(state, state)}"] if state else []
    where = proc.read(f"/proc/{pid}/wchan").decode(errors="replace").strip()
    if where not in ("", "0"):
        frames.append(f"in the kernel: {where}")
    call = proc.read(f"/proc/{pid}/syscall").split(b" ")[0].strip().decode(errors="replace")
    if call.isdecimal():
        frames.append(f"system call {call}")
    return _bounded(frames)


def _bounded(frames: Iterable[str]) -> tuple[str, ...]:
    found = [frame[:LONGEST] for _, frame in zip(range(MOST_FRAMES), frames, strict=False)]
    return tuple(found)


def _python_of(pid: int) -> int:
    """Return the rank's own Python: the first of its processes that answers for its stack or is one by its name."""
    for one in (pid, *proc.below(pid)):
        if _answers(one) or proc.name(one).startswith(("python", "pt_")):  # torch names its processes pt_…
            return one
    return pid


def _answers(pid: int) -> bool:
    bit = 1 << (NUMBER - 1)
    lines = proc.read(f"/proc/{pid}/status").splitlines()
    return any(line.startswith(b"SigCgt:") and int(line[7:], 16) & bit for line in lines)


def _ask(pid: int) -> bool:
    """Send the signal to a process that catches it; False when it does not."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _answers(pid):
            return False
        signal.pidfd_send_signal(fd, NUMBER)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
