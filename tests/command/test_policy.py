"""Policy as data, told by the real command: exit codes of the program's own, waits, and nodes that are blamed."""

from __future__ import annotations

import time

import pytest
from command.cluster import Cluster, Place

pytestmark = pytest.mark.process

FAILS = """
import os, sys
if os.environ["REMUSTER_ROUND"] == "1":
    {how}
"""


def test_a_code_that_means_stop_is_not_retried(place: Place) -> None:
    script = place.script("t.py", "import sys; sys.exit(17)")
    node = place.command("--max-restarts", "3", "--exit-code-map", "16=retry-elsewhere,17=stop", script)
    assert node.exit_code() == 17, node.say()
    (record,) = node.records()
    assert record["decision"] == "exit status 17 means stop (--exit-code-map)"
    assert record["charged_to"] is None
    assert "exit status 17 means stop (--exit-code-map)" in node.err


def test_a_code_that_means_elsewhere_takes_another_node(cluster: Cluster) -> None:
    for number in (2, 3, 4):
        cluster.steady(number, "--nnodes", "2", "--max-restarts", "3", "--exit-code-map", "16=retry-elsewhere")
    first = cluster.wait_round(1, 4)
    (spare,) = {f"127.0.0.{number}" for number in (2, 3, 4)} - {one["REMUSTER_NODE"] for one in first.values()}
    blamed = first[2]["REMUSTER_NODE"]
    cluster.order("exit-2", 1, "16")
    second = cluster.wait_round(2, 4)
    assert {one["REMUSTER_NODE"] for one in second.values()} == {first[0]["REMUSTER_NODE"], spare}
    assert len(cluster.job()["aside"]) == 1
    cluster.order("exit-2", 2, "16")  # now both stand aside, and one of them is needed
    third = cluster.wait_round(3, 4)
    assert {one["REMUSTER_NODE"] for one in third.values()} == {first[0]["REMUSTER_NODE"], blamed}
    cluster.order("done")
    assert [node.exit_code() for node in cluster.nodes] == [0, 0, 0], cluster.say()
    cluster.check_left()


def test_storage_that_fails_is_left_alone_for_a_while(place: Place) -> None:
    script = place.script("t.py", FAILS.format(how="raise OSError(116, 'Stale file handle', '/shared/x')"))
    node = place.command("--max-restarts", "1", script)
    assert node.exit_code() == 0, node.say()
    failed, done = node.records()
    assert (failed["verdict"]["class"], failed["charged_to"]) == ("fs_transient", "storage")
    wait_s = failed["next_try_s"]
    assert 2 <= wait_s <= 8
    assert f"next try in {wait_s} s" in node.err
    assert done["times_ms"]["form"] >= 1000 * wait_s


def test_a_blamed_node_is_checked_before_it_takes_part_again(place: Place) -> None:
    what = "RuntimeError('CUDA error: uncorrectable ECC error encountered')"
    node = place.command("--max-restarts", "1", place.script("t.py", FAILS.format(how=f"raise {what}")))
    assert node.exit_code() == 0, node.say()
    said = [event["event"] for event in node.events()]
    begins = next(i for i, text in enumerate(said) if "blamed for the end of round 1: it is checked" in text)
    ends = next(i for i, text in enumerate(said) if text.startswith("the node check after round 1"))
    runs = next(i for i, text in enumerate(said) if text.startswith("round 2 runs"))
    assert begins < ends < runs


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("16", "'16' is not CODE=ACTION; write CODE=retry"),
        ("300=stop", "'300' is no exit status (1 to 255)"),
        ("16=gpu_lots", "did you mean gpu_lost?"),
    ],
)
def test_a_map_that_is_none_is_refused(place: Place, text: str, sentence: str) -> None:
    began = time.monotonic()
    node = place.command("--exit-code-map", text, place.script("t.py", ""))
    assert node.exit_code() == 2
    assert f"--exit-code-map is '{text}': " in node.err
    assert sentence in node.err
    assert time.monotonic() - began < 30
