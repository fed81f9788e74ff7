"""Nodes that see different checkpoints: the real command with a checkpoint directory of its own for each node."""

from __future__ import annotations

import pytest
from checkpoint_samples import SAMPLES
from command.cluster import Cluster, Node
from command.processes import until
from steps_on_disk import copied, published

from remuster.checkpoint.layout import step_name

pytestmark = pytest.mark.process

# Every rank says where it re-enters.
TELLS = """
import os, sys
from remuster import resume_point
point = resume_point()
said = f"{point.step} {point.path}" if point else "nothing"
open(os.path.join(sys.argv[1], "resumed-" + os.environ["RANK"]), "w").write(said)
"""
FIVE, TEN, TWENTY = (step_name(step) for step in (5, 10, 20))


def started(cluster: Cluster, count: int, *args: str) -> list[Node]:
    """Start nodes, each with its directory ``kept-N``; the first one leads."""
    script = cluster.script("tell.py", TELLS)
    nodes: list[Node] = []
    conf = "last_call_timeout=4" if ":" in args[0] else ""
    for number in range(2, 2 + count):
        kept = cluster.folder / f"kept-{number}"
        kept.mkdir(exist_ok=True)
        line = ("--nnodes", *args, "--checkpoint-dir", kept, script, cluster.desk)
        nodes.append(cluster.start(number, *line, conf=conf))
        if number == 2:
            cluster.leader()
    return nodes


def said(cluster: Cluster) -> dict[str, str]:
    return {path.name: path.read_text() for path in cluster.desk.glob("resumed-*")}


def test_the_newest_that_every_node_can_load_in_its_own_directory(cluster: Cluster) -> None:
    """Node 3 lacks step 20, and a file of its step 10 is cut short; node 4 has a bad copy of step 10."""
    kept = {number: cluster.folder / f"kept-{number}" for number in (2, 3, 4)}
    for step in (5, 10, 20):
        path = published(kept[2], step)
        for number in (3, 4):
            if (step, number) != (20, 3):
                copied(path, kept[number])
    (kept[3] / TEN / "part-3").write_bytes(b"short")
    (kept[4] / TEN / "part-3").write_bytes(b"x" * len((kept[2] / TEN / "part-3").read_bytes()))
    nodes = started(cluster, 3, "3")
    assert [node.exit_code() for node in nodes] == [0, 0, 0], cluster.say()
    assert set(said(cluster).values()) == {f"5 {kept[number] / FIVE}" for number in kept}
    (record,) = nodes[0].records()
    assert record["resume"]["step"] == 5
    refused = {one["name"]: one["reason"] for one in record["refused"]}
    assert refused[TWENTY].startswith("node 127.0.0.3 lacks it: it is not there (8 files); is its mount away")
    assert "node 127.0.0.3 has a bad one, or another: 'part-3' has 5 bytes; its manifest says 16" in refused[TEN]
    assert "node 127.0.0.4 has a bad one, or another: 'part-3' has not the content that was published" in refused[TEN]
    cluster.check_left()


@pytest.mark.drill  # for its length
def test_nothing_is_begun_from_nothing_because_one_node_sees_nothing(cluster: Cluster) -> None:
    published(cluster.folder / "kept-2", 20)
    nodes = started(cluster, 2, "2")
    assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
    assert said(cluster) == {}
    for node in nodes:
        assert "node 127.0.0.3 lacks it: it is not there (8 files); is its mount away, or is the directory" in node.err
    cluster.check_left()


@pytest.mark.drill  # for its length
def test_a_leader_that_sees_none_while_another_node_has_one(cluster: Cluster) -> None:
    published(cluster.folder / "kept-3", 20)
    nodes = started(cluster, 2, "2")
    assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
    assert f"node 127.0.0.3 has {TWENTY}, and node 127.0.0.2, which chooses, sees no checkpoint" in nodes[1].err
    assert said(cluster) == {}


@pytest.mark.drill  # for its length
def test_a_node_that_sees_none_is_left_out_where_others_suffice(cluster: Cluster) -> None:
    path = published(cluster.folder / "kept-2", 20)
    copied(path, cluster.folder / "kept-3")
    nodes = started(cluster, 3, "2:3")
    assert [node.exit_code() for node in nodes] == [0, 0, 0], cluster.say()
    assert len(said(cluster)) == 2
    assert {text.partition(" ")[0] for text in said(cluster).values()} == {"20"}
    assert "127.0.0.4 cannot load a checkpoint that others have" in nodes[0].err


def test_nodes_without_any_begin_from_nothing(cluster: Cluster) -> None:
    nodes = started(cluster, 2, "2")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert set(said(cluster).values()) == {"nothing"}
    cluster.check_left()


@pytest.mark.drill  # for its length
def test_a_leader_that_dies_midway_and_the_next_one_asks_anew(cluster: Cluster) -> None:
    """It dies while node 3 still doubts that step 20 is absent; the next one asks about what it sees itself."""
    for number in (2, 4):
        published(cluster.folder / f"kept-{number}", 10)
        published(cluster.folder / f"kept-{number}", 20)
    copied(cluster.folder / "kept-2" / TEN, cluster.folder / "kept-3")
    for name in (TEN, TWENTY):
        assert (cluster.folder / "kept-4" / name / "COMMITTED").read_bytes() == (
            cluster.folder / "kept-2" / name / "COMMITTED"
        ).read_bytes()
    nodes = started(cluster, 3, "3")
    asked = until(lambda: cluster.job().get("asked"), "the nodes are asked", show=cluster.say)
    assert asked["name"] == TWENTY
    nodes[0].kill("agent")
    nodes[0].exit_code()
    script, kept = cluster.folder / "tell.py", cluster.folder / "kept-2"
    again = cluster.start(2, "--nnodes", "3", "--checkpoint-dir", kept, script, cluster.desk)
    assert [node.exit_code() for node in (*nodes[1:], again)] == [0, 0, 0], cluster.say()
    assert {text.partition(" ")[0] for text in said(cluster).values()} == {"10"}
    cluster.check_left()


# Rank 0 of the first round leaves a checkpoint of Trainer's, which two ranks wrote, and all wait; later ones tell.
GROWS = """
import os, shutil, sys, time
if os.environ["REMUSTER_ROUND"] == "1":
    if os.environ["RANK"] == "0":
        shutil.copytree(sys.argv[2], os.path.join(sys.argv[3], "checkpoint-5"))
    time.sleep(300)
""" + TELLS.replace("import os, sys\n", "")


@pytest.mark.drill  # for its length
def test_a_job_that_has_grown_goes_on_from_what_fewer_ranks_saved(cluster: Cluster) -> None:
    """Trainer does not record how many ranks there were, and each leaves a file: the rounds of the run tell."""
    script, kept = cluster.script("grow.py", GROWS), cluster.folder / "kept"
    sample = SAMPLES / "transformers" / "complete" / "checkpoint-5"
    line = ("--nnodes", "1:2", "--nproc-per-node", "2", "--admit", "now", "--checkpoint-dir", kept, script)
    kept.mkdir()
    nodes = [cluster.start(2, *line, cluster.desk, sample, kept, conf="admit_after=0.5")]
    until((kept / "checkpoint-5" / "trainer_state.json").exists, "a checkpoint is saved", show=cluster.say)
    nodes.append(cluster.start(3, *line, cluster.desk, sample, kept, conf="admit_after=0.5"))
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert said(cluster) == {f"resumed-{rank}": f"5 {kept / 'checkpoint-5'}" for rank in range(4)}
    cluster.check_left()
