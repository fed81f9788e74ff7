"""Scenarios from other launchers' bug reports, each named after its row in the project's list; those that need no root.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command.cluster import HERE, STEADY, Cluster, Node, Place
from command.processes import alive, boottime, until
from etcd_server import free_ports

pytestmark = pytest.mark.process

MEET = HERE / "meet.py"
CLOCK = HERE.parent / "drills" / "clock.c"
ALONE = ("--nproc-per-node", "2")
OVER_C10D = ("--rdzv-backend", "c10d", "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0.1", *ALONE)
AHEAD_S = 120


def met(place: Place, n: int = 1, world: int = 2) -> dict[int, dict[str, str]]:
    """Return what the ranks of round ``n`` said when they had met."""
    return {rank: json.loads((place.desk / f"met-{n}-{rank}").read_text()) for rank in range(world)}


# --- B02 --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "line",
    [
        "--rdzv-backend etcd --rdzv-id x --rdzv-conf connect_timeout=2",
        "--rdzv-backend c10d --rdzv-conf is_host=0,join_timeout=1,lease_ttl=2,kill_bound=0.3",
    ],
    ids=["etcd", "c10d"],
)
def test_b02_an_endpoint_is_called_what_the_user_called_it(place: Place, line: str) -> None:
    """Red when an endpoint is spelled with ``socket.getfqdn`` of its host (``Endpoint``, ``host_port``)."""
    ip, (port,) = "127.0.0.1", free_ports(1)
    name = socket.gethostbyaddr(ip)[0]
    assert name[0].isalpha(), "this address has a name, as on every machine"
    where = ("--nnodes", "2", "--rdzv-endpoint", f"{ip}:{port}")
    node = place.command(*line.split(), *where, place.script("t.py", ""))
    assert node.exit_code() == 69, node.say()
    assert f"{ip}:{port}" in node.err
    assert name not in node.err
    assert name not in json.dumps(node.events() if node.log_dir.exists() else "")


# --- B06 --------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def held(port: int) -> Iterator[None]:
    """Listen on ``port``, unless somebody else does."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            server.bind(("", port))
            server.listen()
        yield


def test_b06_two_jobs_at_once_while_torchruns_port_is_taken(place: Place) -> None:
    """Red when a round's port is 29500 (``meeting_point`` without a master)."""
    with held(29500):
        nodes = []
        for name in ("one", "two"):
            (place.desk / name).mkdir()
            nodes.append(place.command(*ALONE, MEET, place.desk / name))
        assert [node.exit_code() for node in nodes] == [0, 0], place.say()
    said = [json.loads((place.desk / name / f"met-1-{rank}").read_text()) for name in ("one", "two") for rank in (0, 1)]
    ports = [one["MASTER_PORT"] for one in said]
    assert ports[:2] == [ports[0]] * 2
    assert ports[2:] == [ports[2]] * 2
    assert len({"29500", *ports}) == 3
    assert len({one["REMUSTER_RUN_ID"] for one in said}) == 2


def test_b06_a_given_port_is_used_again_while_it_is_in_time_wait(place: Place) -> None:
    """Red when the port is tried without SO_REUSEADDR (``_everywhere`` in ports.py)."""
    (port,) = free_ports(1)
    script = place.script(
        "t.py", f"import os, runpy\nrunpy.run_path({str(MEET)!r})\nos._exit(os.environ['REMUSTER_ROUND'] == '1')\n"
    )
    node = place.command(*ALONE, "--master-port", str(port), "--max-restarts", "1", script, place.desk)
    assert node.exit_code() == 0, node.say()
    assert {one["MASTER_PORT"] for n in (1, 2) for one in met(place, n).values()} == {str(port)}
    ends = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    waiting = [end for end in ends if end[1].endswith(f":{port:04X}") and end[3] == "06"]
    assert waiting, "the port was never in TIME_WAIT: nothing was shown"


def test_b06_a_foreigner_on_the_masters_port_costs_another_round_and_no_restart(place: Place) -> None:
    """Red when ``port_in_use`` is not free in classes.csv, and when the next round has the port of the last."""
    script = place.script(
        "t.py",
        "import os, runpy, sys, time\n"
        "from pathlib import Path\n"
        "desk = Path(sys.argv[1])\n"
        "if os.environ['REMUSTER_ROUND'] == '1' and os.environ['RANK'] == '0':\n"
        "    (desk / '.port').write_text(os.environ['MASTER_PORT'])\n"
        "    (desk / '.port').rename(desk / 'port')\n"
        "    while not (desk / 'taken').exists(): time.sleep(0.005)\n"
        f"runpy.run_path({str(MEET)!r})\n",
    )
    node = place.command(*ALONE, "--max-restarts", "0", script, place.desk)
    until((place.desk / "port").exists, "rank 0 is about to listen", show=place.say)
    port = (place.desk / "port").read_text()
    with socket.create_server(("", int(port))):  # with SO_REUSEADDR: it takes what was kept for rank 0
        place.order("taken")
        assert node.exit_code() == 0, node.say()
    assert port not in {one["MASTER_PORT"] for one in met(place, 2).values()}
    first, second = node.records()
    assert (first["verdict"]["class"], first["verdict"]["rank"], first["charged_to"]) == ("port_in_use", 0, None)
    assert (first["state"], second["state"], second["spent"]) == ("retried", "done", {})


# --- B07 --------------------------------------------------------------------------------------------------------------
def test_b07_a_finished_id_is_refused_at_once_and_nothing_of_it_changes(cluster: Cluster) -> None:
    """Red when ``standing`` lets a launch into a run that is done."""
    one = ("--nnodes", "1", *ALONE, MEET, cluster.desk)
    assert cluster.start(2, *one, conf="launch_id=first").exit_code() == 0, cluster.say()
    before = cluster.tree()
    again = cluster.start(2, *one, conf="launch_id=second")
    assert again.exit_code() == 2, again.say()
    assert "this run id is done; choose another --rdzv-id, or give --fresh to run it again" in again.err
    assert cluster.tree() == before
    assert not again.records()

    fresh = cluster.start(2, "--fresh", *one, conf="launch_id=second")
    assert fresh.exit_code() == 0, fresh.say()
    assert {said["TORCHELASTIC_RESTART_COUNT"] for said in met(cluster, 2).values()} == {"0"}
    assert (cluster.job()["round"], cluster.job()["spent"]) == (2, [])
    cluster.check_left()


def test_b07_the_same_id_over_c10d_is_a_new_run_at_once(place: Place) -> None:
    """Red when a minder keeps its etcd's data for the next one (``_finish`` and ``_come_up`` of minder.py)."""
    (port,) = free_ports(1)
    for _ in range(2):
        node = place.command(*OVER_C10D, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "X", MEET, place.desk)
        assert node.exit_code() == 0, node.say()
        (record,) = node.records()
        assert (record["round"], record["attempt"], record["world_size"]) == (1, 0, 2)


@pytest.mark.parametrize("backend", ["alone", "etcd"])
def test_b07_two_jobs_without_an_id_never_meet(cluster: Cluster, backend: str) -> None:
    """Red when all jobs without an id are called ``none``."""
    where = (
        () if backend == "alone" else ("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{cluster.etcd.port}")
    )
    nodes, ids = [], []
    for name in ("one", "two"):
        (cluster.desk / name).mkdir()
        nodes.append(cluster.command(*where, *ALONE, STEADY, cluster.desk / name, name=name))
    for name, node in zip(("one", "two"), nodes, strict=True):
        there = cluster.desk / name / "round-1" / "rank-1"
        until(there.exists, f"{name} runs", show=cluster.say)
        said = json.loads(there.read_text())
        ids.append(said["REMUSTER_RUN_ID"])
        assert said["WORLD_SIZE"] == "2"
        assert f"run id {ids[-1]}" in node.err
    assert len(set(ids)) == 2
    for name in ("one", "two"):
        (cluster.desk / name / "done").touch()
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()


def test_b07_another_job_without_an_id_at_the_same_endpoint_is_refused(place: Place) -> None:
    """Red when the terms of a launch are not compared (``terms.py``): it would be taken in as a node of the first."""
    (port,) = free_ports(1)
    where = ("--rdzv-endpoint", f"127.0.0.1:{port}")
    first = place.command(*OVER_C10D, *where, "--local-addr", "127.0.0.2", STEADY, place.desk)
    place.wait_round(1, 2)
    other = place.command(*OVER_C10D, *where, "--local-addr", "127.0.0.3", MEET, place.desk)
    assert other.exit_code() == 2, other.say()
    assert "script" in other.err
    assert first.process.poll() is None
    place.order("done")
    assert first.exit_code() == 0, first.say()
    assert len(first.records()) == 1


# --- B19 --------------------------------------------------------------------------------------------------------------
WRAPPED = """
import os, signal, sys
from pathlib import Path
place = Path(sys.argv[1], f"round-{os.environ['REMUSTER_ROUND']}")
mine = sys.argv[2]  # the shell's pid
old = Path(sys.argv[1], 'round-1')
if place.name == 'round-2':  # nothing of the round before may see this one
    pids = [pid for path in old.glob('tree-*') for pid in path.read_text().split()]
    alive = [pid for pid in pids if os.path.exists(f'/proc/{pid}')]
    Path(sys.argv[1], f"old-{os.environ['RANK']}").write_text(' '.join(alive))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(write, str(os.getpid()).encode())
    os.closerange(0, 99)
    os.execve('/bin/sleep', ['sleep', '999'], {})  # no token of ours in its environment
place.mkdir(exist_ok=True)
fresh = place / f".tree-{os.environ['RANK']}"
fresh.write_text(f"{mine} {os.getpid()} {os.read(read, 16).decode()}")
fresh.rename(place / fresh.name[1:])
signal.pause()
"""


def test_b19_a_wrapper_its_child_and_a_daemon_go_with_their_attempt(place: Place) -> None:
    """Red when a guardian kills the ranks that it has started and no more (``_kill_on``, ``sweep``)."""
    child = place.script("child.py", WRAPPED)
    wrapper = place.script("wrap.sh", f'"{sys.executable}" {child} "$1" $$ &\nwait\n')
    options = ("--max-restarts", "1", "--rdzv-conf", "kill_bound=1", "--no-python", "/bin/sh", wrapper)
    node = place.command(*ALONE, *options, place.desk)

    def trees(n: int) -> list[list[int]]:
        found = [path.read_text().split() for path in place.desk.glob(f"round-{n}/tree-*")]
        return [[int(pid) for pid in pids] for pids in found] if len(found) == 2 else []

    first = until(lambda: trees(1), "two trees stand", show=place.say)
    os.kill(first[0][0], signal.SIGKILL)  # a wrapper: its child and the daemon are orphans now
    second = until(lambda: trees(2), "they stand again", show=place.say)
    assert [(place.desk / f"old-{rank}").read_text() for rank in (0, 1)] == ["", ""]
    node.process.send_signal(signal.SIGTERM)
    assert node.exit_code() == 143, node.say()
    assert [pid for pids in (*first, *second) for pid in pids if alive(pid)] == []


# --- B47 --------------------------------------------------------------------------------------------------------------
RELAY = """
import asyncio, sys
async def carry(source, sink):
    try:
        while data := await source.read(65536): sink.write(data)
    except OSError: pass
    finally: sink.close()
async def join(source, sink):
    back, there = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    await asyncio.gather(carry(source, there), carry(back, sink))
async def main():
    server = await asyncio.start_server(join, '127.0.0.1', 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Relay:
    """A way to a port that can be held up, as a network can, without closing a connection."""

    def __init__(self, port: int) -> None:
        argv = [sys.executable, "-I", "-S", "-c", RELAY, str(port)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def hold(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def relay(cluster: Cluster) -> Iterator[Relay]:
    """A way to the etcd of ``cluster``."""
    made = Relay(cluster.etcd.port)
    yield made
    made.close()


@pytest.fixture
def ahead(tmp_path: Path) -> dict[str, str]:
    """An environment in which the wall clock is two minutes ahead."""
    library, clock = tmp_path / "clock.so", tmp_path / "clock"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    clock.write_text(str(AHEAD_S))
    return {"LD_PRELOAD": str(library), "DRILL_CLOCK": str(clock)}


def last_words(record: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the end of the rank of ``node`` that failed by itself."""
    (evidence,) = (one for one in record["evidence"] if one["node"] == node)
    (end,) = (fact for fact in evidence["facts"] if fact.get("status", 0) > 0)
    return {**end, "order": evidence["order"]}


@pytest.mark.parametrize("leads", ["ahead", "right"])
def test_b47_a_clock_ahead_by_minutes(cluster: Cluster, relay: Relay, ahead: dict[str, str], leads: str) -> None:
    """Red when the verdict orders ends by ``RankExit.wall``, and when a node whose clock differs counts as lost."""
    right, skewed = "127.0.0.2", "127.0.0.3"

    def start(number: int, port: int, env: dict[str, str]) -> Node:
        return cluster.command(
            *("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", cluster.run_id),
            *("--rdzv-conf", "lease_ttl=6,kill_bound=1", "--local-addr", f"127.0.0.{number}", "--nnodes", "2"),
            *("--max-restarts", "1", *ALONE, STEADY, cluster.desk),
            name=f"127.0.0.{number}",
            env=env,
        )

    starts = [lambda: start(2, relay.port, {}), lambda: start(3, cluster.etcd.port, ahead)]
    nodes = []
    for begin in starts if leads == "right" else reversed(starts):
        nodes.append(begin())
        until(lambda: "leader" in cluster.tree(), "one leads", show=cluster.say)
    first = cluster.wait_round(1, 4)
    assert cluster.leader().folder.name.endswith(right if leads == "right" else skewed)
    end = boottime() + 6.5
    until(lambda: boottime() > end, "a lease passes", 10.0)
    assert all(alive(int(one["pid"])) for one in first.values()), cluster.say()
    assert (cluster.job()["round"], cluster.job()["phase"]) == (1, "R")

    # A rank fails where the clock is ahead, then one where it is right, of which nobody can hear for a moment.
    (its, _), (ours, other) = (
        [r for r, one in first.items() if one["REMUSTER_NODE"] == name] for name in (skewed, right)
    )
    relay.hold()
    cluster.order(f"exit-{its}", 1, "41 KeyError: the first")
    until(lambda: cluster.job()["phase"] == "S", "the round is being stopped", show=cluster.say)
    cluster.order(f"exit-{ours}", 1, "42 KeyError: the second")
    until((cluster.desk / "round-1" / f"term-{other}").exists, "its node has seen it", 3.0, cluster.say)
    relay.go_on()
    cluster.wait_round(2, 4)
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()

    record = cluster.records()[1]
    sooner, later = (last_words(record, name) for name in (skewed, right))
    assert sooner["wall"] > later["wall"] + AHEAD_S / 2, "the clocks were not apart: nothing was shown"
    assert sooner["order"] < later["order"]
    assert (record["verdict"]["node"], record["verdict"]["rank"]) == (skewed, its), record["verdict"]
    assert all(time is None or 0 <= time < 60_000 for time in record["times_ms"].values()), record["times_ms"]
    cluster.check_left()
