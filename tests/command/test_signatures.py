"""``--signatures FILE`` by the real command: the site's lines, the site's XIDs, nodes with different files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command.cluster import Cluster, Place
from command.test_kernel_evidence import XID, kernel_lines, started, write

pytestmark = pytest.mark.process

READER = {"pattern": "SITE-42: * gave up", "class": "user_data_error", "note": "the site's data reader"}
GAVE_UP = "SITE-42: reader of shard 7 gave up"
# What a tool of the site's prints before it ends with 1, in the first round.
FAILS = """
import os, sys
if os.environ["REMUSTER_ROUND"] == "1":
    print({line!r}, file=sys.stderr)
    sys.exit(1)
"""


def written(folder: Path, name: str = "site.json", *signs: dict[str, str], **xids: str) -> Path:
    path = folder / name
    numbers = {code.removeprefix("xid"): means for code, means in xids.items()}
    path.write_text(json.dumps({"schema_version": 1, "signatures": signs, "xids": numbers}))
    return path


def test_what_nobody_else_knows_gets_its_class_and_is_not_retried(place: Place) -> None:
    """Red when the leader judges without the file: exit_unknown, which gets a retry."""
    script = place.script("t.py", FAILS.format(line=GAVE_UP))
    plain = place.command("--max-restarts", "3", script)
    assert plain.exit_code() == 0, plain.say()
    assert [record["verdict"]["class"] for record in plain.records()] == ["exit_unknown", "success"]
    node = place.command("--max-restarts", "3", "--signatures", written(place.folder, "site.json", READER), script)
    assert node.exit_code() == 1, node.say()
    (record,) = node.records()
    verdict = record["verdict"]
    assert (verdict["class"], verdict["family"], verdict["rank"]) == ("user_data_error", "user", 0)
    assert verdict["evidence"][0]["source"] == "site signature: the site's data reader"
    assert verdict["evidence"][0]["text"] == verdict["line"] == GAVE_UP
    assert (record["state"], record["charged_to"]) == ("failed", None)
    assert record["decision"] == "user_data_error: a restart gives the same"
    assert "(site signature: the site's data reader)" in node.err


@pytest.mark.drill  # for its length
def test_what_others_would_not_retry_is_retried_where_the_site_says_so(place: Place) -> None:
    line = "ModuleNotFoundError: No module named 'site_plugins'"
    sign = {"pattern": "No module named 'site_plugins'", "class": "fs_hang", "note": "/opt is slow to mount"}
    script = place.script("t.py", FAILS.format(line=f"Traceback (most recent call last):\n{line}"))
    place.env["PET_SIGNATURES"] = str(written(place.folder, "site.json", sign))
    node = place.command("--max-restarts", "1", script)
    assert node.exit_code() == 0, node.say()
    failed, done = node.records()
    assert (failed["verdict"]["class"], failed["charged_to"], failed["state"]) == ("fs_hang", "storage", "retried")
    assert failed["decision"].startswith("fs_hang: worth another try, charged to storage")
    assert done["verdict"]["class"] == "success"


def test_nodes_with_different_files_do_not_meet(cluster: Cluster) -> None:
    one = written(cluster.folder, "one.json", READER)
    same = cluster.folder / "same.json"
    same.write_text(json.dumps(json.loads(one.read_text()), indent=8))
    other = written(cluster.folder, "other.json", {**READER, "class": "fs_hang"})
    cluster.steady(2, "--nnodes", "2:3", "--signatures", one)
    cluster.steady(3, "--nnodes", "2:3", "--signatures", same)
    cluster.wait_round(1, 4)
    refused = cluster.steady(4, "--nnodes", "2:3", "--signatures", other)
    assert refused.exit_code() == 2, cluster.say()
    assert "this node was given --signatures digest " in refused.err
    assert "has digest " in refused.err
    cluster.order("done")
    assert [node.exit_code() for node in cluster.nodes] == [0, 0, 2], cluster.say()
    cluster.check_left()


@pytest.mark.drill  # for its length
def test_an_xid_of_the_sites_ends_a_round_whose_ranks_live(place: Place) -> None:
    """Red when ``KernelLog`` does not know the file: XID 31 is the program's own, and ends nothing."""
    node, pipe = started(place, "--signatures", written(place.folder, xid31="gpu_lost"))
    write(pipe, XID % (31, "Ch 00000008, intr 00000000. MMU Fault"))
    assert node.exit_code() == 75, node.say()
    (record,) = node.records()
    verdict = record["verdict"]
    assert (verdict["class"], verdict["family"], verdict["node_fault"]) == ("gpu_lost", "hardware", True)
    assert "gpu_lost by --signatures" in verdict["sentence"]


@pytest.mark.drill  # for its length
def test_an_xid_that_the_site_ignores_ends_nothing_and_explains_nothing(place: Place) -> None:
    """Red when the alarm or the verdict has its own idea of XID 79."""
    node, pipe = started(place, "--signatures", written(place.folder, xid79="ignore"))
    write(pipe, XID % (79, "GPU has fallen off the bus."))
    (place.desk / "die").touch()
    assert node.exit_code() == 134, node.say()
    (record,) = node.records()
    assert len(kernel_lines(record)) == 1
    assert record["verdict"]["class"] == "exit_unknown", record["verdict"]
    assert any("ignore by --signatures" in note for note in record["verdict"]["unused"])
