"""The budget over time, told by the real command: over launches and lost stores, and who is told when it ends."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Cluster, Node, Place
from command.processes import until

from remuster.rendezvous.mirrored import GAP
from remuster.rendezvous.store import prefix_end

pytestmark = pytest.mark.process


def wipe(cluster: Cluster) -> None:
    """Lose the store: nothing of the run is left in it."""
    start, end = (base64.b64encode(key.encode()).decode() for key in (cluster.prefix, prefix_end(cluster.prefix)))
    assert int(cluster.etcd.post("kv/deleterange", {"key": start, "range_end": end})["deleted"]) > 0
    assert cluster.tree() == {}


def kept(directory: Path, run_id: str) -> dict[str, Any]:
    """Return the copy of the job beside the checkpoints."""
    return json.loads((directory / ".remuster" / run_id / "job.json").read_text())


def _state(directory: Path, run_id: str) -> tuple[str, int]:
    job = kept(directory, run_id)["job"]
    return job["phase"], job["round"]


def told(path: Path) -> list[dict[str, Any]]:
    """Return the events that a hook was told."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def hook(place: Place, text: str = 'exec cat >> "$1"') -> Path:
    path = place.script("hook", f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


# Publishes a step in each of its first two rounds and fails; in the third it tells where it resumed, and is done.
THIRD = 2 + GAP  # the round after the first two, of a launch that goes on from the copy
TRAINER = """
import os, sys
from pathlib import Path
from remuster import checkpoint, resume_point
n, point = int(os.environ["REMUSTER_ROUND"]), resume_point()
(Path(sys.argv[1]) / f"resumed-{n}").write_text(str(point.step) if point else "nothing")
if n < 3:
    with checkpoint.publish(100 * n, gather=lambda text: [text], rank=0) as p:
        p.path("state").write_text("x")
    sys.exit(3 + n)
"""


@pytest.mark.drill
def test_a_run_goes_on_when_its_store_is_lost(cluster: Cluster) -> None:
    directory = cluster.folder / "kept"
    args = ("--nnodes", "1", "--max-restarts", "1", "--checkpoint-dir", directory)
    first = cluster.start(2, *args, cluster.script("t.py", TRAINER), cluster.desk, conf="launch_id=one")
    assert first.exit_code() == 5, first.say()
    job = cluster.job()
    assert (job["phase"], job["round"], job["spent"]) == ("X", 2, [["unknown", 1]])
    wipe(cluster)
    assert {name: kept(directory, cluster.run_id)["job"][name] for name in job} == job

    # The same launch has ended, whatever the store knows; another one goes on, and its budget is what was left.
    late = cluster.start(2, *args, cluster.script("t.py", TRAINER), cluster.desk, conf="launch_id=one")
    assert late.exit_code() == 5, late.say()
    assert "this launch has already ended" in late.err
    second = cluster.start(2, *args, cluster.script("t.py", TRAINER), cluster.desk, conf="launch_id=two")
    assert second.exit_code() == 0, second.say()
    assert "it goes on from its copy beside the checkpoints" in second.err
    job = cluster.job()
    assert (job["phase"], job["round"], job["first"], job["past"]) == ("D", THIRD, THIRD, ["one"])
    assert job["spent"] == [["unknown", 1]]
    assert (cluster.desk / f"resumed-{THIRD}").read_text() == "200"
    steps = {int(key[-10:]): json.loads(raw)["step"] for key, raw in cluster.tree().items() if "history/" in key}
    assert steps == {1: -1, 2: 100, THIRD: 200}, "what makes the steps of replaced rounds stale is known again"
    summary = json.loads((directory / ".remuster" / cluster.run_id / f"summary-round-{THIRD}.json").read_text())
    assert summary["launches"] == ["one", "two"]

    # It is done, and stays done; --fresh begins anew, upward.
    wipe(cluster)
    again = cluster.start(2, *args, cluster.script("t.py", TRAINER), cluster.desk, conf="launch_id=three")
    assert again.exit_code() == 2, again.say()
    assert "--fresh" in again.err
    fresh = cluster.start(2, *args, "--fresh", cluster.script("t.py", TRAINER), cluster.desk, conf="launch_id=three")
    assert fresh.exit_code() == 0, fresh.say()
    job = kept(directory, cluster.run_id)["job"]
    assert (job["phase"], job["round"], job["spent"], job["past"]) == ("D", THIRD + GAP, [], ["two", "one"])

    # A copy that cannot be read is no free budget.
    wipe(cluster)
    path = directory / ".remuster" / cluster.run_id / "job.json"
    path.write_bytes(path.read_bytes()[:-30])
    torn = cluster.start(2, *args, "--fresh", cluster.script("t.py", TRAINER), cluster.desk, conf="launch_id=four")
    assert torn.exit_code() == 2, torn.say()
    assert f"move {path.parent} away" in torn.err
    assert cluster.tree() == {}
    path.parent.rename(cluster.folder / "away")
    anew = cluster.start(2, *args, cluster.script("t.py", "pass"), conf="launch_id=four")
    assert anew.exit_code() == 0, anew.say()
    assert cluster.job()["round"] == 1
    cluster.check_left()


@pytest.mark.parametrize("loss", ["fence", pytest.param("hold", marks=pytest.mark.drill)])
def test_two_nodes_and_their_store_lose_power(cluster: Cluster, loss: str) -> None:
    """The same launch goes on, for it has not ended, and what it has paid is paid."""
    directory = cluster.folder / "kept"
    args = ("--nnodes", "2", "--max-restarts", "5", "--checkpoint-dir", directory, f"--on-store-loss={loss}")
    nodes = [cluster.steady(number, *args, conf="launch_id=one") for number in (2, 3)]
    cluster.wait_round(1, 4)
    cluster.order("exit-1", 1, "9")
    cluster.wait_round(2, 4)
    path = directory / ".remuster" / cluster.run_id / "job.json"
    copied = ("R", 2)
    until(lambda: path.exists() and _state(directory, cluster.run_id) == copied, "it is copied", show=cluster.say)
    for node in nodes:
        node.power_off()
    wipe(cluster)
    nodes = [cluster.steady(number, *args, conf="launch_id=one") for number in (2, 3)]
    said = cluster.wait_round(THIRD, 4)
    assert {one["TORCHELASTIC_RESTART_COUNT"] for one in said.values()} == {"0"}
    job = cluster.job()
    assert (job["first"], job["charged"], job["spent"], job["past"]) == (THIRD, 1, [["unknown", 1]], [])
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert kept(directory, cluster.run_id)["job"]["phase"] == "D"
    cluster.check_left()
    for node in nodes:
        summary = json.loads((node.run_dir / "summary.json").read_text())
        assert (summary["rounds"], summary["outcome"]["exit_code"]) == ({"first": THIRD, "last": THIRD}, 0)
        assert summary["queue_ms"] > 0


def test_events_are_told_once_by_the_node_that_leads(cluster: Cluster) -> None:
    listener = hook(cluster)
    lists = {number: cluster.desk / f"told-{number}" for number in (2, 3, 4)}
    some = ("--nnodes", "1:3", "--max-restarts", "2")
    nodes = {n: cluster.steady(n, *some, "--on-event", f"{listener} {lists[n]}") for n in (2, 3, 4)}
    cluster.wait_round(1, 6)
    leader = cluster.leader()
    victim = next(node for node in nodes.values() if node is not leader)
    victim.power_off()
    cluster.wait_round(2, 4)
    cluster.order("exit-0", 2, "41 KeyError: one")
    cluster.wait_round(3, 4)
    cluster.order("exit-0", 3, "42 ValueError: two")
    left = [node for node in nodes.values() if node is not victim]
    assert [node.exit_code() for node in left] == [42, 42], cluster.say()
    by_node = {n: told(path) for n, path in lists.items()}
    (events,) = [found for found in by_node.values() if found]
    assert nodes[next(n for n, found in by_node.items() if found)] is leader
    events.sort(key=lambda event: event["at"])
    lost = next(event for event in events if event["event"] == "node_lost")
    assert lost["at"]
    assert lost == {
        "event": "node_lost",
        "run_id": cluster.run_id,
        "round": 1,
        "attempt": 0,
        "class": "node_lost",
        "family": "node",
        "node": victim.folder.name.partition("-")[2],
        "host": None,
        "sentence": lost["sentence"],
        "step": None,
        "budget_left": 1,
        "at": lost["at"],
    }
    assert sorted((event["event"], event["round"], event["budget_left"]) for event in events) == [
        ("budget", 1, 1),
        ("budget", 2, 0),
        ("node_lost", 1, 1),
        ("stop", 3, None),
    ]
    assert next(event for event in events if event["event"] == "stop")["family"] == "user"
    assert "this is the last restart of this launch" in "".join(event["sentence"] for event in events)
    assert not cluster.leaked_keys()
    cluster.check_nodes_left()


SPOIL = "    Path(os.environ['REMUSTER_CHECKPOINT_DIR'], 'step-000000000100', 'state').write_text('y')"
SPOILER = TRAINER.replace("if n < 3:", "if n < 2:").replace("    sys.exit", f"{SPOIL}\n    sys.exit")
LASTS = """
import os, sys, time
n = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
time.sleep(1.0 if n == 2 else 0.1)
sys.exit(n + 3 if n < 2 else 0)
"""


def test_going_back_is_told(place: Place) -> None:
    script, directory = place.script("t.py", SPOILER), place.folder / "kept"
    args = ("--max-restarts", "9", "--checkpoint-dir", directory, "--on-event", f"{hook(place)} {place.desk / 'told'}")
    node = place.command(*args, script, place.desk)
    assert node.exit_code() == 0, node.say()
    (event,) = told(place.desk / "told")
    assert (event["event"], event["round"], event["step"]) == ("roll_back", 2, None)
    assert "though step 100 had been reached; step-000000000100 is passed over" in event["sentence"]
    summary = json.loads((node.run_dir / "summary.json").read_text())
    assert [one["lost_steps"] for one in summary["attempts"]] == [100, None]
    assert summary["totals"]["recovery_ms"]["median"] == summary["attempts"][0]["recovery_ms"] > 0


@pytest.mark.drill
def test_a_listener_that_hangs_delays_no_restart_and_ends_with_the_command(place: Place) -> None:
    listener = hook(place, f"echo begun >> {place.desk / 'begun'}; exec sleep 600")
    script = place.script("t.py", LASTS)
    began = time.monotonic()
    node = place.command("--max-restarts", "2", "--on-event", str(listener), script)
    until(lambda: node.events("done"), "the job is done", show=node.say)
    done_s = time.monotonic() - began
    assert node.exit_code() == 0, node.say()
    assert done_s < 9, "no hook was waited for"
    assert time.monotonic() - began < done_s + 17
    assert (place.desk / "begun").read_text() == "begun\nbegun\n"
    assert node.err.count("gave no answer within 10 s and was killed; the job goes on") == 1


class Channel(HTTPServer):
    """A place that events are posted to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.got: list[dict[str, Any]] = []
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Post(BaseHTTPRequestHandler):
    server: Channel

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(500)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    made.close()


def holds(node: Node, word: bytes) -> list[str]:
    """Return the files below a node's folder that hold a word."""
    return [str(path) for path in node.folder.rglob("*") if path.is_file() and word in path.read_bytes()]


def test_a_url_gets_it_and_its_token_stands_nowhere(place: Place, channel: Channel) -> None:
    url = f"http://127.0.0.1:{channel.server_port}/T0/SECRET"
    node = place.command("--on-event", url, place.script("t.py", "import sys; sys.exit(7)"))
    assert node.exit_code() == 7, node.say()
    (event,) = channel.got
    assert (event["event"], event["class"], event["round"]) == ("stop", "exit_unknown", 1)
    assert "the server answers 500; the job goes on" in node.err
    assert holds(node, b"--on-event http://127.0.0.1 ")
    assert holds(node, b"SECRET") == []


def test_a_window(place: Place) -> None:
    script = place.script("t.py", "import os, sys; sys.exit(3 + int(os.environ['TORCHELASTIC_RESTART_COUNT']))")
    node = place.command("--retry-budget", "unknown=1/1h", script)
    assert node.exit_code() == 4, node.say()
    assert "this is the last retry of family unknown" in node.err
    assert "1 of 1 retries within 1h (--retry-budget unknown=1/1h); the next is allowed in" in node.err
    first, second = node.records()
    assert (first["budget_left"], first["charged_to"], first["refunded"]) == ({"unknown": 0}, "unknown", None)
    assert (second["budget_left"], second["charged_to"]) == (None, None)


def test_progress_is_given_back(place: Place) -> None:
    """Three failures, each after a newer checkpoint, on a budget of one."""
    text = TRAINER.replace("n < 3", "n < 4").replace("3 + n", "9 + n")
    directory = place.folder / "kept"
    node = place.command(
        *("--retry-budget", "unknown=1", "--checkpoint-dir", directory, place.script("t.py", text), place.desk)
    )
    assert node.exit_code() == 0, node.say()
    assert [record["refunded"] for record in node.records()] == [None, "unknown", "unknown", None]
    assert [record["newest_step"] for record in node.records()] == [100, 200, 300, 300]
    assert "one retry of family unknown is given back for progress" in node.err
    summary = json.loads((node.run_dir / "summary.json").read_text())
    assert (summary["totals"]["charged"], summary["totals"]["refunded"], summary["spent"]) == (3, 2, {"unknown": 1})
