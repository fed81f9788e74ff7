"""``--on-store-loss=hold`` with the real command: an etcd that is away, a node that is cut off, an agent that stops."""

from __future__ import annotations

import os
import signal

import pytest
from command.cluster import Cluster, Node
from command.processes import alive, boottime, until

pytestmark = pytest.mark.process

TWO = ("--nnodes", "2", "--max-restarts", "9")
HOLD = ("--on-store-loss", "hold")
SAYS_AWAY = "ranks are held (--on-store-loss=hold)"


def begun(cluster: Cluster, *args: str, conf: str = "") -> tuple[list[Node], list[int]]:
    """Start two nodes and wait for their round; return them and their ranks' pids."""
    nodes = [cluster.steady(number, *TWO, *args, conf=conf) for number in (2, 3)]
    first = cluster.wait_round(1, 4)
    return nodes, [int(one["pid"]) for one in first.values()]


def pass_time(cluster: Cluster, leases: float) -> None:
    end = boottime() + leases * cluster.ttl_s
    until(lambda: boottime() > end, f"{leases} leases pass")


@pytest.mark.drill
@pytest.mark.parametrize("mode", ["hold", "fence"])
def test_an_etcd_that_is_killed_and_comes_back_after_three_leases(cluster: Cluster, mode: str) -> None:
    nodes, pids = begun(cluster, "--on-store-loss", mode)
    cluster.etcd.down()
    if mode == "fence":
        until(lambda: not any(alive(pid) for pid in pids), "the ranks are fenced", cluster.ttl_s, cluster.say)
        cluster.etcd.start()
        cluster.wait_round(2, 4)
    else:
        pass_time(cluster, 3)
        assert all(alive(pid) for pid in pids), cluster.say()
        assert [node.process.poll() for node in nodes] == [None, None]
        assert [node.err.count(SAYS_AWAY) for node in nodes] == [1, 1], cluster.say()
        cluster.etcd.start()
        until(
            lambda: all(node.err.count("the store answers again, after") == 1 for node in nodes),
            "back",
            30,
            cluster.say,
        )
        pass_time(cluster, 1.5)  # and no lease runs out behind it
        assert all(alive(pid) for pid in pids), cluster.say()
        assert cluster.job()["round"] == 1
        assert not any("is gone" in node.err for node in nodes)
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    cluster.check_left()


@pytest.mark.drill
def test_an_etcd_that_stood_still_takes_its_leases_away_and_only_then_ranks_end(cluster: Cluster) -> None:
    """Its clock went on: on waking it ends all leases. Its word counts, and the nodes meet again, in one world."""
    nodes, pids = begun(cluster, *HOLD)
    cluster.etcd.stop()
    pass_time(cluster, 3)
    assert all(alive(pid) for pid in pids), cluster.say()
    cluster.etcd.cont()
    second = cluster.wait_round(2, 4)
    assert not any(alive(pid) for pid in pids)
    assert {one["REMUSTER_NODE"] for one in second.values()} == {"127.0.0.2", "127.0.0.3"}
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    cluster.check_left()


def test_what_happens_while_the_etcd_is_away_is_told_when_it_is_back(cluster: Cluster) -> None:
    nodes, pids = begun(cluster, *HOLD)
    cluster.etcd.down()
    until(lambda: all(SAYS_AWAY in node.err for node in nodes), "both hold", 30, cluster.say)
    cluster.order("exit-0", 1, "3 the words of a rank that failed meanwhile")
    until(lambda: sum(alive(pid) for pid in pids) == 2, "its node has stopped its ranks", show=cluster.say)
    cluster.etcd.start()
    cluster.wait_round(2, 4)
    assert any("the words of a rank that failed meanwhile" in str(record) for record in cluster.records().values())
    cluster.etcd.down()
    cluster.order("done")
    until(lambda: not any(node.ranks() for node in nodes), "all have finished", show=cluster.say)
    assert [node.process.poll() for node in nodes] == [None, None]
    cluster.etcd.start()
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    cluster.check_left()


@pytest.mark.drill
def test_who_has_finished_gives_the_etcd_up_after_the_join_timeout(cluster: Cluster) -> None:
    nodes, _ = begun(cluster, *HOLD, conf="join_timeout=3")
    cluster.etcd.down()
    try:
        cluster.order("done")
        assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
        assert all("the outcome of the job is unknown" in node.err for node in nodes)
    finally:
        cluster.etcd.start()


@pytest.mark.drill
def test_a_stopped_agent_keeps_its_ranks_and_its_place_until_it_is_back(cluster: Cluster) -> None:
    nodes = [cluster.steady(number, *TWO, *HOLD) for number in (2, 3)]
    first = cluster.wait_round(1, 4)
    spare = cluster.steady(4, *TWO, *HOLD)
    leads = cluster.leader().folder.name.partition("-")[2]
    name = next(one["REMUSTER_NODE"] for one in first.values() if one["REMUSTER_NODE"] != leads)
    (stopped,) = (node for node in nodes if node.folder.name.endswith(f"-{name}"))
    theirs = [int(one["pid"]) for one in first.values() if one["REMUSTER_NODE"] == name]
    ours = [int(one["pid"]) for one in first.values() if one["REMUSTER_NODE"] != name]

    os.kill(agent := stopped.agent, signal.SIGSTOP)
    until(lambda: not any(alive(pid) for pid in ours), "the others are stopped: its lease is over", 30, cluster.say)
    until(lambda: cluster.job()["phase"] == "F", "a round is to form", show=cluster.say)
    pass_time(cluster, 2)
    assert all(alive(pid) for pid in theirs), cluster.say()
    assert (cluster.job()["phase"], cluster.job()["round"]) == ("F", 2)  # with a spare beside it, and no fence
    said = [event["event"] for node in (*nodes, spare) for event in node.events()]
    assert any(f"ranks may still live on {name} (machine " in words for words in said), said

    os.kill(agent, signal.SIGCONT)
    second = cluster.wait_round(2, 4)
    assert not any(alive(pid) for pid in theirs)
    assert {one["REMUSTER_NODE"] for one in second.values()} == {"127.0.0.2", "127.0.0.3"}
    cluster.order("done")
    assert [node.exit_code() for node in (*nodes, spare)] == [0, 0, 0], cluster.say()
    cluster.check_left()


@pytest.mark.drill
def test_a_node_that_is_gone_for_good_ends_the_job_with_a_way_out(cluster: Cluster) -> None:
    nodes, _ = begun(cluster, *HOLD, conf="join_timeout=3")
    nodes[1].power_off()
    assert nodes[0].exit_code() == 75, cluster.say()
    assert "ranks may still live on 127.0.0.3 (machine " in nodes[0].err
    assert "start the job under another --rdzv-id" in nodes[0].err


def test_nodes_that_were_told_differently_do_not_meet(cluster: Cluster) -> None:
    first = cluster.steady(2, *TWO, *HOLD)
    until(lambda: "terms" in cluster.tree(), "the run has begun", show=cluster.say)
    second = cluster.steady(3, *TWO)
    assert second.exit_code() == 2
    assert "--on-store-loss fence, the run (begun by node 127.0.0.2) has hold" in second.err
    first.kill("keeper", signal.SIGTERM)
    assert first.exit_code() == 143
