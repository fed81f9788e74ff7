"""What a training script is told about a stop that is to come, over the page of a real agent's in another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import remuster
from remuster.agent.notice import NoticePage
from remuster.worker import notice

RANK = """
import remuster, sys
print(remuster.stop_requested(), flush=True)
sys.stdin.read(1)
print(remuster.stop_requested())
"""


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("REMUSTER_NOTICE", raising=False)
    notice._page.cache_clear()
    yield
    notice._page.cache_clear()


def test_outside_remuster_nobody_asks() -> None:
    assert remuster.stop_requested() is False


@pytest.mark.parametrize("place", ["/proc/1/fd/nothing:1", "no number", "/dev/null:1", "{page}:9", "{page}:x", ":1"])
def test_a_page_that_cannot_be_read_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    page = NoticePage(2)
    page.ask()
    monkeypatch.setenv("REMUSTER_NOTICE", place.format(page=page.address(0).rpartition(":")[0]))
    assert remuster.stop_requested() is False


def test_where_its_path_is_another_file_that_file_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rank hands its environment on to a job on another machine, or in a container with processes of its own."""
    mine = tmp_path / "mine"
    mine.write_bytes(b"AAA")
    with mine.open("r+b") as file:
        monkeypatch.setenv("REMUSTER_NOTICE", f"/proc/{os.getpid()}/fd/{file.fileno()}:1")
        assert remuster.stop_requested() is False
    assert mine.read_bytes() == b"AAA"


def test_a_rank_sees_it_and_the_agent_sees_that_it_looks() -> None:
    page = NoticePage(3)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env={**os.environ, "REMUSTER_NOTICE": page.address(i)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        for i in (0, 2)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "False\n"
    assert page.looking() == (0, 2)
    page.ask()
    for rank in ranks:
        assert rank.communicate("\n")[0] == "True\n"
    page.clear()
    assert page.looking() == ()


STAYS = """
import os, signal, sys, remuster
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
remuster.stop_requested()
child = os.fork()
if child == 0:
    print("up", flush=True)
    signal.pause()
assert sys.stdin.readline() == "killed\\n"
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize(
    ("by_all", "own", "staying", "code"), [(True, False, (0,), 0), (True, True, (), 3), (False, False, (), -15)]
)
def test_where_sigterm_comes_to_all_a_rank_that_looks_outlives_it_and_its_forks_do_not(
    by_all: bool, own: bool, staying: tuple[int, ...], code: int
) -> None:
    page = NoticePage(1, by_all)
    rank = subprocess.Popen(
        [sys.executable, "-c", STAYS, *(["own"] if own else [])],
        env={**os.environ, "REMUSTER_NOTICE": page.address(0)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == "up\n"
    assert (page.looking(), page.staying()) == ((0,), staying)
    os.killpg(rank.pid, signal.SIGTERM)
    said = rank.communicate("killed\n")[0]
    assert rank.returncode == code
    if code == 0:
        assert said == "-15\n"


def test_what_a_rank_does_to_the_page_hurts_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    page = NoticePage(2)
    path = page.address(0).rpartition(":")[0]
    with pytest.raises(PermissionError):
        os.truncate(path, 0)
    assert page.looking() == ()
    page.ask()
    page.clear()
    monkeypatch.setenv("REMUSTER_NOTICE", page.address(1))
    assert remuster.stop_requested() is False
    assert page.looking() == (1,)


def test_it_costs_no_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million steps ask within seconds; one call of the kernel each would be seen in the time that it took there."""
    monkeypatch.setenv("REMUSTER_NOTICE", NoticePage(1).address(0))
    assert remuster.stop_requested() is False
    asked = remuster.stop_requested
    before = time.process_time(), os.times().system
    for _ in range(200_000):
        asked()
    spent, kernel = time.process_time() - before[0], os.times().system - before[1]
    assert (spent < 2.0, kernel < 0.05) == (True, True), (spent, kernel)
