"""What is told of, and that telling harms nobody: real children, a real server on the loopback."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from remuster.agent import proc
from remuster.agent.aside import Spared
from remuster.agent.occurrences import Chosen, Happening, Occurrence, of_end, of_record, of_resume
from remuster.agent.on_event import MOST, Herald, shown
from remuster.agent.summary import row
from remuster.rendezvous.records import Job, Memory, Outcome, Phase, ResumePoint, Round

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOST = Occurrence(Happening.NODE_LOST, "node b vanished", 3, 2, "node_lost", "b", 150, 1)
JOB = Job(Phase.RUNNING, Round(3), 1, 2, "one", Round(2), Round(3), memory=Memory("x", 150))
RECORD: dict[str, Any] = {
    "round": 3,
    "attempt": 2,
    "decision": "gpu_ecc: worth another try, charged to hardware",
    "newest_step": 150,
    "verdict": {"class": "gpu_ecc", "node": "b", "sentence": "rank 1 on b found an ECC error"},
}


# --- what is told of --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("left", "told"),
    [(None, None), ({}, None), ({"hardware": 2}, None), ({"hardware": 1}, 1), ({"hardware": 5, "launch": 0}, 0)],
)
def test_a_budget_that_ends(left: dict[str, int] | None, told: int | None) -> None:
    found = of_record({**RECORD, "budget_left": left})
    if told is None:
        assert found == ()
    else:
        assert found == (Occurrence(Happening.BUDGET, RECORD["decision"], 3, 2, "gpu_ecc", "b", 150, told),)


def test_a_lost_node_and_a_host_in_quarantine() -> None:
    verdict = {"class": "node_lost", "node": "b", "sentence": "node b vanished"}
    both = of_record({**RECORD, "verdict": verdict, "budget_left": {"node": 1}})
    assert [one.event.value for one in both] == ["budget", "node_lost"]
    assert both[1] == LOST
    (barred,) = of_record({**RECORD, "quarantined": "host-b~123"})
    assert (barred.event, barred.host) == (Happening.QUARANTINE, "host-b~123")
    assert barred.sentence == "host host-b~123 is in quarantine: rank 1 on b found an ECC error"
    assert of_record({"round": 1, "attempt": 0, "state": "done", "verdict": {"class": "success"}}) == ()


def test_the_end_of_a_job_that_is_not_done() -> None:
    failed = replace(JOB, phase=Phase.FAILED, outcome=Outcome(75, "too few nodes", "node_lost", "b"))
    assert of_end(failed) == Occurrence(Happening.STOP, "too few nodes", 3, 1, "node_lost", "b", 150)
    assert of_end(replace(JOB, phase=Phase.DONE, outcome=Outcome(0, "done"))) is None


@pytest.mark.parametrize(
    ("step", "furthest", "refused", "says"),
    [
        (150, 150, (), None),
        (200, 150, (), None),
        (-1, -1, (), "nothing, though step 150 had been reached"),
        (100, 120, (), "step 100, though step 150 had been reached"),
        (100, 180, (), "step 100, though step 180 had been reached"),
        (150, 150, (("step-200", "a shard is missing"),), "step 150; step-200 is passed over: a shard is missing"),
    ],
)
def test_going_back(step: int, furthest: int, refused: tuple[tuple[str, str], ...], says: str | None) -> None:
    job = replace(JOB, resume=ResumePoint("/c", step) if step >= 0 else ResumePoint())
    found = of_resume(job, Chosen(furthest, refused))
    if says is None:
        assert found is None
    else:
        assert found is not None
        assert found == Occurrence(
            Happening.ROLL_BACK, f"round 3 starts from {says}", 3, 1, step=None if step < 0 else step
        )


def test_a_first_start_goes_back_behind_nothing() -> None:
    assert of_resume(replace(JOB, memory=Memory(), resume=ResumePoint()), Chosen(-1)) is None


def test_the_json() -> None:
    assert LOST.as_json("run-7", "now") == {
        "event": "node_lost",
        "run_id": "run-7",
        "round": 3,
        "attempt": 2,
        "class": "node_lost",
        "family": "node",
        "node": "b",
        "host": None,
        "sentence": "node b vanished",
        "step": 150,
        "budget_left": 1,
        "at": "now",
    }
    bare = Occurrence(Happening.ROLL_BACK, "x" * 5000, 3).as_json("run-7", "now")
    assert (bare["class"], bare["family"], bare["node"], bare["step"], bare["attempt"]) == (None,) * 5
    assert len(str(bare["sentence"])) == 1000


# --- delivery ---------------------------------------------------------------------------------------------------------
class Told:
    """A herald, what it said and whom it spared."""

    def __init__(self, *listener: str, limit_s: float = 10.0) -> None:
        self.said: list[str] = []
        self.spared: list[tuple[int, ...]] = []
        self.herald = Herald(listener, "run-7", Spared(self.spared.append).by("events"), self.said.append, limit_s)


def program(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{text}\n")
    path.chmod(0o700)
    return str(path)


async def test_a_command_reads_json(tmp_path: Path) -> None:
    hook = program(tmp_path, "open(sys.argv[1], 'w').write(sys.stdin.read()); print('noted', file=sys.stderr)")
    told = Told(hook, str(tmp_path / "got it"))
    told.herald.tell(LOST)
    await told.herald.settle()
    got = json.loads((tmp_path / "got it").read_text())
    assert got == LOST.as_json("run-7", got["at"])
    assert got["at"].endswith("+00:00")
    assert told.said == ["--on-event says: noted"]
    assert len(told.spared[0]) == 1
    assert told.spared[-1] == ()


async def test_the_example_drains_the_node_of_a_host_in_quarantine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/told\n')
    scontrol.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (barred,) = of_record({**RECORD, "quarantined": "gpu07~123"})
    told = Told(sys.executable, str(EXAMPLES / "drain.py"))
    told.herald.tell(LOST)
    told.herald.tell(barred._replace(sentence="$(touch here); `ls` 'x'"))
    await told.herald.settle()
    assert told.said == []
    assert (tmp_path / "told").read_text().splitlines() == [
        "update",
        "nodename=gpu07",
        "state=drain",
        "reason=remuster run-7: $(touch here); `ls` 'x'",
    ]


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hook = program(
        tmp_path, f"if not os.fork():\n  os.setsid(); open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    told = Told(hook, limit_s=1.0)
    began = time.monotonic()
    told.herald.tell(LOST)
    told.herald.tell(LOST)
    assert time.monotonic() - began < 0.5, "telling returns at once"
    await told.herald.settle()
    assert time.monotonic() - began < 8.0
    (said,) = told.said
    assert said.startswith(f"--on-event {hook!r} gave no answer within 1 s and was killed; the job goes on")
    assert not proc.alive(int(pid.read_text()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sys.exit(7)", "ended with exit code 7: it said nothing on stderr"),
        ("print('no such channel', file=sys.stderr); sys.exit(1)", "ended with exit code 1: no such channel"),
        ("os.kill(os.getpid(), 9)", "ended with signal 9"),
        ("while True: os.write(1, bytes(1 << 16))", "printed more than"),
    ],
)
async def test_a_command_that_fails_is_said_once(tmp_path: Path, text: str, says: str) -> None:
    told = Told(program(tmp_path, text))
    for _ in range(3):
        told.herald.tell(LOST)
        await told.herald.settle()
    warned = [said for said in told.said if "the job goes on" in said]
    assert len(warned) == 1
    assert says in warned[0]


async def test_a_command_that_has_gone(tmp_path: Path) -> None:
    told = Told(str(tmp_path / "gone"))
    told.herald.tell(LOST)
    await told.herald.settle()
    assert "could not be started: No such file or directory; the job goes on" in told.said[0]


async def test_a_storm_starts_no_storm_of_processes(tmp_path: Path) -> None:
    """One after the other, in their order; those that a slow listener misses are the oldest."""
    hook = program(tmp_path, "open(sys.argv[1], 'a').write(str(json.load(sys.stdin)['round']) + ' ')")
    told = Told(hook, str(tmp_path / "rounds"))
    for n in range(MOST + 5):
        told.herald.tell(LOST._replace(round=n))
    await told.herald.settle()
    assert [int(n) for n in (tmp_path / "rounds").read_text().split()] == list(range(5, MOST + 5))
    assert "is slow: node_lost is not told" in told.said[0]
    told.herald.tell(LOST._replace(round=99))
    await told.herald.settle()
    assert (tmp_path / "rounds").read_text().endswith(" 99 ")


class Server(HTTPServer):
    """What was posted to it; ``status`` is its answer."""

    status = 204
    hangs = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, str, dict[str, Any]]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/SECRET?token=SECRET"

    def close(self) -> None:
        self.over.set()
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, self.headers["Content-Type"], body))
        if self.server.hangs:
            self.server.over.wait()
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def secret(told: Told) -> bool:
    return "SECRET" in "".join(told.said)


async def test_a_url_is_posted_to(server: Server) -> None:
    told = Told(server.url)
    told.herald.tell(LOST)
    await told.herald.settle()
    ((path, kind, body),) = server.got
    assert (path, kind) == ("/hooks/SECRET?token=SECRET", "application/json")
    assert body == LOST.as_json("run-7", body["at"])
    assert told.said == []


async def test_a_redirect_is_not_followed_for_it_would_lose_the_body(server: Server) -> None:
    server.status = 302
    told = Told(server.url)
    told.herald.tell(LOST)
    await told.herald.settle()
    assert len(server.got) == 1
    assert "the server answers 302" in told.said[0]


async def test_the_url_is_in_no_command_line_and_in_no_environment(server: Server) -> None:
    server.hangs = True
    told = Told(server.url)
    told.herald.tell(LOST)
    while not server.got:
        await asyncio.sleep(0.01)
    (pid,) = told.spared[-1]
    seen = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    assert b"poster.py" in seen
    assert b"SECRET" not in seen
    server.over.set()
    await told.herald.settle()


async def test_a_server_that_refuses_hangs_or_is_not_there(server: Server) -> None:
    server.status = 500
    refused = Told(server.url)
    refused.herald.tell(LOST)
    await refused.herald.settle()
    assert "--on-event http://127.0.0.1 ended with exit code 1: the server answers 500; the job" in refused.said[0]
    server.hangs = True
    hung = Told(server.url, limit_s=1.0)
    hung.herald.tell(LOST)
    await hung.herald.settle()
    assert "--on-event http://127.0.0.1 " in hung.said[0]
    assert "no answer" in hung.said[0]
    server.over.set()
    gone = Told("http://127.0.0.1:1/SECRET")
    gone.herald.tell(LOST)
    await gone.herald.settle()
    assert "no connection: Connection refused; the job goes on" in gone.said[0]
    strange = Told("http://127.0.0.1:SECRET/")  # no command line gets so far
    strange.herald.tell(LOST)
    await strange.herald.settle()
    assert strange.said
    assert not any(secret(told) for told in (refused, hung, gone, strange))


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    assert shown(("https://user:SECRET@hooks.example.org:8443/SECRET?SECRET",)) == "https://hooks.example.org"
    assert shown(("/usr/bin/notify", "--to", "me")) == "'/usr/bin/notify'"


def test_all_helpers_are_spared_together() -> None:
    told: list[tuple[int, ...]] = []
    spared = Spared(told.append)
    hook, events = spared.by("hook"), spared.by("events")
    hook((5,))
    events((7, 8))
    hook(())
    events(())
    assert told == [(5,), (5, 7, 8), (7, 8), ()]
    assert os.getpid() not in told


@pytest.mark.parametrize("odd", [{"verdict": "x"}, {"times_ms": [1]}, {"budget_left": {"a": "b"}}, {"round": "7"}])
def test_whatever_stands_in_a_record_ends_nobody(odd: dict[str, object]) -> None:
    """Records come from the store, where anybody who reaches it may write."""
    assert of_record(odd) == ()
    assert row(odd)["class"] is None
