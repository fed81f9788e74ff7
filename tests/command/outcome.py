"""What a failure must end in, in one assertion: verdict, record, bundle, budget and node action. Not a test module.

``check`` takes the place or cluster whose commands have ended, or go on, and what is expected of one attempt. All that
is known about it comes from the files that the command left and from the store; ``keep_job`` gives a single node's job
a copy to be read, for its store ends with it.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from command.cluster import Cluster, Place
from command.processes import until

from remuster.health.classes import find
from remuster.rendezvous.admission import mark
from remuster.rendezvous.records import NodeId


class Expected(NamedTuple):
    """How an attempt is to end. ``rank`` -1: no rank is the cause, and ``node`` says where it lies ('' = nowhere)."""

    cls: str
    rank: int
    source: str  # that is among the evidence
    state: str = "failed"
    charged_to: str | None = None
    action: str | None = None  # what becomes of the node: check, aside, quarantine
    first: tuple[int, ...] = ()  # ranks one of which was the first to end abnormally by itself, as the bundles have it
    node: str = ""
    without: tuple[str, ...] = ()  # nodes of the round that were lost, and have kept no bundle


def keep_job(place: Place) -> None:
    """Let all commands of ``place`` keep a copy of the job; to be called before they are started."""
    folder = place.folder / "checkpoints"
    folder.mkdir(mode=0o700)
    place.env["PET_CHECKPOINT_DIR"] = str(folder)


def check(place: Place, expected: Expected, attempt: int = 0) -> dict[str, Any]:
    """Assert that the attempt ended as expected, on every node that tells of it; return its record."""
    name = f"attempts/attempt-{attempt:03d}.json"
    paths = until(lambda: [path for node in place.nodes for path in node.log_dir.glob(f"*_*/{name}")], name)
    ended = all(node.process.poll() is not None for node in place.nodes)
    if ended:
        assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    records = [json.loads(path.read_text()) for path in paths if path.stat().st_size]
    record: dict[str, Any] = records[0]
    assert all(other == record for other in records), "the nodes keep different records of one attempt"
    check_record(record, expected)
    check_bundles(record, expected)
    check_job(place, record, expected)
    return record


def check_record(record: Mapping[str, Any], expected: Expected) -> None:
    """Assert what the record says of cause, cost and consequence."""
    verdict = record["verdict"]
    why = f"{verdict['sentence']}; {record['decision']}"
    homes = {rank: member["node"] for member in record["members"] for rank in member["ranks"]}
    node = homes.get(expected.rank, expected.node)
    where = (verdict["class"], verdict["family"], verdict["rank"], verdict["node"])
    assert where == (expected.cls, find(expected.cls).family, expected.rank, node), why
    assert record["state"] == expected.state, why
    assert expected.source in {proof["source"] for proof in verdict["evidence"]}, verdict["evidence"]
    assert all(proof["text"] for proof in verdict["evidence"])
    assert verdict["sentence"] in record["report"].replace("\n", " "), record["report"]
    told = {one["node"] for one in record["evidence"] if one["facts"]}
    assert told == set(homes.values()) - set(expected.without)
    # --- who pays ---
    assert record["charged_to"] == expected.charged_to, why
    assert (record["next_try_s"] is None) or record["state"] == "retried"
    if expected.charged_to is None:
        assert record["budget_left"] is None
    else:
        assert record["spent"][expected.charged_to] >= 1
        assert record["budget_left"]["launch"] >= 0
    # --- what becomes of the node ---
    assert record["node_action"] == expected.action, why
    assert verdict["node_fault"] == (expected.action is not None)
    assert bool(record["quarantined"]) == (expected.action == "quarantine")


def check_bundles(record: Mapping[str, Any], expected: Expected) -> None:
    """Assert that every node that could has kept a bundle, private, that names who ended first on it."""
    homes = {rank: member["node"] for member in record["members"] for rank in member["ranks"]}
    bundles = {node: Path(path) for node, path in record["bundles"].items()}
    assert set(bundles) == set(homes.values()) - set(expected.without)
    for node, path in bundles.items():
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}
        told = json.loads((path / "evidence.json").read_text())
        check_told(told, record, node, expected)
        assert json.loads((path / "node.json").read_text())["disks"]


def check_told(told: Mapping[str, Any], record: Mapping[str, Any], node: str, expected: Expected) -> None:
    """Assert what a bundle's ``evidence.json`` says."""
    homes = {rank: member["node"] for member in record["members"] for rank in member["ranks"]}
    assert (told["node"], told["round"], told["attempt"]) == (node, record["round"], record["attempt"])
    first = [rank for rank in expected.first if homes[rank] == node] or [None]
    assert (told["first_abnormal"] or {"rank": None})["rank"] in first, told["first_abnormal"]
    mine = {rank: status for rank, status in record["exit_codes"].items() if homes[int(rank)] == node}
    assert told["exit_codes"] == mine


def check_job(place: Place, record: Mapping[str, Any], expected: Expected) -> None:
    """Assert that what the job remembers says the same: what was spent, and who is blamed."""
    job = standing(place)
    spent = dict(job["spent"])
    assert spent.get(expected.charged_to, 0) >= (expected.charged_to is not None), spent
    assert job["charged"] >= (expected.charged_to is not None)
    blamed, aside = dict(job["blamed"]), set(job["aside"])
    later = job["phase"] in "RDX" and job["formed"] > record["round"]
    who = next((m for m in record["members"] if m["node"] == record["verdict"]["node"]), None)
    if expected.action is None or who is None:
        assert not blamed
        assert not aside
        return
    known = mark(NodeId(who["node"]), who["machine"])
    if later and who["node"] in {m["node"] for m in members(place, job["formed"])}:
        assert known not in blamed, "it takes part again"
        assert expected.action == "check" or len(place.nodes) == len(record["members"]), "others were there to be taken"
    else:
        assert blamed[known] == record["round"]
        assert (known in aside) == (expected.action == "aside")


def standing(place: Place) -> dict[str, Any]:
    """Return the job as it stands: in the store, or where the single node's copy of it is kept."""
    if isinstance(place, Cluster):
        return place.job()
    (path,) = (place.folder / "checkpoints").glob(".remuster/*/job.json")
    found: dict[str, Any] = json.loads(path.read_text())["job"]
    return found


def members(place: Place, n: int) -> list[dict[str, Any]]:
    """Return the members of round ``n``, the last that formed."""
    if isinstance(place, Cluster):
        found: list[dict[str, Any]] = json.loads(place.tree()[f"rounds/{n:010d}"])["members"]
        return found
    (node,) = place.nodes
    return next(list(record["members"]) for record in node.records() if record["round"] == n)
