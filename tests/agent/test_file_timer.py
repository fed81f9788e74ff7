"""torchelastic's file timers: requests as torch's client spells them; who is late is killed and nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from remuster.agent.file_timer import Late, TimerPipe, Timers, make_pipe, place_pipe

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def request(pid: int, scope: str, at: float, signum: int = 9) -> bytes:
    """Spell a request as FileTimerRequest.to_json does."""
    body = {"version": 1, "pid": pid, "scope_id": scope, "expiration_time": at, "signal": signum}
    return json.dumps(body).encode()


def timers(*requests: bytes) -> Timers:
    made = Timers()
    assert all(made.take(one) for one in requests)
    return made


STORIES: list[tuple[list[bytes], float, list[Late]]] = [
    ([request(7, "a", 10.0)], 9.9, []),
    ([request(7, "a", 10.0)], 10.0, [Late(7, "a", 9)]),
    ([request(7, "a", 10.0), request(7, "a", -1, 0)], 99.0, []),
    ([request(7, "a", 10.0), request(7, "b", -1, 0)], 99.0, [Late(7, "a", 9)]),
    ([request(7, "a", 10.0), request(7, "a", 20.0)], 11.0, []),
    (
        [request(7, "b", 12.0), request(7, "a", 10.0, 15), request(8, "c", 11.0)],
        12.0,
        [Late(7, "a", 15), Late(8, "c", 9)],
    ),
    ([request(7, "a", 10.0, 0), request(7, "b", 11.0, 15)], 12.0, [Late(7, "b", 15)]),  # the first that kills
    ([request(7, "a", 10.0, -3)], 12.0, [Late(7, "a", 0)]),
    ([request(7, "a", 10.0, 4000)], 12.0, [Late(7, "a", 0)]),
]


@pytest.mark.parametrize(("requests", "now", "late"), STORIES)
def test_who_is_late(requests: list[bytes], now: float, late: list[Late]) -> None:
    made = timers(*requests)
    assert made.late(now) == late
    assert made.late(now) == [], "each is told once"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"{}", b"[" * 9000, request(1, "a", 5.0), request(0, "a", 5.0), request(-7, "a", 5.0),
     request(7, "a" * 513, 5.0), request(7, "a", float("nan")), request(7, "a", float("inf")),
     request(7, "a", 10**400),
     b'{"pid": "7", "scope_id": "a", "expiration_time": 5, "signal": 9}',
     b'{"pid": 7, "scope_id": "a", "expiration_time": "5", "signal": 9}'],
)  # fmt: skip
def test_what_is_no_request_is_no_timer(raw: bytes) -> None:
    made = Timers()
    assert not made.take(raw)
    assert made.next() is None


class Server:
    """A server in this process, and what it said."""

    def __init__(self, path: Path) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.guardian = os.getpid()
        fd = make_pipe(path)
        self.pipe = TimerPipe(
            path, fd, lambda: self.guardian, lambda event, **fields: self.said.append((event, fields))
        )

    def ask(self, raw: bytes) -> None:
        fd = os.open(self.pipe.path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, raw + b"\n")
        os.close(fd)

    async def says(self, count: int) -> None:
        end = time.monotonic() + 20
        while len(self.said) < count:
            assert time.monotonic() < end, self.said
            await asyncio.sleep(0.005)


async def test_a_late_child_is_killed_and_one_in_time_is_not(tmp_path: Path) -> None:
    server = Server(tmp_path / "timers")
    late, well = (subprocess.Popen(SLEEP) for _ in range(2))
    try:
        server.ask(request(well.pid, "epoch", time.time() + 0.2))
        server.ask(request(late.pid, "epoch", time.time() + 0.2))
        server.ask(b"no request")
        server.ask(request(well.pid, "epoch", -1, 0))
        await server.says(2)
        assert late.wait(20) == -9
        assert well.poll() is None
        assert server.pipe.why(late.pid) == "remuster: the timer 'epoch' of this rank expired: SIGKILL was sent"
        assert server.pipe.why(well.pid) == ""
        assert [event for event, _ in server.said] == [
            "a request for a file timer could not be understood",
            "a file timer expired: its process was killed",
        ]
    finally:
        for child in (late, well):
            child.kill()
            child.wait()
        server.pipe.close()


@pytest.mark.parametrize("there", [True, False])
async def test_the_guardian_is_nobodys_rank(tmp_path: Path, there: bool) -> None:
    """Neither it nor another child of the agent: an embedded etcd, a hook. While there is none, nobody is a rank."""
    server = Server(tmp_path / "timers")
    guardian = subprocess.Popen(SLEEP)
    server.guardian = guardian.pid if there else 0
    try:
        for scope in ("x", "y"):  # said once, or a rank could fill the agent's log
            server.ask(request(guardian.pid, scope, time.time()))
            await server.says(1)
        server.ask(b"no request")
        await server.says(2)
        assert [event for event, _ in server.said] == [
            "a file timer of a process that is no rank's expired",
            "a request for a file timer could not be understood",
        ]
        assert guardian.poll() is None
    finally:
        guardian.kill()
        guardian.wait()
        server.pipe.close()


async def test_what_does_not_run_below_the_guardian_is_never_killed(tmp_path: Path) -> None:
    """Red when ``_below`` says yes to all."""
    server = Server(tmp_path / "timers")
    orphan = f"import subprocess, sys; print(subprocess.Popen({SLEEP!r}, stdout=subprocess.DEVNULL).pid)"
    pid = int(subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, check=True).stdout)
    try:
        server.ask(request(pid, "x", time.time()))
        await server.says(1)
        assert [event for event, _ in server.said] == ["a file timer of a process that is no rank's expired"]
        os.kill(pid, 0)
    finally:
        os.kill(pid, 9)
        server.pipe.close()


def test_a_pipe_at_which_another_agent_listens_is_left_to_it(tmp_path: Path) -> None:
    """Two agents of a machine that were given one path, or torchrun's rank that starts the command."""
    path, own = tmp_path / "timers", tmp_path / "own"
    assert place_pipe("", own) == own
    assert place_pipe(str(path), own) == path
    fd = make_pipe(path)
    assert place_pipe(str(path), own) == own
    os.close(fd)
    assert place_pipe(str(path), own) == path, "an earlier start's"
    path.unlink()
    path.write_text("mine")
    assert place_pipe(str(path), own) == path, "to be told that something else is there"


def test_the_pipe_is_made_anew_and_nothing_else_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "timers"
    for _ in range(2):
        os.close(make_pipe(path))
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        make_pipe(path)
    assert path.read_text() == "mine"
