"""What nodes keep of a failure before the ranks run again, by the real command."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from command.cluster import Cluster, Place

pytestmark = pytest.mark.process

ONCE = """
import os, sys
print("before", flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    raise ValueError("only once")
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    import signal; signal.pause()
kept = os.path.join(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]), "..", "..", "bundles")
print("bundles when started again:", sorted(os.listdir(kept)), flush=True)
"""


def test_a_bundle_is_kept_before_the_ranks_start_again_and_the_record_names_it(place: Place) -> None:
    """Red when ``Collect`` is answered before the bundle is written."""
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", place.script("once.py", ONCE))
    assert node.exit_code() == 0, node.say()
    assert b"bundles when started again: ['attempt-000']" in node.out
    failed, done = node.records()
    (kept,) = (Path(path) for path in failed["bundles"].values())
    assert done["bundles"] is None
    told = json.loads((kept / "evidence.json").read_text())
    assert told["first_abnormal"]["rank"] == 1
    assert set(told["exit_codes"]) == {"0", "1"}
    assert "ValueError: only once" in (kept / "rank-1.stderr").read_text()
    assert (kept / "rank-0.stdout").read_text() == "before\n"
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}


def test_every_node_keeps_one_and_who_is_asked_to_leave_keeps_none(cluster: Cluster) -> None:
    nodes = [cluster.steady(number, "--nnodes", "2", "--max-restarts", "9") for number in (2, 3)]
    said = cluster.wait_round(1, 4)
    os.kill(int(said[3]["pid"]), signal.SIGKILL)
    cluster.wait_round(2, 4)
    record = cluster.records()[1]
    assert len(record["bundles"]) == 2
    assert all((Path(path) / "evidence.json").exists() for path in record["bundles"].values())
    nodes[1].process.send_signal(signal.SIGTERM)
    nodes[1].exit_code()
    assert [path.name for path in (nodes[1].run_dir / "bundles").iterdir()] == ["attempt-000"]
