"""A re-entry in the real command: recovered when steps and a newer checkpoint show it, else an older one is tried."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command.cluster import Cluster, Node, Place
from command.processes import until

from remuster.checkpoint.layout import step_name

pytestmark = pytest.mark.process

# Trains until it is told to end and saves each tenth step. In the first attempt rank 1 dies at step 35; no rank is
# further then. What goes wrong after that, the second argument says.
TRAIN = """
import math, os, sys, time
from pathlib import Path
from remuster import checkpoint, heartbeat, resume_point
desk, wrong = Path(sys.argv[1]), sys.argv[2]
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
saved = Path(os.environ["REMUSTER_CHECKPOINT_DIR"])
point = resume_point()
done = point.step if point else 0
spoilt = done == 30
if wrong == "begins anew":
    done = 0
while not (desk / "done").exists():
    time.sleep(0.01)
    done += 1
    if spoilt and wrong == "raises":
        raise RuntimeError(f"Loss is nan, stopping training at step {done}")
    loss = math.nan if spoilt and wrong == "nan" else 2 + 40 / (done + 10) + 0.1 * math.sin(done)
    if wrong == "no loss":
        heartbeat(done)
    else:
        heartbeat(done, loss=loss, lr=1 / done)
    if rank == 0 and done % 10 == 0 and not (point and wrong == "begins anew"):
        with checkpoint.publish(done, gather=lambda one: [one], rank=0) as p:
            p.path("state").write_text(str(done))
    if attempt == 0 and done == 35:
        while rank == 0 or not (saved / "step-000000000030").exists():
            time.sleep(0.01)
        os._exit(3)
"""
HAS = "has recovered: "


def started(place: Place, wrong: str) -> Node:
    args = ("--nproc-per-node", "2", "--max-restarts", "3", "--checkpoint-dir", place.folder / "kept")
    events = ("--on-event", f"tee -a {place.desk / 'events'}")
    return place.command(*args, *events, place.script("train.py", TRAIN), place.desk, wrong)


def told(place: Place) -> list[str]:
    return [json.loads(line)["event"] for line in (place.desk / "events").read_text().splitlines()]


def reentries(records: list[dict[str, Any]]) -> list[tuple[int | None, str | None]]:
    """Return from which step each attempt re-entered, and what came of it."""
    return [((one["resume"] or {}).get("step"), (one["reentry"] or {}).get("state")) for one in records]


@pytest.mark.parametrize(("wrong", "by"), [("", ("steps", "loss")), ("no loss", ("steps",))])
def test_an_attempt_has_recovered_when_its_steps_agree_and_a_newer_checkpoint_is_verified(
    place: Place, wrong: str, by: tuple[str, ...]
) -> None:
    node = started(place, wrong)
    until(lambda: HAS in node.err, "it has recovered", show=node.say)
    place.order("done")
    assert node.exit_code() == 0, node.say()
    first, second = node.records()
    assert (first["state"], first["reentry"], second["state"]) == ("retried", None, "done")
    reentry = second["reentry"]
    assert (reentry["state"], reentry["reason"]) == ("recovered", None)
    assert tuple(reentry["by"].split(", "))[: len(by)] == by
    assert 5 <= reentry["steps"] <= 20
    assert reentry["checkpoint"] > 30
    assert f"round 2 {HAS}{reentry['steps']} steps after step 30 agree, step {reentry['checkpoint']} is" in node.err
    assert told(place).count("recovered") == 1
    (failed, _) = json.loads((node.run_dir / "summary.json").read_text())["attempts"]
    assert failed["state"] == "recovered"
    assert failed["rto_ms"] > failed["recovery_ms"] > 0


def test_ranks_that_begin_anew_are_stopped_and_an_older_checkpoint_is_tried_once(place: Place) -> None:
    node = started(place, "begins anew")
    assert node.exit_code() == 1, node.say()
    records = node.records()
    assert reentries(records) == [(None, None), (30, "refuted"), (20, "refuted")]
    assert [one["state"] for one in records] == ["retried", "retried", "failed"]
    assert [one["charged_to"] for one in records] == ["unknown", "checkpoint", None]
    assert [one["verdict"]["class"] for one in records[1:]] == ["ckpt_corrupt", "ckpt_corrupt"]
    why = "said step 1 first, and the steps behind it, where step 31 comes after the checkpoint's: "
    assert f"{why}it does not go on from checkpoint {step_name(30)} (step 30)" in records[1]["verdict"]["sentence"]
    refused = {one["name"]: one["reason"] for one in records[2]["refused"]}
    assert refused == {step_name(30): "suspect: round 2 re-entered from it and did not go on as before"}
    assert records[2]["decision"] == (
        f"{step_name(30)} (round 2) had been given up before, and the older {step_name(20)} is no better: "
        "the fault lies elsewhere"
    )
    assert {path.name for path in (place.folder / "kept").glob("step-*")} == {step_name(n) for n in (10, 20, 30)}


@pytest.mark.parametrize(("wrong", "family"), [("nan", "checkpoint"), ("raises", "numerical")])
def test_from_the_older_one_it_goes_on(place: Place, wrong: str, family: str) -> None:
    """Whether the ranks are seen to have lost their numbers, or end for it themselves within their first steps."""
    node = started(place, wrong)
    until(lambda: HAS in node.err, "it has recovered", show=node.say)
    place.order("done")
    assert node.exit_code() == 0, node.say()
    records = node.records()
    states = reentries(records)
    assert states[1] == (30, "refuted" if wrong == "nan" else "unproven")
    assert states[2] == (20, "recovered")
    assert records[1]["charged_to"] == family
    assert records[1]["decision"].startswith(f"{step_name(30)} is suspect: the next older checkpoint is tried, once")


def test_all_nodes_have_to_go_on(cluster: Cluster) -> None:
    kept, script = cluster.folder / "kept", cluster.script("train.py", TRAIN)
    args = ("--nnodes", "2", "--max-restarts", "3", "--checkpoint-dir", kept, script, cluster.desk, "")
    nodes = [cluster.start(number, *args) for number in (2, 3)]
    until(lambda: HAS in cluster.say(), "it has recovered", show=cluster.say)
    assert len([key for key in cluster.tree() if key.startswith("reentered/0000000002/")]) == 2
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    assert not [key for key in cluster.tree() if key.startswith("reentered/")]
    for node in nodes:
        assert [one["reentry"] and one["reentry"]["state"] for one in node.records()] == [None, "recovered"]
