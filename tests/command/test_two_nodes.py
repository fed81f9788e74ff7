"""Nodes that meet in an etcd, and what happens to them: the stories of a job, told by the real command."""

from __future__ import annotations

import base64
import json
import os
import signal

import pytest
from command.cluster import Cluster, Node
from command.processes import until

pytestmark = pytest.mark.process

TWO = ("--nnodes", "2", "--max-restarts", "9")


def places(said: dict[int, dict[str, str]]) -> dict[int, str]:
    """Return which node each rank of a round is on."""
    return {rank: one["REMUSTER_NODE"] for rank, one in said.items()}


def node_of(cluster: Cluster, name: str) -> Node:
    """Return the living start of a node."""
    return next(n for n in cluster.nodes if n.process.poll() is None and n.folder.name.endswith(f"-{name}"))


def spare_of(cluster: Cluster, said: dict[int, dict[str, str]]) -> Node:
    """Return the living node without ranks."""
    busy = set(places(said).values())
    (spare,) = (n for n in cluster.nodes if n.process.poll() is None and n.folder.name.partition("-")[2] not in busy)
    return spare


def test_ranks_nodes_and_leaders_are_killed_and_a_spare_takes_over(cluster: Cluster) -> None:
    for number in (2, 3, 4):
        cluster.steady(number, *TWO)
    first = cluster.wait_round(1, 4)
    assert {one["GROUP_RANK"] for one in first.values()} == {"0", "1"}
    assert len({one["REMUSTER_TOKEN"].rpartition("/")[2] for one in first.values()}) == 2
    spare = spare_of(cluster, first)

    # A rank is killed: the same nodes go on in the same places, and the count is the same everywhere.
    os.kill(int(first[3]["pid"]), signal.SIGKILL)
    second = cluster.wait_round(2, 4)
    assert places(second) == places(first)
    assert {one["TORCHELASTIC_RESTART_COUNT"] for one in second.values()} == {"1"}
    assert spare.process.poll() is None

    # A whole node loses its power: the spare takes its place, and the others keep theirs.
    victim = node_of(cluster, places(second)[2])
    lost = places(second)[2]
    victim.power_off()
    third = cluster.wait_round(3, 4)
    assert {places(third)[0], places(third)[1]} == {places(second)[0]}
    assert {places(third)[2], places(third)[3]} == {spare.folder.name.partition("-")[2]}
    assert {one["TORCHELASTIC_RESTART_COUNT"] for one in third.values()} == {"2"}

    # A late joiner becomes the spare and disturbs nobody.
    late = cluster.steady(5, *TWO)
    until(lambda: "nodes/127.0.0.5" in cluster.tree(), "the late one has joined", show=cluster.say)
    until(lambda: late.events("start"), "it says so", show=late.say)

    # The leader's agent is killed: another leads, and the late one takes its place.
    leader = cluster.leader()
    name = leader.folder.name.partition("-")[2]
    leader.kill("agent")
    assert leader.exit_code() == 137
    fourth = cluster.wait_round(4, 4)
    kept = {rank: node for rank, node in places(third).items() if node != name}
    assert kept.items() <= places(fourth).items()
    assert "127.0.0.5" in places(fourth).values()
    assert name not in places(fourth).values()

    # A node that was lost comes back, finds the job running and stands by; then all is done, and it ends with 0 too.
    cluster.steady(int(lost.rpartition(".")[2]), *TWO)
    until(lambda: f"nodes/{lost}" in cluster.tree(), "it is back", show=cluster.say)
    cluster.order("done")
    living = [n for n in cluster.nodes if n.process.poll() is None]
    assert len(living) == 3
    assert [n.exit_code() for n in living] == [0, 0, 0], cluster.say()
    cluster.check_left()

    job = cluster.job()
    assert (job["phase"], job["round"], job["outcome"]["exit_code"]) == ("D", 4, 0)
    _check_records(cluster, living)
    _check_a_done_run_id(cluster)


RECORD_FIELDS = {
    *("schema_version", "run_id", "launch", "attempt", "round", "state", "started_at", "ended_at", "world_size"),
    *("members", "exit_codes", "verdict", "evidence", "resume", "refused", "times_ms", "decision", "charged_to"),
}


def _check_records(cluster: Cluster, living: list[Node]) -> None:
    """The same record stands in the store and in the run directory of every agent that saw the round end."""
    stored = cluster.records()
    rounds = [stored[n] for n in (1, 2, 3, 4)]
    assert [record["state"] for record in rounds] == ["retried", "retried", "retried", "done"]
    assert [record["verdict"]["class"] for record in rounds] == [
        "killed_unknown",
        "node_lost",
        "killed_unknown",
        "success",
    ]
    assert [record["charged_to"] for record in rounds] == ["unknown", "node", "unknown", None]
    for record in rounds:
        assert record.keys() >= RECORD_FIELDS, RECORD_FIELDS - record.keys()
        assert (record["run_id"], record["world_size"], len(record["members"])) == (cluster.run_id, 4, 2)
        assert sorted(rank for member in record["members"] for rank in member["ranks"]) == [0, 1, 2, 3]
    assert rounds[0]["exit_codes"]["3"] == -9
    times = rounds[0]["times_ms"]  # a leader that came later does not know all of them
    assert all(times[name] is not None for name in ("stop", "decide", "form", "spawn")), times
    for node in living:
        kept = {record["round"]: record for record in node.records()}
        assert kept, node.say()
        assert all(stored[n] == record for n, record in kept.items())


def _check_a_done_run_id(cluster: Cluster) -> None:
    """A done id is refused in words; with --fresh and another launch it runs, and rounds go on upward."""
    again = cluster.steady(2, *TWO, conf="launch_id=second")
    assert again.exit_code() == 2, again.say()
    assert "--fresh" in again.err
    (cluster.desk / "done").unlink()
    for number in (2, 3):
        cluster.steady(number, *TWO, "--fresh", conf="launch_id=second")
    fifth = cluster.wait_round(5, 4)
    assert {one["TORCHELASTIC_RESTART_COUNT"] for one in fifth.values()} == {"0"}
    cluster.order("done")
    assert [n.exit_code() for n in cluster.nodes[-2:]] == [0, 0], cluster.say()
    assert cluster.job()["spent"] == []
    cluster.check_left()


def test_leaving_shrinking_growing_failing_and_going_on(cluster: Cluster) -> None:
    some = ("--nnodes", "1:2", "--max-restarts", "1")
    nodes = [cluster.steady(number, *some, conf="launch_id=one") for number in (2, 3)]
    first = cluster.wait_round(1, 4)

    # One is asked to leave: it costs nothing, and the other goes on alone.
    leaver, stayer = node_of(cluster, places(first)[0]), node_of(cluster, places(first)[2])
    leaver.process.send_signal(signal.SIGTERM)
    assert leaver.exit_code() == 143, leaver.say()
    second = cluster.wait_round(2, 2)
    assert set(places(second).values()) == {stayer.folder.name.partition("-")[2]}
    assert {one["WORLD_SIZE"] for one in second.values()} == {"2"}
    job = cluster.job()
    assert (job["charged"], job["spent"]) == (0, [])

    # A newcomer waits until the round ends by itself; then it is taken in.
    newcomer = cluster.steady(4, *some, conf="launch_id=one")
    until(lambda: "nodes/127.0.0.4" in cluster.tree(), "the newcomer has joined", show=cluster.say)
    assert cluster.job()["round"] == 2
    cluster.order("exit-1", 2, "42 ValueError: the first")
    third = cluster.wait_round(3, 4)
    assert set(places(third).values()) == {"127.0.0.4", *places(second).values()}
    assert cluster.job()["charged"] == 1

    # A user error, and no restart is left: all end with the root's code, within a lease.
    began = cluster.rank(3, 0)
    assert began is not None
    cluster.order("exit-2", 3, "42 KeyError: the second")
    assert [n.exit_code(cluster.ttl_s) for n in (stayer, newcomer)] == [42, 42], cluster.say()
    for node in (stayer, newcomer):
        assert "KeyError: the second" in node.err[node.err.index("Root Cause") :]
    cluster.check_left()
    assert cluster.job()["phase"] == "X"

    # The same launch is over; a new one of the same run goes on upward.
    late = cluster.steady(2, *some, conf="launch_id=one")
    assert late.exit_code() == 42, late.say()
    nodes = [cluster.steady(number, *some, conf="launch_id=two") for number in (2, 3)]
    fourth = cluster.wait_round(4, 4)
    assert {one["TORCHELASTIC_RESTART_COUNT"] for one in fourth.values()} == {"0"}
    assert dict(cluster.job()["spent"]) == {"user": 1}
    cluster.order("done")
    assert [n.exit_code() for n in nodes] == [0, 0], cluster.say()
    cluster.check_left()


def test_two_nodes_of_one_name(cluster: Cluster) -> None:
    """On one machine the second is refused at once; on another it waits for the name and then gives up, in words."""
    first = cluster.steady(2, "--nnodes", "2")
    until(lambda: "nodes/127.0.0.2" in cluster.tree(), "the first has joined", show=cluster.say)
    second = cluster.steady(2, "--nnodes", "2")
    assert second.exit_code() == 75, second.say()
    assert "another agent (pid " in second.err
    first.process.send_signal(signal.SIGTERM)
    assert first.exit_code() == 143, first.say()
    cluster.check_nodes_left()

    record = {"v": 1, "inc": 7, "machine": "elsewhere", "boot": "b", "address": "10.9.8.7"}
    record |= {"slots": 2, "ready": 1, "pid": 1, "start": "1"}
    cluster.etcd.post("lease/grant", {"TTL": 60, "ID": 7})
    key, value = (
        base64.b64encode(raw).decode()
        for raw in (f"{cluster.prefix}nodes/127.0.0.2".encode(), json.dumps(record).encode())
    )
    cluster.etcd.post("kv/put", {"key": key, "value": value, "lease": 7})
    third = cluster.steady(2, "--nnodes", "2", conf="join_timeout=1")
    assert third.exit_code() == 69, third.say()
    assert "is held by another machine (10.9.8.7)" in third.err
    cluster.etcd.post("lease/revoke", {"ID": 7})


def test_too_few_nodes(cluster: Cluster) -> None:
    alone = cluster.steady(2, "--nnodes", "2", conf="join_timeout=1")
    assert alone.exit_code() == 69, alone.say()
    assert "1 of at least 2 nodes" in alone.err
    assert cluster.left_files() == []


@pytest.mark.drill
def test_no_store(cluster: Cluster) -> None:
    (cluster.folder / "t.py").touch()
    node = cluster.command(
        *("--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-id", "x"),
        *("--rdzv-conf", "join_timeout=1", "t.py"),
    )
    assert node.exit_code() == 69, node.say()
