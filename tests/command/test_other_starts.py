"""Nodes that a list of hosts or a batch job has started: nothing is typed of where they meet, by the real command."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
from command.cluster import HERE, STEADY, Node, Place
from command.processes import until
from etcd_server import free_ports

from remuster.launcher.batch_systems import port

pytestmark = pytest.mark.process

MEET = HERE / "meet.py"
CONF = "lease_ttl=4,kill_bound=1,last_call_timeout=2,join_timeout=60"


def start(place: Place, number: int, *args: str | Path, conf: str = "", **env: str) -> Node:
    """Start one of this machine's addresses as a node."""
    here = ("--local-addr", f"127.0.0.{number}", "--rdzv-conf", f"{CONF}{conf and ',' + conf}")
    return place.command(*here, *args, name=f"127.0.0.{number}", env=env)


def met(place: Place, world: int) -> dict[str, dict[str, str]]:
    """Return what each rank of the first round said when it had met the others."""
    return {str(rank): json.loads((place.desk / f"met-1-{rank}").read_text()) for rank in range(world)}


def test_two_listed_hosts_meet_at_the_first(place: Place) -> None:
    meet = f"etcd_port={free_ports(1)[0]}"
    nodes = [start(place, n, "--hosts", "127.0.0.2:1,127.0.0.3:2", MEET, place.desk, conf=meet) for n in (3, 2)]
    assert [node.exit_code() for node in nodes] == [0, 0], place.say()
    said = met(place, 3)
    assert sorted(one["REMUSTER_NODE"] for one in said.values()) == ["127.0.0.2", "127.0.0.3", "127.0.0.3"]
    assert len({one["REMUSTER_RUN_ID"] for one in said.values()}) == 1
    assert "--hosts: 2 of 2 nodes meet at 127.0.0.2:" in nodes[0].err


def test_a_listed_host_is_lost_and_the_others_go_on(place: Place) -> None:
    """What ssh that dies does to the command on its host, SIGHUP, is one node's leaving; the rest form a new round."""
    hosts = place.script("hosts", "127.0.0.2 slots=1\n127.0.0.3 slots=1\n# 127.0.0.4\n")
    meet = f"etcd_port={free_ports(1)[0]}"
    line = ("--hostfile", hosts, "--nnodes", "1:2", "--max-restarts", "3", STEADY, place.desk)
    first = start(place, 2, *line, conf=meet)
    until(lambda: "store-minder" in str(first.pids()), "it keeps the store", show=first.say)  # both addresses are here
    second = start(place, 3, *line, conf=meet)
    place.wait_round(1, 2)
    second.kill("keeper", signal.SIGHUP)
    assert second.exit_code() == 128 + signal.SIGHUP, place.say()
    place.wait_round(2, 1)
    place.order("done")
    assert first.exit_code() == 0, place.say()


def test_a_host_that_is_not_listed_is_refused(place: Place) -> None:
    node = place.command("--hosts", "192.0.2.7,no-such-host.invalid", STEADY, place.desk)
    assert node.exit_code() == 2
    assert "is none of the 2 hosts of --hosts (192.0.2.7, no-such-host.invalid), by name or by address; " in node.err


def test_a_pbs_job_needs_its_node_file_alone(place: Place) -> None:
    """As pbsdsh or mpiexec -ppn 1 starts it where the file is on all nodes."""
    file = place.script("12.head", f"{'127.0.0.2' + chr(10)}" * 2 + "127.0.0.3\n" * 2)
    job = f"{free_ports(1)[0]}.{socket.gethostname()}"
    line = ("--nproc-per-node", "2", MEET, place.desk)
    nodes = [
        start(place, n, *line, PBS_JOBID=job, PBS_NODEFILE=str(file), PBS_NODENUM=str(n - 2), PBS_TASKNUM=str(n))
        for n in (2, 3)
    ]
    assert [node.exit_code() for node in nodes] == [0, 0], place.say()
    said = met(place, 4)
    assert {one["REMUSTER_RUN_ID"] for one in said.values()} == {job}
    assert f"PBS_NODEFILE: 2 of 2 nodes meet at 127.0.0.2:{port(job)}" in nodes[1].err


def test_an_lsf_job_needs_nothing_but_its_environment(place: Place) -> None:
    job = str(free_ports(1)[0])
    nodes = [
        start(place, n, MEET, place.desk, LSB_JOBID=job, LSB_JOBINDEX="3", LSB_MCPU_HOSTS="127.0.0.2 4 127.0.0.3 4")
        for n in (2, 3)
    ]
    assert [node.exit_code() for node in nodes] == [0, 0], place.say()
    assert {one["REMUSTER_RUN_ID"] for one in met(place, 2).values()} == {f"{job}[3]"}


def test_what_kubeflows_trainer_sets_is_enough(place: Place) -> None:
    """PET_ variables of its torch policy; the names of its pods are addresses of this machine here."""
    port_, etcd_port = free_ports(2)
    names = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "127.0.0.2",
        "PET_MASTER_PORT": str(port_),
    }
    nodes = [
        start(place, rank + 2, MEET, place.desk, conf=f"etcd_port={etcd_port}", PET_NODE_RANK=str(rank),
              JOB_COMPLETION_INDEX=str(rank), PET_RDZV_ID="uid", **names)
        for rank in (1, 0)
    ]  # fmt: skip
    assert [node.exit_code() for node in nodes] == [0, 0], place.say()
    said = met(place, 4)
    assert {one["REMUSTER_RUN_ID"] for one in said.values()} == {"uid"}
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in said.values()} == {("127.0.0.2", str(port_))}
    assert [said[rank]["REMUSTER_NODE"] for rank in "0123"] == ["127.0.0.2"] * 2 + ["127.0.0.3"] * 2
