"""Ranks that SIGKILL does not end, as in state D: frozen ones. What the guardian alone does is in ``tests/process``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command.cluster import Cluster
from command.processes import alive, until

FREEZER = Path("/sys/fs/cgroup/freezer")
SLOW_S = 150.0  # twice thirty seconds are waited for a process to die: by the agent, and by its keeper


@pytest.fixture
def freeze() -> Iterator[Callable[[int], None]]:
    """Freeze one process in a v1 freezer, so that a SIGKILL waits; thaw it at the end."""
    if not os.access(FREEZER / "cgroup.procs", os.W_OK):
        pytest.skip("needs root and a v1 freezer")
    folder = FREEZER / f"command-test-{os.getpid()}"
    folder.mkdir()

    def stop(pid: int) -> None:
        (folder / "cgroup.procs").write_text(str(pid))
        (folder / "freezer.state").write_text("FROZEN")

    yield stop
    (folder / "freezer.state").write_text("THAWED")
    until(lambda: not (folder / "cgroup.procs").read_text(), "what was frozen has gone")
    folder.rmdir()


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_b22_a_node_with_a_rank_that_does_not_die_goes_and_is_named(
    cluster: Cluster, freeze: Callable[[int], None]
) -> None:
    """Red when the agent passes over what is left after the bound, as if it had the proof."""
    nodes = [cluster.steady(number, "--nnodes", "2", "--max-restarts", "9") for number in (2, 3, 4)]
    first = cluster.wait_round(1, 4)
    leads = cluster.leader().folder.name.partition("-")[2]
    ill = next(one for one in first.values() if one["REMUSTER_NODE"] != leads)
    (node,) = (n for n in nodes if n.folder.name.endswith(f"-{ill['REMUSTER_NODE']}"))
    pid = int(ill["pid"])

    freeze(pid)
    node.kill("guardian")  # the others of its ranks die at once, and no grace is waited for
    second = cluster.wait_round(2, 4, SLOW_S)
    assert ill["REMUSTER_NODE"] not in {one["REMUSTER_NODE"] for one in second.values()}
    assert node.process.wait(SLOW_S) == 75, cluster.say()
    assert f"processes {pid} do not die from SIGKILL; reboot this node" in node.err
    assert f"{pid} (python" in node.err
    assert "Take this node out of service" in node.err
    assert any("did not die from SIGKILL" in str(event) or "quarantine" in str(event) for event in node.events())
    assert alive(pid)

    again = cluster.steady(int(ill["REMUSTER_NODE"].rpartition(".")[2]), "--nnodes", "2", "--max-restarts", "9")
    assert again.exit_code(SLOW_S) == 75, cluster.say()  # no new rank where the old one may be
    assert not again.ranks()
    cluster.order("done")
    assert [n.exit_code() for n in nodes if n is not node] == [0, 0], cluster.say()
