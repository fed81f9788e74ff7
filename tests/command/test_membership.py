"""Nodes that come, go and come again, told by the real command: spares, newcomers, order, and ``remuster leave``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command.cluster import COMMAND, PROGRESS, STEADY, Cluster, Node, Place
from command.processes import PATIENCE_S, until
from command.test_two_nodes import node_of, places

pytestmark = pytest.mark.process

SOON = "admit_after=0.5"


def leave(place: Place, *args: str, word: str = "leave") -> subprocess.CompletedProcess[str]:
    """Run ``remuster leave``."""
    line = [os.fspath(COMMAND), word, *args]
    return subprocess.run(
        line, env=place.env, cwd=place.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def causes(cluster: Cluster, node: Node) -> list[tuple[int, str, str]]:
    """Return which round ended for what on which node, as an agent saw it."""
    return [(event["round"], event["cause"], event["node"]) for event in node.events("stopping")]


def joined(cluster: Cluster, number: int) -> None:
    until(lambda: f"nodes/127.0.0.{number}" in cluster.tree(), f"{number} has joined", show=cluster.say)


def restart_counts(said: dict[int, dict[str, Any]]) -> set[str]:
    return {one["TORCHELASTIC_RESTART_COUNT"] for one in said.values()}


def test_b37_leave_is_not_close_and_who_comes_back_disturbs_nobody(cluster: Cluster) -> None:
    """B37: --nnodes 1:2, TERM B, start B again after 0.2 s, over and over: A goes on alone, and B re-enters."""
    some = ("--nnodes", "1:2", "--max-restarts", "1")
    for number in (2, 3):
        cluster.steady(number, *some)
    first = cluster.wait_round(1, 4)
    a, b = (node_of(cluster, places(first)[rank]) for rank in (0, 2))
    number = int(b.folder.name.rpartition(".")[2])
    b.process.send_signal(signal.SIGTERM)
    cluster.wait_round(2, 2)  # before B's command has ended, or after
    assert b.exit_code() == 143, b.say()
    for _ in range(4):
        time.sleep(0.2)  # so the scenario has it
        b = cluster.steady(number, *some)
        joined(cluster, number)
        b.process.send_signal(signal.SIGTERM)
        assert b.exit_code() == 143, b.say()
    b = cluster.steady(number, *some)
    joined(cluster, number)
    job = cluster.job()
    assert (job["phase"], job["round"], job["charged"], job["spent"]) == ("R", 2, 0, [])

    cluster.order("exit-0", 2, "3 a failure")  # the round ends by itself, and B is in the next
    third = cluster.wait_round(3, 4)
    assert set(places(third).values()) == set(places(first).values())
    assert restart_counts(third) == {"2"}
    cluster.order("done")
    assert [a.exit_code(), b.exit_code()] == [0, 0], cluster.say()
    assert [cause for _, cause, _ in causes(cluster, a)] == ["leave", "failed"]
    cluster.check_left()


@pytest.mark.drill
def test_a_group_that_shrank_grows_again_when_a_node_comes(cluster: Cluster) -> None:
    some = ("--nnodes", "1:2", "--max-restarts", "2", "--admit", "now")
    for number in (2, 3):
        cluster.steady(number, *some, conf=SOON)
    first = cluster.wait_round(1, 4)
    a, b = (node_of(cluster, places(first)[rank]) for rank in (0, 2))
    b.power_off()
    cluster.wait_round(2, 2)
    again = cluster.steady(4, *some, conf=SOON)
    third = cluster.wait_round(3, 4)
    assert set(places(third).values()) == {places(first)[0], "127.0.0.4"}
    for rank in (0, 1):  # with time to save
        assert (cluster.desk / "round-2" / f"term-{rank}").exists()
    assert cluster.job()["charged"] == 1  # for the loss, and nothing for the newcomer
    record = cluster.records()[2]
    assert (record["verdict"]["class"], record["charged_to"]) == ("admit", None)
    assert "not charged" in record["decision"]
    assert "report" not in record  # nothing has failed
    assert causes(cluster, a)[-1] == (2, "admit", "127.0.0.4")
    cluster.order("done")
    assert [a.exit_code(), again.exit_code()] == [0, 0], cluster.say()
    cluster.check_left()


SAVES = """
import os, sys, time
from pathlib import Path
from remuster import checkpoint, resume_point
desk, rank = Path(sys.argv[1]), os.environ["RANK"]
point, step = resume_point(), 0
(desk / f"in-{os.environ['REMUSTER_ROUND']}-{rank}").write_text(str(point.step if point else 0))
while not (desk / "done").exists():
    time.sleep(0.01)
    if rank == "0" and (desk / "save").exists():
        (desk / "save").rename(desk / "saved")
        with checkpoint.publish(7, gather=lambda text: [text], rank=0) as p:
            p.path("state").write_text("seven")
"""


@pytest.mark.drill
def test_at_a_checkpoint_a_newcomer_waits_for_the_next_one(cluster: Cluster) -> None:
    script = cluster.script("saves.py", SAVES)
    args = ("--nnodes", "1:2", "--admit", "checkpoint", "--checkpoint-dir", cluster.folder / "kept", script)
    one = cluster.start(2, *args, cluster.desk, conf=SOON)
    until(lambda: (cluster.desk / "in-1-0").exists(), "round 1 runs", show=cluster.say)
    two = cluster.start(3, *args, cluster.desk, conf=SOON)
    waits = "127.0.0.3 stands by and can join when the next checkpoint is there"
    until(lambda: waits in one.err, "it waits", show=cluster.say)
    assert cluster.job()["round"] == 1
    (cluster.desk / "save").touch()
    places = [cluster.desk / f"in-2-{rank}" for rank in (0, 1)]
    until(lambda: all(path.exists() and path.read_text() for path in places), "round 2 runs", show=cluster.say)
    assert [path.read_text() for path in places] == ["7", "7"]
    (cluster.desk / "done").touch()
    assert [one.exit_code(), two.exit_code()] == [0, 0], cluster.say()
    cluster.check_left()


def test_b38_a_node_that_is_killed_and_comes_again_spends_the_jobs_budget_and_no_other(cluster: Cluster) -> None:
    """B38: B exits and rejoins over and over with a budget: it is one budget, and one restart count on all ranks."""
    fixed = ("--nnodes", "2", "--max-restarts", "2")
    a, b = (cluster.steady(number, *fixed) for number in (2, 3))
    for n in (1, 2, 3):
        said = cluster.wait_round(n, 4)
        assert restart_counts(said) == {str(n - 1)}
        assert cluster.job()["charged"] == n - 1
        b.kill("agent")
        assert b.exit_code() == 137
        b = cluster.steady(3, *fixed)
    assert a.exit_code() != 0  # the third loss is not paid for
    b.exit_code()
    assert "--max-restarts 2" in a.err
    job = cluster.job()
    assert (job["phase"], job["charged"], sum(n for _, n in job["spent"])) == ("X", 2, 2)
    assert cluster.rank(4, 0) is None


def test_b39_surplus_agents_are_parked_in_every_round(cluster: Cluster) -> None:
    """B39: --nnodes 2:2 with 3 agents, a rank is killed 20 times: survivors first, the spare only for a missing one.

    Each round saves: without progress the fifth failure within moments would wait, as a storm.
    """
    fixed = ("--nnodes", "2:2", "--nproc-per-node", "1", "--max-restarts", "20")
    kept = ("--checkpoint-dir", cluster.folder / "kept", PROGRESS, sys.executable)
    for number in (2, 3, 4):
        cluster.start(number, *fixed, *kept, STEADY, cluster.desk)
    first = cluster.wait_round(1, 2)
    (spare,) = {"127.0.0.2", "127.0.0.3", "127.0.0.4"} - set(places(first).values())
    joined(cluster, int(spare.rpartition(".")[2]))
    for n in range(1, 21):
        said = cluster.wait_round(n, 2)
        assert places(said) == places(first)
        os.kill(int(said[n % 2]["pid"]), signal.SIGKILL)
    last = cluster.wait_round(21, 2)
    assert (places(last), restart_counts(last)) == (places(first), {"20"})
    assert f"nodes/{spare}" in cluster.tree()
    assert "this node stands by: round 21 runs on others" in node_of(cluster, spare).err
    cluster.order("done")
    assert [node.exit_code() for node in cluster.nodes] == [0, 0, 0], cluster.say()
    cluster.check_left()


def test_ranks_follow_host_names_and_slots_when_nodes_differ(cluster: Cluster) -> None:
    """One rank here, three there: RANK, LOCAL_WORLD_SIZE and WORLD_SIZE, also after a replacement and a shrink."""
    some = ("--nnodes", "2:3", "--max-restarts", "9", "--rank-order", "hostname")

    def start(number: int, slots: int) -> Node:
        return cluster.start(number, *some, "--nproc-per-node", str(slots), STEADY, cluster.desk)

    def check(said: dict[int, dict[str, Any]], order: list[tuple[str, int]]) -> None:
        world = sum(slots for _, slots in order)
        expected = [
            (f"127.0.0.{name}", str(local), str(slots), str(world), str(place))
            for place, (name, slots) in enumerate(order)
            for local in range(slots)
        ]
        names = ("REMUSTER_NODE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK")
        assert [tuple(said[rank][name] for name in names) for rank in range(world)] == expected

    nodes = {name: start(int(name), slots) for name, slots in (("10", 1), ("9", 3), ("2", 1))}
    check(cluster.wait_round(1, 5), [("2", 1), ("9", 3), ("10", 1)])
    start(8, 3)
    joined(cluster, 8)
    nodes["9"].kill("agent")
    check(cluster.wait_round(2, 5), [("2", 1), ("8", 3), ("10", 1)])
    nodes["10"].kill("agent")
    check(cluster.wait_round(3, 4), [("2", 1), ("8", 3)])
    cluster.order("done")
    living = [node for name, node in nodes.items() if name == "2"] + cluster.nodes[3:]
    assert [node.exit_code() for node in living] == [0, 0], cluster.say()


def test_every_node_says_that_it_waits_and_who_leads(cluster: Cluster) -> None:
    nodes = [cluster.steady(number, "--nnodes", "3", "--rdzv-timeout", "60") for number in (2, 3)]
    until(lambda: all("round 1" in node.err for node in nodes), "both say it", show=cluster.say)
    leader = cluster.leader()
    (other,) = (node for node in nodes if node is not leader)
    name = leader.folder.name.partition("-")[2]
    words = f"round 1 waits for nodes, 3 are wanted; node {name} leads and says which are there"
    until(lambda: words in _flat(other.err), "the other one says it", show=cluster.say)
    assert "2 of 3 nodes are ready; waiting for more" in _flat(leader.err)
    assert words not in _flat(leader.err)


def _flat(text: str) -> str:
    return " ".join(text.split())


def test_leave_by_command_is_planned_and_free(cluster: Cluster) -> None:
    some = ("--nnodes", "1:2", "--max-restarts", "1")
    for number in (2, 3):
        cluster.steady(number, *some)
    first = cluster.wait_round(1, 4)
    stays, goes = places(first)[0], places(first)[2]
    leaver = node_of(cluster, goes)

    several = leave(cluster, "--rdzv-id", cluster.run_id)
    assert (several.returncode, several.stdout) == (1, "")
    assert "several agents of this user are on this node, and nobody was asked" in several.stderr
    for name in (stays, goes):
        assert f"--rdzv-id {cluster.run_id} --node {name} (pid " in several.stderr
    none = leave(cluster, "--rdzv-id", "no-such-run")
    assert (none.returncode, none.stdout) == (1, "")
    assert "none of this user's agents on this node fits" in none.stderr
    assert cluster.job()["round"] == 1

    asked = leave(cluster, "--rdzv-id", cluster.run_id, "--node", goes)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.splitlines()[-1] == f"node {goes} of run {cluster.run_id} has left"
    assert leaver.exit_code() == 0, leaver.say()
    assert "this node was asked to leave" in leaver.err
    assert (cluster.desk / "round-1" / "term-2").exists()  # softly
    cluster.wait_round(2, 2)
    assert f"nodes/{goes}" not in cluster.tree()
    job = cluster.job()
    assert (job["charged"], job["spent"]) == (0, [])
    assert cluster.records()[1]["verdict"]["sentence"] == f"{goes} was asked to leave by command"

    spare = cluster.steady(int(goes.rpartition(".")[2]), *some)  # one that runs nothing can leave as well
    joined(cluster, int(goes.rpartition(".")[2]))
    until(lambda: "stands by" in spare.err, "it stands by", show=cluster.say)
    assert leave(cluster, "--rdzv-id", cluster.run_id, "--node", goes).returncode == 0
    assert spare.exit_code() == 0
    assert "the job is done" not in spare.err
    assert cluster.job()["round"] == 2
    cluster.order("done")
    assert node_of(cluster, stays).exit_code() == 0
    cluster.check_left()


def test_a_script_called_leave_is_run(place: Place) -> None:
    """As torchrun would run it: by its name where it is there, and always behind -- or with a path."""
    (place.folder / "elsewhere").mkdir()
    place.script("elsewhere/leave", "print('the script')")
    for args, cwd in ((("leave",), "elsewhere"), (("--", "elsewhere/leave"), "."), (("./leave",), "elsewhere")):
        line = [os.fspath(COMMAND), *args]
        env = place.env | {"PET_LOG_DIR": os.fspath(place.folder / "logs")}
        ran = subprocess.run(
            line, env=env, cwd=place.folder / cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (ran.returncode, ran.stdout) == (0, "the script\n"), ran.stderr
    asked = leave(place, "--help")
    assert (asked.returncode, asked.stdout.splitlines()[0]) == (0, "Usage: remuster leave [OPTIONS]")
    wrong = leave(place, "--now")
    assert wrong.returncode == 2
    assert "see remuster leave --help" in wrong.stderr


def test_a_lock_says_whose_it_is(cluster: Cluster) -> None:
    node = cluster.steady(2, "--nnodes", "1")
    cluster.wait_round(1, 2)
    locks = Path(f"/tmp/remuster-{os.getuid()}").glob("*.lock")
    written = [path.read_text().split("\n") for path in locks]
    assert [f"{node.agent}", json.dumps([cluster.run_id, "127.0.0.2"])] in [
        [lines[0].partition(" ")[0], lines[1]] for lines in written if len(lines) > 1
    ]
    cluster.order("done")
    assert node.exit_code() == 0
