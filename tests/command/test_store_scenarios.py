"""Scenarios from other launchers' bug reports about their store, each named after its row in the project's list.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import base64
import os
import signal
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command.cluster import PROGRESS, Cluster, Node
from command.processes import alive, boottime, read, until
from etcd_server import EtcdServer, free_ports

pytestmark = pytest.mark.process

TWO = ("--nnodes", "2", "--max-restarts", "9")
AWAY_S = 30.0
TURNS = 4
QUOTA_BYTES = 16 << 20
ROUNDS = 200


def begun(cluster: Cluster, *args: str, conf: str = "") -> tuple[list[Node], list[int]]:
    """Start two nodes and wait for their round; return them and their ranks' pids."""
    nodes = [cluster.steady(number, *TWO, *args, conf=conf) for number in (2, 3)]
    first = cluster.wait_round(1, 4)
    return nodes, [int(one["pid"]) for one in first.values()]


def wait(seconds: float) -> None:
    end = boottime() + seconds
    until(lambda: boottime() > end, "time passes", seconds + 5)


def lines_about_the_lease(node: Node) -> int:
    return sum("the lease was not renewed" in line for line in node.err.splitlines())


def test_b36_a_stopped_agent_is_given_up_within_its_lease(cluster: Cluster) -> None:
    """Red without a deadline (``Timing.deadline`` always infinite)."""
    nodes = [cluster.steady(number, "--nnodes", "1:2", "--max-restarts", "9") for number in (2, 3)]
    first = cluster.wait_round(1, 4)
    leads = cluster.leader()
    (other,) = (node for node in nodes if node is not leads)
    pids = [int(one["pid"]) for one in first.values() if other.folder.name.endswith(f"-{one['REMUSTER_NODE']}")]

    os.kill(agent := other.agent, signal.SIGSTOP)
    began = boottime()
    until(lambda: not any(alive(pid) for pid in pids), "its ranks are fenced", cluster.ttl_s, cluster.say)
    dead_s = boottime()
    second = cluster.wait_round(2, 2)
    assert min(one["at"] for one in second.values()) > dead_s
    assert max(one["at"] for one in second.values()) - began < cluster.ttl_s + 4.0, cluster.say()

    until(lambda: leads.events("running")[-1]["round"] == 2, "all of that is said", show=leads.say)
    before = len(leads.err)
    os.kill(agent, signal.SIGCONT)
    name = other.folder.name.partition("-")[2]
    until(lambda: f"nodes/{name}" in cluster.tree(), "it has joined again", show=cluster.say)
    assert (other.agent, cluster.job()["round"], cluster.job()["phase"]) == (agent, 2, "R")
    assert leads.err[before:].count("\n") <= 2, "no log without end"
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    cluster.check_left()


@pytest.mark.drill
def test_b41_an_etcd_that_is_away_for_a_moment_again_and_again(cluster: Cluster) -> None:
    """Red when the first renewal that fails ends the renewing."""
    nodes, pids = begun(cluster, conf="lease_ttl=6")
    for turn in range(TURNS):
        if turn % 2:
            cluster.etcd.restart()
        else:
            cluster.etcd.stop()
            wait(1.5)
            cluster.etcd.cont()
        said = [lines_about_the_lease(node) for node in nodes]
        wait(2.5)
        now = [lines_about_the_lease(node) for node in nodes]
        assert all(after - before <= 1 for before, after in zip(said, now, strict=True)), cluster.say()
    assert all(alive(pid) for pid in pids), cluster.say()
    assert cluster.job()["round"] == 1
    assert all(lines_about_the_lease(node) <= TURNS for node in nodes), cluster.say()
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()


def usage(pid: int) -> tuple[float, int, int]:
    """Return a process's seconds of CPU so far, its threads, and its open files."""
    fields = read(pid, "stat").rpartition(b")")[2].split()
    return (
        (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        int(fields[17]),
        len(os.listdir(f"/proc/{pid}/fd")),
    )


@pytest.mark.drill  # for its length, as B45's rounds
@pytest.mark.parametrize("how", ["killed", pytest.param("suspended", marks=pytest.mark.soak)])
def test_b43_an_etcd_that_is_away_for_half_a_minute(cluster: Cluster, how: str) -> None:
    """Red when a refused connection is tried again without a pause (``_PAUSE_S`` 0): 20 s of CPU."""
    nodes, _ = begun(cluster)
    agents = [node.agent for node in nodes]
    before = [usage(pid) for pid in agents]
    cluster.etcd.down() if how == "killed" else cluster.etcd.stop()
    wait(AWAY_S / 2)
    halfway = [usage(pid) for pid in agents]
    wait(AWAY_S / 2)
    after = [usage(pid) for pid in agents]
    cluster.etcd.start() if how == "killed" else cluster.etcd.cont()
    for (cpu_0, threads_0, _), (_, threads_1, files_1), (cpu_2, threads_2, files_2) in zip(
        before, halfway, after, strict=True
    ):
        assert cpu_2 - cpu_0 < 0.05 * AWAY_S
        assert threads_2 <= max(threads_0, threads_1) + 1
        assert files_2 <= files_1 + 2
    assert [node.agent for node in nodes] == agents
    cluster.wait_round(2, 4)  # it was fenced; it goes on by itself
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()


def test_b43_an_agent_that_is_started_while_the_etcd_is_down(cluster: Cluster) -> None:
    """Red when the first contact has no bound (``etcd_contact`` with a deadline of an hour)."""
    (port,) = free_ports(1)
    args = ("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", cluster.run_id)
    node = cluster.command(*args, "--rdzv-conf", "connect_timeout=2", "--no-python", "/bin/true", name="alone")
    assert node.exit_code() == 69
    assert f"127.0.0.1:{port}" in node.err
    assert "Check the address, start etcd there, or raise connect_timeout" in node.err
    assert "Traceback" not in node.err


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cluster]:
    """Nodes that meet in an etcd of 16 MiB."""
    server = EtcdServer(tmp_path / "small", durable=False, extra=("--quota-backend-bytes", str(QUOTA_BYTES)))
    server.start()
    made = Cluster(tmp_path / "cluster", server)
    yield made
    made.close()
    server.close()


def refuses(etcd: EtcdServer, pair: dict[str, str]) -> bool:
    """Put a pair; tell whether there was no room for it."""
    try:
        etcd.post("kv/put", pair)
    except urllib.error.HTTPError:
        return True
    return False


def size(etcd: EtcdServer) -> int:
    return int(etcd.post("maintenance/status", {})["dbSize"])


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_b45_rounds_do_not_fill_the_etcd(small: Cluster, record_property: Callable[[str, object], None]) -> None:
    """Red when the rosters of old rounds are kept."""
    often = ("--nnodes", "1", "--max-restarts", str(ROUNDS - 1), "--checkpoint-dir", small.folder / "kept")
    node = small.start(2, *often, PROGRESS, "/bin/sh", "-c", "kill -9 $$")
    assert node.exit_code(250) != 0
    assert small.job()["round"] == ROUNDS, small.say()
    used = size(small.etcd)
    record_property(
        "figure", f"{ROUNDS} rounds: {used / ROUNDS / 1024:.1f} KiB each, {used >> 10} KiB of {QUOTA_BYTES >> 10}"
    )
    assert used < QUOTA_BYTES / 2
    kinds = {key.partition("/")[0] for key in small.tree()}
    assert kinds <= {"job", "terms", "rounds", "history", "~attempts"}
    assert len([key for key in small.tree() if key.startswith("rounds/")]) == 1


@pytest.mark.drill
def test_b45_an_etcd_that_is_full_leaves_running_ranks_alone(small: Cluster) -> None:
    """Red when a lease is renewed by putting a key."""
    nodes, pids = begun(small)
    junk = {"key": base64.b64encode(b"/junk").decode(), "value": base64.b64encode(os.urandom(1 << 20)).decode()}
    until(lambda: refuses(small.etcd, junk), "it is full")
    wait(2.5 * small.ttl_s)
    assert all(alive(pid) for pid in pids), small.say()
    assert [node.process.poll() for node in nodes] == [None, None]
    os.kill(pids[0], signal.SIGKILL)
    said = "is out of space (its quota is used up) and takes no more writes: compact and defragment it"
    until(lambda: any(said in node.err for node in nodes), "the operator is told", show=small.say)
