"""How long it takes from the death of a rank to the last signal on the other node; and that restarts cost nothing."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command.cluster import PROGRESS, STEADY, Cluster, Node
from command.figures import FIGURE
from command.processes import boottime, until

pytestmark = [pytest.mark.process, pytest.mark.timing]

REPETITIONS = 31
MEDIAN_S = 0.050
EARLY = 5  # restarts after which descriptors are counted first


def descriptors(node: Node) -> dict[str, int]:
    """Return how many descriptors each of the node's three processes holds."""
    return {who: len(os.listdir(f"/proc/{getattr(node, who)}/fd")) for who in ("keeper", "agent", "guardian")}


def test_from_a_death_to_the_last_signal_on_the_other_node(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    often = ("--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "100")
    saves = ("--checkpoint-dir", cluster.folder / "kept", PROGRESS, sys.executable)  # or it would be a storm
    nodes = [cluster.start(number, *often, *saves, STEADY, cluster.desk) for number in (2, 3)]
    took: list[float] = []
    early: list[dict[str, int]] = []
    for n in range(1, REPETITIONS + 1):
        said = cluster.wait_round(n, 4)
        victim = n % 4
        others = [r for r, one in said.items() if one["REMUSTER_NODE"] != said[victim]["REMUSTER_NODE"]]
        began = boottime()
        os.kill(int(said[victim]["pid"]), signal.SIGKILL)
        took.append(max(_signalled(cluster.desk / f"round-{n}" / f"term-{r}") for r in others) - began)
        if n == EARLY:
            cluster.wait_round(n + 1, 4)
            early = [descriptors(node) for node in nodes]
    cluster.wait_round(REPETITIONS + 1, 4)
    until(lambda: cluster.job()["phase"] == "R", "the last round runs")
    late = [descriptors(node) for node in nodes]
    cluster.order("done")
    assert [node.exit_code() for node in nodes] == [0, 0], cluster.say()
    cluster.check_left()

    ms = sorted(1000 * one for one in took)
    figures = f"median {statistics.median(ms):.1f}, p95 {ms[int(0.95 * len(ms))]:.1f}, max {ms[-1]:.1f} ms"
    record_property(FIGURE, f"rank killed → last rank of the other node signalled, {len(ms)} times: {figures}")
    assert statistics.median(ms) <= 1000 * MEDIAN_S, figures
    for before, after in zip(early, late, strict=True):
        assert all(after[who] <= before[who] + 2 for who in before), (before, after)
    assert len(nodes[0].records()) == REPETITIONS + 1


def _signalled(path: Path) -> float:
    return float(json.loads(until(lambda: path.exists() and path.read_text(), f"{path.name} was signalled")))
