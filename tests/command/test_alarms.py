"""Acting early, by the real command: a living rank writes that it cannot go on, and hangs; the round ends for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command.cluster import Cluster, Node, Place

pytestmark = pytest.mark.process

TIMEOUT = (
    "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds "
    "before timing out."
)
# Each rank says when it was signalled, and dies of that. Rank 1 says the line when told to, and then does as told.
SCRIPT = f"""
import os, signal, sys, time
desk, rank = os.environ["DESK"], os.environ["RANK"]
def end(number, _):
    open(os.path.join(desk, f"signalled-{{rank}}"), "w").write(repr(time.monotonic()))
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
signal.signal(signal.SIGTERM, end)
print("step 1 loss 2.0", flush=True)
if rank == "1":
    said = open(os.path.join(desk, "said.tmp"), "w")
    said.write(repr(time.monotonic()))
    said.close()
    os.rename(os.path.join(desk, "said.tmp"), os.path.join(desk, "said"))
    print({TIMEOUT!r}, file=sys.stderr, flush=True)
    if os.environ["HOW"] == "goes on":
        for step in range(2, 2 + int(10 * float(os.environ["WINDOW"]))):
            print("step", step, "loss 1.9", flush=True)
            time.sleep(0.2)
        open(os.path.join(desk, "over"), "w").close()
        sys.exit()
while not os.path.exists(os.path.join(desk, "over")):
    time.sleep(0.05)
"""
WINDOW_S = 1.5


def times(desk: Path, *names: str) -> list[float]:
    return [float((desk / name).read_text()) for name in names]


def early(record: dict[str, Any]) -> dict[str, Any]:
    facts = [fact for node in record["evidence"] for fact in node["facts"]]
    (found,) = (fact for fact in facts if fact["is"] == "early")
    assert isinstance(found, dict)
    return found


def check(node: Node, desk: Path) -> None:
    """The round ended at the window's end, for all its ranks at once, and the line is told."""
    said, *signalled = times(desk, "said", "signalled-0", "signalled-1")
    assert WINDOW_S <= min(signalled) - said < WINDOW_S + 2.0
    assert max(signalled) - min(signalled) < 1.0
    (record,) = node.records()
    assert (record["verdict"]["family"], record["state"]) == ("hang", "failed")
    fact = early(record)
    assert (fact["rank"], fact["sign"], fact["why"]) == (1, "nccl-timeout", f"rank 1 wrote: {TIMEOUT}")
    assert "ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught" in record["report"]


def test_all_ranks_are_signalled_at_the_windows_end(place: Place) -> None:
    """Red when ``_make_sources`` has no watch: the job stands until the test's bound."""
    args = ("--nproc-per-node", "2", "--alarm-window", str(WINDOW_S), place.script("t.py", SCRIPT))
    node = place.command(*args, env={"DESK": str(place.desk), "HOW": "hangs"})
    assert node.exit_code() == 75, node.say()
    check(node, place.desk)
    assert f"rank 1 wrote: {TIMEOUT}; the round ends in 1.5 s" in node.err


def test_a_rank_that_goes_on_is_left_alone(place: Place) -> None:
    """Red when no withdrawal is posted."""
    args = ("--nproc-per-node", "2", "--alarm-window", str(WINDOW_S), place.script("t.py", SCRIPT))
    node = place.command(*args, env={"DESK": str(place.desk), "HOW": "goes on", "WINDOW": str(WINDOW_S)})
    assert node.exit_code() == 0, node.say()
    assert "rank 1 goes on: its alarm is withdrawn" in node.err


def test_the_ranks_of_all_nodes_are_signalled(cluster: Cluster) -> None:
    script = cluster.script("t.py", SCRIPT)
    args = ("--nnodes", "2", "--alarm-window", str(WINDOW_S), script)
    nodes = [cluster.start(n, *args, env={"DESK": str(cluster.desk), "HOW": "hangs"}) for n in (2, 3)]
    assert [node.exit_code() for node in nodes] == [75, 75], cluster.say()
    for node in nodes:
        check(node, cluster.desk)
    cluster.check_left()
