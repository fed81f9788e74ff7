"""Drills: failures of one node among several, each with a host of its own, end to end. See ``command/outcome.py``."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command.cluster import COMMAND, Cluster, Node
from command.outcome import Expected, check
from command.processes import until
from etcd_server import EtcdServer
from shared_etcd import etcd

__all__ = ["etcd"]

MACHINE_ID = Path("/etc/machine-id")
pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives each node a machine id, which needs root"),
    pytest.mark.skipif(not MACHINE_ID.exists(), reason=f"this machine has no {MACHINE_ID} to be replaced"),
]
OWN_HOST = f'mount --bind "$0" {MACHINE_ID} && exec "$@"'


class Hosts(Cluster):
    """Nodes on hosts of their own, as a quarantine knows them."""

    def command(
        self, *args: str | bytes | Path, name: str = "", env: Mapping[str, str] | None = None, **_: Any
    ) -> Node:
        folder = self.folder / "nodes" / f"{len(self.nodes)}-{name}"
        known = self.folder / f"machine-id-{name}"
        known.write_text(uuid.uuid4().hex + "\n")
        program = ("unshare", "-m", "sh", "-c", OWN_HOST, str(known), str(COMMAND))
        line = ("--log-dir", folder / "logs", *args)
        node = Node(folder, line, self.env | (env or {}), self.folder, program=program)
        self.nodes.append(node)
        return node

    def bars(self) -> list[dict[str, Any]]:
        """Return what is held against hosts for this run's first round."""
        found = [json.loads(raw) for raw in self.keys("/remuster/~quarantine/").values()]
        return [bar for bar in found if bar["by"] == f"{self.run_id}/1"]


@pytest.fixture
def hosts(tmp_path: Path, etcd: EtcdServer) -> Iterator[Hosts]:
    made = Hosts(tmp_path / "hosts", etcd)
    yield made
    made.close()


# One node of a round fails in the way given; the others wait for it, and in later rounds all is well.
FAILS = """
import os, sys, time
from pathlib import Path
desk = Path(sys.argv[1])
first = os.environ["REMUSTER_ROUND"] == "1"
(desk / f"{os.environ['REMUSTER_ROUND']}-{os.environ['RANK']}").touch()
while first and not (desk / "go").exists():
    time.sleep(0.01)
if first and os.environ["GROUP_RANK"] == "1":
    %s
if first:
    time.sleep(60)
"""
HARDWARE = "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')"


def run(hosts: Hosts, how: str, *nodes: int) -> None:
    """Let a job of two of ``nodes`` fail once, and end."""
    for number in nodes:
        hosts.start(number, "--nnodes", "2", "--max-restarts", "2", hosts.script("t.py", FAILS % how), hosts.desk)
    until(lambda: len([key for key in hosts.tree() if key.startswith("nodes/")]) == len(nodes), "all have joined")
    hosts.order("go")
    assert [node.exit_code() for node in hosts.nodes] == [0] * len(nodes), hosts.say()


def test_an_import_error_on_one_node_only_is_that_nodes(hosts: Hosts) -> None:
    """Red when ``payer`` is the family of the class: ``--retry-budget user=0`` would end the job."""
    run(hosts, "import no_such_module", 2, 3, 4)
    record = check(hosts, Expected("user_import", 1, "last lines", "retried", "node", "aside", first=(1,)))
    assert "seen only on" in record["verdict"]["sentence"]
    assert hosts.bars() == [], "its host may be well"


def test_an_import_error_that_comes_first_on_one_node_bars_nobody(hosts: Hosts) -> None:
    """The second attempt, elsewhere, shows whose it is. Red when ``suspicion`` knows no ``compared``."""
    late = "import os, time\nif os.environ['GROUP_RANK'] == '0': time.sleep(30)\nimport no_such_module\n"
    for number in (2, 3, 4):
        hosts.start(number, "--nnodes", "2", "--max-restarts", "5", hosts.script("t.py", late))
    assert [node.exit_code() for node in hosts.nodes] == [1, 1, 1], hosts.say()
    check(hosts, Expected("user_import", 1, "last lines", "retried", "node", "aside", first=(1,)))
    again = check(hosts, Expected("user_import", 1, "last lines", "failed", None, "aside", first=(1,)), 1)
    assert again["decision"].startswith("the same failure again")
    assert hosts.bars() == []


def test_a_gpu_that_fails_puts_its_host_into_quarantine(hosts: Hosts) -> None:
    run(hosts, HARDWARE, 2, 3, 4)
    record = check(hosts, Expected("gpu_ecc", 1, "last lines", "retried", "hardware", "quarantine", first=(1,)))
    (bar,) = hosts.bars()
    assert (bar["host"], bar["by"]) == (record["quarantined"], f"{hosts.run_id}/1")


def test_a_gpu_of_a_node_that_is_needed_only_has_it_checked(hosts: Hosts) -> None:
    run(hosts, HARDWARE, 2, 3)
    check(hosts, Expected("gpu_ecc", 1, "last lines", "retried", "hardware", "aside", first=(1,)))
    assert [bar["until"] for bar in hosts.bars()] == [0], "the job has too few nodes without it: it is only noted"
