"""Where living ranks are: asked of real processes, by a signal, by py-spy where there is one, and in /proc."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.processes import until

from remuster.agent import proc, stacks
from remuster.agent.beats import Beats
from remuster.agent.sources import Begun, RankHere
from remuster.agent.stacks import Stacks, in_kernel, of_faulthandler, of_py_spy
from remuster.health.evidence import Fact
from remuster.health.observed import Lacked, Stack
from remuster.rendezvous.records import Round
from remuster.worker.stack_signal import NUMBER

BEATING = """
import os, sys, remuster
def wait_for_data():
    print("here", flush=True)
    os.read(0, 1)
remuster.heartbeat(5)
wait_for_data()
"""
SILENT = BEATING.replace("remuster.heartbeat(5)", "")
REAL, PYTHON = stacks.find_py_spy(), sys.executable
# The signal is in use here, and its user gets it.
TAKEN = "import signal; signal.signal(47, lambda *a: print('mine'))" + BEATING


class Ranks:
    """Processes in place of ranks, which wait for the test's end."""

    def __init__(self, beats: Beats, folder: Path) -> None:
        self.beats = beats
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, argv: tuple[str, ...] = (PYTHON, "-c")) -> RankHere:
        local = len(self.processes)
        env = {**os.environ, "REMUSTER_BEATS": self.beats.address(local), "REMUSTER_ROUND": "1"}
        process = subprocess.Popen((*argv, program), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        family = (process.pid, *proc.below(process.pid))
        until(lambda: {proc.state(pid) for pid in family} == {"S"}, "it waits")
        return RankHere(4 + local, local, process.pid, self.folder, {})

    def look(self, *ranks: RankHere) -> list[Fact]:
        async def ask() -> tuple[Fact, ...]:
            source = Stacks(self.beats.stack)
            source.begin(Begun(Round(1), 0.0, ranks))
            await source.inspect()
            return await source.facts()

        return list(asyncio.run(ask()))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """Ranks where py-spy is not installed."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")  # py-spy is also looked for beside it
    beats = Beats(1, 4)
    made = Ranks(beats, tmp_path)
    yield made
    made.close()
    beats.close()


def test_ranks_that_have_sent_a_heartbeat_show_where_they_are(ranks: Ranks) -> None:
    here = [ranks.start(BEATING) for _ in range(3)]
    found = ranks.look(*here)
    for rank, fact in zip(here, found, strict=True):
        assert isinstance(fact, Stack)
        assert (fact.rank, fact.by) == (rank.rank, "faulthandler")
        assert fact.frames == ("<string>:5 wait_for_data", "<string>:7 <module>")
    assert all(process.poll() is None for process in ranks.processes), "they go on"


def test_a_rank_behind_a_shell_is_found(ranks: Ranks) -> None:
    here = ranks.start(f"{PYTHON} -c '{BEATING}'; true", ("/bin/sh", "-c"))
    (fact,) = ranks.look(here)
    assert isinstance(fact, Stack)
    assert fact.frames[0] == "<string>:5 wait_for_data"


@pytest.mark.parametrize("program", [SILENT, TAKEN])
def test_of_others_the_kernel_says_where_they_wait(ranks: Ranks, program: str) -> None:
    """Red when the signal is sent to whoever would die of it. A handler of the user's keeps its signal."""
    here = ranks.start(program)
    (fact,) = ranks.look(here)
    assert isinstance(fact, Stack)
    assert fact.by == "proc"
    assert fact.frames[0].endswith(": sleeping")
    assert any(frame.startswith(("in the kernel: ", "system call ")) for frame in fact.frames)
    assert ranks.processes[0].poll() is None


def test_a_stopped_rank_is_said_to_be_stopped_and_holds_up_nobody(ranks: Ranks) -> None:
    stopped, other = ranks.start(BEATING), ranks.start(BEATING)
    os.kill(stopped.pid, signal.SIGSTOP)
    until(lambda: proc.stopped(stopped.pid), "it is stopped")
    first, second = ranks.look(stopped, other)
    assert isinstance(first, Stack)
    assert first.by == "proc"
    assert first.frames[0].endswith(": stopped")
    assert isinstance(second, Stack)
    assert second.by == "faulthandler"


def test_a_rank_that_has_ended_has_no_stack(ranks: Ranks) -> None:
    here = ranks.start(BEATING)
    ranks.processes[0].kill()
    ranks.processes[0].wait()
    assert ranks.look(here) == []
    assert in_kernel(here.pid) == ()


def spy(folder: Path, body: str) -> None:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o700)


def test_py_spy_is_believed_first(ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that prints what py-spy 0.4 prints, and what it was asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    frames = [{"name": "hang", "filename": "/t.py", "line": 3}, {"name": "<module>", "filename": "/t.py", "line": 9}]
    here = ranks.start(BEATING)
    threads = [{"os_thread_id": 1, "frames": []}, {"os_thread_id": here.pid, "frames": frames}]
    spy(tmp_path, f"echo $* > {tmp_path}/asked; echo '{json.dumps(threads)}'")
    assert ranks.look(here) == [Stack(here.rank, "py-spy", ("/t.py:3 hang", "/t.py:9 <module>"))]
    assert (tmp_path / "asked").read_text() == f"dump --nonblocking --json --pid {here.pid}\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1", "it ended with 1: Perm"),
        ("echo nonsense", "it ended with 0: no stack"),
        ("echo '[{\"frames\": 7}]'", "it ended with 0: no stack"),
        ("exec sleep 60", ""),
    ],
)
def test_a_py_spy_that_cannot_costs_nothing(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    spy(tmp_path, body)
    here = ranks.start(BEATING)
    stack, lacked = ranks.look(here)
    assert isinstance(stack, Stack)
    assert stack.by == "faulthandler"
    assert isinstance(lacked, Lacked)
    assert lacked.source == "py-spy"
    assert lacked.why.startswith(why)


def may_trace() -> bool:
    """Tell whether this user may look into processes that are not its children."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


@pytest.mark.skipif(not (REAL and may_trace()), reason="needs py-spy beside the interpreter, and leave to ptrace")
def test_the_real_py_spy(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(str(REAL)) + ":/usr/bin:/bin")
    here = ranks.start(SILENT)
    (fact,) = ranks.look(here)
    assert isinstance(fact, Stack)
    assert fact.by == "py-spy"
    assert fact.frames[0] == "<string>:5 wait_for_data"


def test_words_that_are_no_stack_are_none() -> None:
    assert of_faulthandler(b"\xff\0garbage\n  File x") == ()
    assert of_py_spy(b"[" * 100_000, 1) == ()
    assert of_py_spy(b'[{"frames": [1]}]', 1) == ()
    many = b'[{"frames": [' + b",".join([b'{"name": "' + b"x" * 1000 + b'"}'] * 100) + b"]}]"
    frames = of_py_spy(many, 1)
    assert len(frames) == stacks.MOST_FRAMES
    assert len(frames[0]) == stacks.LONGEST


def test_the_signal_is_one_that_nobody_else_uses() -> None:
    assert signal.SIGRTMIN < NUMBER < signal.SIGRTMAX
