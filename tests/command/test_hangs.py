"""A rank that hangs, in the real command: the round is ended for it, and the record says who was silent and where."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from command.cluster import Cluster, Node, Place
from command.processes import PATIENCE_S, until

pytestmark = pytest.mark.process

# Ranks that wait for one another in each step, through files; one of them goes elsewhere after some steps.
TRAIN = """
import os, sys, time
import remuster
from pathlib import Path
desk, after, lost = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rank, world = os.environ["RANK"], int(os.environ["WORLD_SIZE"])

def all_reduce(step):
    (desk / f"{os.environ['REMUSTER_ROUND']}-{step}-{rank}").touch()
    while len(list(desk.glob(f"{os.environ['REMUSTER_ROUND']}-{step}-*"))) < world:
        time.sleep(0.005)

def load_a_sample():
    open(sys.argv[4]).read()  # nobody writes into that pipe

for step in range(100_000):
    if step == after and rank == lost and os.environ["REMUSTER_ROUND"] == "1":
        load_a_sample()
    all_reduce(step)
    if len(sys.argv) > 5 and step == int(sys.argv[5]):
        break
    if "quiet" not in os.environ:
        remuster.heartbeat(step + 1)
"""


def facts(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the facts of one kind that all nodes gave."""
    return [fact for node in record["evidence"] for fact in node["facts"] if fact["is"] == kind]


def hung(place: Place, *args: str, env: dict[str, str] | None = None, lost: str = "1") -> Node:
    pipe = place.folder / "pipe"
    os.mkfifo(pipe)
    script = place.script("train.py", TRAIN)
    return place.command(*args, script, str(place.desk), "5", lost, str(pipe), env=env)


def test_a_rank_that_hangs_ends_the_round_and_stands_in_the_record(place: Place) -> None:
    node = hung(place, "--nproc-per-node", "3", "--hang-timeout", "1")
    assert node.exit_code() == 75, node.say()
    (record,) = node.records()
    silent = {fact["rank"]: fact for fact in facts(record, "silence")}
    assert set(silent) == {0, 1, 2}
    assert {fact["step"] for fact in silent.values()} == {5}
    assert all(fact["silent_s"] > 1 == fact["allowed_s"] and fact["by"] == "heartbeat" for fact in silent.values())
    (early,) = facts(record, "early")
    assert early["why"].startswith("the ranks of this node have said no step after 5 for ")
    stacks = {fact["rank"]: fact for fact in facts(record, "stack")}
    assert {rank: fact["by"] for rank, fact in stacks.items()} == {0: "faulthandler", 1: "faulthandler", 2: "faulthandler"}
    assert stacks[1]["frames"][0].endswith(" load_a_sample")
    assert all(stacks[rank]["frames"][0].endswith(" all_reduce") for rank in (0, 2))
    print(json.dumps(record["verdict"], indent=1), node.err)
