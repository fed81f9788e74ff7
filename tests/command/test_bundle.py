"""What nodes keep of a failure before the ranks run again, by the real command."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from command.cluster import Cluster, Place
from command.processes import until
from small_disk import small_disk

pytestmark = pytest.mark.process

ONCE = """
import os, signal, time
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print("before", flush=True)
if attempt == "0":
    dump = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
    with open(dump + rank, "wb") as file:
        file.write(bytes(15 << 20))
    os.mkdir(f"{dump}done-{rank}")
    if rank != "1":
        signal.pause()
    while not all(os.path.exists(f"{dump}done-{r}") for r in range(4)):
        time.sleep(0.01)
    raise ValueError("only once")
kept = os.path.join(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]), "..", "..", "bundles", "attempt-000")
whole = [entry.name for entry in os.scandir(kept) if entry.stat().st_size == 15 << 20]
print("when started again:", len(whole), "dumps", flush=True)
"""


def test_a_bundle_is_kept_before_the_ranks_start_again_and_the_record_names_it(place: Place) -> None:
    """Red when it is not kept, or kept by another thread than the one that makes the next round's directories."""
    args = ("--nproc-per-node", "4", "--max-restarts", "1", place.script("once.py", ONCE))
    node = place.command(*args, env={"TORCH_FR_DUMP_TEMP_FILE": str(place.desk / "dump-of-")})
    assert node.exit_code() == 0, node.say()
    assert node.out.count(b"when started again: 4 dumps\n") == 4, node.out
    failed, done = node.records()
    (kept,) = (Path(path) for path in failed["bundles"].values())
    assert done["bundles"] is None
    told = json.loads((kept / "evidence.json").read_text())
    assert told["first_abnormal"]["rank"] == 1
    assert set(told["exit_codes"]) == {"0", "1", "2", "3"}
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


FREEZES = """
import os, subprocess, sys
subprocess.run(["fsfreeze", "-f", sys.argv[1]], check=True)
os._exit(3)
"""


def test_a_log_directory_that_hangs_is_named_among_what_is_lacking(place: Place) -> None:
    """As an NFS server that is gone. Red when the round is judged as if nothing were to be kept."""
    with small_disk(place.folder / "disk", "ext4") as disk:
        node = place.command("--log-dir", disk, place.script("t.py", FREEZES), disk)
        try:
            until(lambda: "round 1 ended" in node.err, "the round is judged", show=node.say)
        finally:
            subprocess.run(["fsfreeze", "-u", disk], check=True)
        assert node.exit_code() == 3, node.say()
        (record,) = (json.loads(path.read_text()) for path in disk.glob("*/attempts/attempt-*.json"))
        lacked = [fact for node in record["evidence"] for fact in node["facts"] if fact["is"] == "lacked"]
        assert "bundle" in {fact["source"] for fact in lacked}, record["evidence"]
