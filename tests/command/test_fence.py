"""The lease and the fence with real processes: a store that stands still, an agent that does."""

from __future__ import annotations

import os
import signal

import pytest
from command.cluster import Cluster
from command.outcome import Expected, check
from command.processes import alive, boottime, until

pytestmark = pytest.mark.process

TWO = ("--nnodes", "2", "--max-restarts", "9")


@pytest.mark.drill
def test_a_store_that_stands_still(cluster: Cluster) -> None:
    nodes = [cluster.steady(number, *TWO) for number in (2, 3)]
    first = cluster.wait_round(1, 4)
    pids = [int(one["pid"]) for one in first.values()]

    # For less than the fence: nobody notices.
    began = boottime()
    cluster.etcd.stop()
    until(lambda: boottime() >= began + 1.0, "a second")
    cluster.etcd.cont()
    until(lambda: cluster.job()["round"] == 1, "it answers again")
    # (a lease renewed after it: a whole period passes without a fence)
    until(lambda: boottime() >= began + cluster.ttl_s + 1, "a lease later")
    assert all(alive(pid) for pid in pids), cluster.say()
    assert cluster.job()["round"] == 1

    # For more: all ranks are dead before any lease can have expired.
    cluster.etcd.stop()
    began = boottime()
    until(lambda: not any(alive(pid) for pid in pids), "the ranks are fenced", cluster.ttl_s, cluster.say)
    dead_s = boottime()
    assert dead_s - began < cluster.ttl_s
    assert [n.process.poll() for n in nodes] == [None, None]
    cluster.etcd.cont()
    second = cluster.wait_round(2, 4)
    assert min(one["at"] for one in second.values()) > dead_s
    assert {one["REMUSTER_NODE"] for one in second.values()} == {"127.0.0.2", "127.0.0.3"}
    cluster.order("done")
    assert [n.exit_code() for n in nodes] == [0, 0], cluster.say()
    # Whose word came first stands for all of them, and nobody is blamed.
    node = next(
        one["REMUSTER_NODE"]
        for one in second.values()
        if one["REMUSTER_NODE"] == cluster.records()[1]["verdict"]["node"]
    )
    check(cluster, Expected("rdzv_lost", -1, "lease", "retried", "rendezvous", node=node))
    cluster.check_left()


@pytest.mark.drill
def test_a_store_that_comes_back_with_the_old_leases(cluster: Cluster) -> None:
    """An etcd that is started again gives every lease its whole time: an agent that gave its own up finds its key."""
    nodes = [cluster.steady(number, *TWO, conf="lease_ttl=6") for number in (2, 3)]
    cluster.wait_round(1, 4)
    cluster.etcd.down()
    until(lambda: all("is gone" in node.err for node in nodes), "both have given their leases up", 30, cluster.say)
    cluster.etcd.start()
    cluster.wait_round(2, 4)
    cluster.order("done")
    assert [n.exit_code() for n in nodes] == [0, 0], cluster.say()
    cluster.check_left()


def test_an_agent_that_stands_still(cluster: Cluster) -> None:
    for number in (2, 3, 4):
        cluster.steady(number, *TWO)
    first = cluster.wait_round(1, 4)
    leads = cluster.leader().folder.name.partition("-")[2]
    name = next(one["REMUSTER_NODE"] for one in first.values() if one["REMUSTER_NODE"] != leads)
    stopped = next(n for n in cluster.nodes if n.folder.name.endswith(f"-{name}"))
    pids = [int(one["pid"]) for one in first.values() if one["REMUSTER_NODE"] == name]

    agent = stopped.agent
    os.kill(agent, signal.SIGSTOP)
    until(lambda: not any(alive(pid) for pid in pids), "its ranks are fenced", cluster.ttl_s, cluster.say)
    dead_s = boottime()
    second = cluster.wait_round(2, 4)
    assert min(one["at"] for one in second.values()) > dead_s
    assert name not in {one["REMUSTER_NODE"] for one in second.values()}

    # It comes to itself, learns that it was given up, and stands by as somebody new.
    os.kill(agent, signal.SIGCONT)
    until(lambda: f"nodes/{name}" in cluster.tree(), "it has joined again", show=cluster.say)
    assert stopped.agent == agent
    assert cluster.job()["round"] == 2
    os.kill(int(second[0]["pid"]), signal.SIGKILL)
    cluster.wait_round(3, 4)
    cluster.order("done")
    assert [n.exit_code() for n in cluster.nodes] == [0, 0, 0], cluster.say()
    cluster.check_left()
    record = check(cluster, Expected("node_lost", -1, "lease", "retried", "node", "check", (), name, (name,)))
    assert record["round"] == 1
