"""Pods of an indexed Kubernetes Job, as hosts that have a pod's names and environment: they meet at pod 0 by its name.

A pod's own name stands in its hosts file with its domain; another pod's comes from DNS, once that pod is there, and
leads elsewhere when the pod was replaced. Here the hosts file stands for both.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from drills.job import COMMAND, ROOT
from drills.lab import Host, Lab
from drills.sight import until
from drills.test_scenarios import CONF, MEET, check_gone, know

pytestmark = pytest.mark.drill

STEADY = Path(__file__).parents[1] / "command" / "steady.py"
DOMAIN = "train.default.svc.cluster.local"
JOB = "0d9f4c1e-5f0b"  # metadata.labels['batch.kubernetes.io/controller-uid'], by the downward API


def name_pod(host: Host, index: int, *others: str) -> None:
    """Let a host be pod ``index`` of the Job ``train``, which can look up ``others``."""
    host.sh(f"hostname train-{index}")
    know(host, f"{host.address} train-{index}.{DOMAIN} train-{index}", *others)


def start(
    lab: Lab, host: Host, index: int, name: str, script: Path = STEADY, **more: str
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the command as the manifests do."""
    host.sh("mkdir -p -m 700 /run/user")
    env = {"PATH": os.defpath, "HOME": "/run/user", "XDG_RUNTIME_DIR": "/run/user", "PYTHONPATH": str(ROOT), **more}
    env |= {"JOB_COMPLETION_INDEX": str(index), "PET_RDZV_ID": JOB, "PET_RDZV_CONF": CONF.replace("=10", "=60")}
    argv = [str(COMMAND), "--max-restarts", "9", "--checkpoint-dir", str(lab.directory / "ckpt")]
    argv += ["--log-dir", str(lab.directory / f"{name}-logs"), str(script), str(lab.directory)]
    output = lab.directory / f"{name}.out"
    return host.spawn(argv, env | {"PET_NNODES": "2"}, output)[0], output


def wait_round(lab: Lab, number: int, *outputs: Path) -> None:
    """Wait until both ranks of round ``number`` stand."""
    ranks = [lab.directory / f"round-{number}" / f"rank-{rank}" for rank in (0, 1)]

    def show() -> str:
        return f"round {number}\n" + "\n".join(f"--- {path.name}\n{path.read_text()[-5000:]}" for path in outputs)

    until(lambda: all(rank.exists() for rank in ranks), show, 40.0)


def test_pods_meet_at_pod_0_and_its_replacement_takes_its_place(lab: Lab) -> None:
    """Red when nodes are given pod 0's address, not its name, and when the replaced pods make a run of their own."""
    first, second, later = lab.host("a", "b", "c")
    name_pod(first, 0)
    name_pod(second, 1)  # pod 0 has no name yet
    waiting, said = start(lab, second, 1, "pod-1")
    until(lambda: f"train-0.{DOMAIN}" in said.read_text(), "it looks for pod 0")
    _, told = start(lab, first, 0, "pod-0")
    name_pod(second, 1, f"{first.address} train-0.{DOMAIN}")
    wait_round(lab, 1, said, told)
    copy = lab.directory / "ckpt" / ".remuster" / JOB / "job.json"
    until(copy.exists, "the run's state is kept beside the checkpoints")

    # The machine of pod 0 is lost, and the store with it; the pod is replaced elsewhere, under the same name.
    first.crash()
    name_pod(later, 0)
    name_pod(second, 1, f"{later.address} train-0.{DOMAIN}")
    head, told = start(lab, later, 0, "pod-0-again")
    assert waiting.wait(40.0) == 75, said.read_text()[-3000:]
    assert "was set up anew" in said.read_text()

    # So is pod 1, by the exit code; the run goes on from its copy, behind all rounds that it may not know of.
    other, said = start(lab, second, 1, "pod-1-again")
    wait_round(lab, 1001, said, told)
    (lab.directory / "done").touch()
    assert [head.wait(40.0), other.wait(40.0)] == [0, 0], told.read_text() + said.read_text()
    check_gone(lab, [second, later])


def test_pods_of_a_trainjob_meet_before_their_names_are_known(lab: Lab) -> None:
    """Red when node 0 of Trainer's variables is found by its name, which DNS has a while after the pod is there."""
    first, second = hosts = lab.host("a", "b")
    head = "train-node-0-0.train"
    started = []
    for rank, host in enumerate(hosts):
        name_pod(host, rank)
        pet = {"PET_NODE_RANK": str(rank), "PET_MASTER_ADDR": head, "PET_MASTER_PORT": "29500"}
        started.append(start(lab, host, rank, f"pod-{rank}", MEET, **pet))
    until(lambda: head in started[1][1].read_text(), "node 1 looks for node 0")
    until(lambda: "the store listens" in started[0][1].read_text(), "node 0 has the store")
    for rank, host in enumerate(hosts):
        name_pod(host, rank, f"{first.address} {head}")
    assert [waiter.wait(60.0) for waiter, _ in started] == [0, 0], "".join(said.read_text() for _, said in started)
    check_gone(lab, [first, second])
