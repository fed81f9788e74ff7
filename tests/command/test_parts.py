"""Each node keeps the files of its own ranks alone, on its own disk: the real command, where none has a whole step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES
from command.cluster import Cluster, Node

pytestmark = pytest.mark.process

TRAINER = SAMPLES / "transformers" / "complete" / "checkpoint-5"  # as with save_on_each_node
ZERO = SAMPLES / "deepspeed" / "complete" / "global_step5"  # as with use_node_local_storage
RANK_FILE = {TRAINER: "rng_state_{}.pth", ZERO: "zero_pp_rank_{}_mp_rank_00_optim_states.pt"}

TELLS = """
import os, sys
from remuster import resume_point
point = resume_point()
said = f"{point.step} {point.path}" if point else "nothing"
open(os.path.join(sys.argv[1], "resumed-" + os.environ["RANK"]), "w").write(said)
"""


def part(sample: Path, kept: Path, *ranks: int) -> Path:
    """Leave what a node's ranks have of a sample, which two ranks wrote, in its directory."""
    place = kept / sample.name
    shutil.copytree(sample, place)
    for rank in {0, 1} - {*ranks}:
        (place / RANK_FILE[sample].format(rank)).unlink()
    return place


def of_step(step: int, *places: Path) -> None:
    """Make an older one of a sample's parts, beside them."""
    for place in places:
        older = shutil.copytree(place, place.with_name(f"checkpoint-{step}"))
        state = json.loads((older / "trainer_state.json").read_text())
        (older / "trainer_state.json").write_text(json.dumps({**state, "global_step": step}))


def started(cluster: Cluster, shared: bool = False) -> list[Node]:
    """Start two nodes of one rank, each with its directory ``kept-N``, or with one; the first one leads."""
    script = cluster.script("tell.py", TELLS)
    out: list[Node] = []
    for number in (2, 3):
        kept = cluster.folder / f"kept-{2 if shared else number}"
        kept.mkdir(exist_ok=True)
        out.append(cluster.start(number, "--nnodes", "2", "--checkpoint-dir", kept, script, cluster.desk))
        if number == 2:
            cluster.leader()
    return out


def said(cluster: Cluster) -> dict[str, str]:
    return {path.name: path.read_text() for path in cluster.desk.glob("resumed-*")}


@pytest.mark.parametrize("sample", [TRAINER, ZERO], ids=["trainer", "zero"])
def test_every_node_has_its_own_ranks_files(cluster: Cluster, sample: Path) -> None:
    places = [part(sample, cluster.folder / f"kept-{number}", number - 2) for number in (2, 3)]
    nodes = started(cluster)
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert said(cluster) == {f"resumed-{rank}": f"5 {place}" for rank, place in enumerate(places)}
    (record,) = nodes[0].records()
    assert record["resume"]["step"] == 5
    assert "the other nodes have the rest" in record["resume"]["verified"]
    cluster.check_left()


def test_a_save_that_one_node_did_not_come_to_the_end_of(cluster: Cluster) -> None:
    """Node 3 was interrupted in step 5: the one before it is whole over all nodes."""
    places = [part(TRAINER, cluster.folder / f"kept-{number}", number - 2) for number in (2, 3)]
    of_step(4, *places)
    weights = places[1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    nodes = started(cluster)
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert {text.partition(" ")[0] for text in said(cluster).values()} == {"4"}
    (record,) = nodes[0].records()
    (refused,) = record["refused"]
    assert refused["name"] == "checkpoint-5"
    assert "node 127.0.0.3 has a bad one, or another: 'model.safetensors'" in refused["reason"]
    cluster.check_left()


def test_the_first_save_of_all_was_interrupted_in_a_directory_that_is_shared(cluster: Cluster) -> None:
    """There is nothing else: what nobody ever had all of keeps nobody from beginning."""
    part(TRAINER, cluster.folder / "kept-2", 0)
    nodes = started(cluster, shared=True)
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert set(said(cluster).values()) == {"nothing"}
    (record,) = nodes[0].records()
    assert [one["name"] for one in record["refused"]] == ["checkpoint-5"]
    cluster.check_left()


@pytest.mark.drill  # for its length
@pytest.mark.parametrize("held", [(1, 0), (0, None)], ids=["exchanged", "replaced"])
def test_nothing_is_begun_from_nothing_because_parts_lie_elsewhere(
    cluster: Cluster, held: tuple[int | None, ...]
) -> None:
    """The nodes run each other's ranks now, or one of them is new and the node that has the rest is gone."""
    for number, rank in zip((2, 3), held, strict=True):
        if rank is not None:
            part(TRAINER, cluster.folder / f"kept-{number}", rank)
    nodes = started(cluster)
    assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
    assert said(cluster) == {}
    for node in nodes:
        if None in held:
            assert "node 127.0.0.3 lacks it: it is not there" in node.err
        else:
            assert "node 127.0.0.2 lacks it: it is to run rank 0, and holds the files of rank 1. No rank" in node.err
            assert "give each its old place (--node-rank)" in node.err
    cluster.check_left()
