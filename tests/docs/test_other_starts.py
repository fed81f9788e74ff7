"""docs/other-starts.md can be typed: its lines are understood, its scripts are bash, the ssh loop runs and stops."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest
from command.cluster import OUTER, STEADY, Place
from command.processes import MARK, marked, signal_all, until
from etcd_server import free_ports

from remuster.launcher import cli

PAGE = (Path(__file__).parents[2] / "docs" / "other-starts.md").read_text()
BOXES = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HOSTS = f"{socket.gethostname()},192.0.2.7"
WORDS = {"HOSTS": HOSTS, "PWD": ".", "PBS_JOBID": "12.head", "OAR_JOB_ID": "12"}
LINES = [
    " ".join(line.split())
    for box in BOXES
    for line in re.findall(r"\bremuster (--[^\"]*?\.py)", box.replace("\\\n", " "))
]
SSH = """#!/bin/sh
# Stands in for ssh: a host is one of this machine's addresses, and the end of the client is the end of the command.
while [ "${1#-}" != "$1" ]; do shift; done
PET_LOCAL_ADDR=$1; export PET_LOCAL_ADDR; shift
exec /bin/sh -c "$*"
"""


def test_there_are_lines() -> None:
    assert len(BOXES) == 6
    assert len(LINES) == 5


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    argv = shlex.split(Template(line).safe_substitute(WORDS).replace("/shared", str(tmp_path)))
    lsf = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": HOSTS.replace(",", " 8 ") + " 8"} if "--hosts" not in line else {}
    made = []
    assert cli.run(argv, lsf, lambda spec: made.append(spec) or 7) == 7
    assert (made[0].max_nodes, made[0].nproc) == (2, 8)
    assert made[0].embedded is not None


@pytest.mark.parametrize("box", BOXES)
def test_a_script_is_bash(box: str) -> None:
    assert subprocess.run(["bash", "-n"], input=box.encode(), check=False).returncode == 0


@pytest.mark.parametrize("name", ["indexed-job.yaml", "jobset.yaml", "trainjob.yaml"])
def test_a_manifest_is_linked(name: str) -> None:
    assert f"(../examples/k8s/{name})" in PAGE


@pytest.fixture
def loop(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """The ssh loop on two of this machine's addresses, with ranks that stand."""
    place.script("ssh", SSH).chmod(0o755)
    (box,) = (box for box in BOXES if "ssh -tt" in box and "oarsh" not in box)
    place.script("train.py", STEADY.read_text())
    line = box.replace("node1,node2,node3", "127.0.0.2,127.0.0.3").replace("/shared", str(place.folder))
    script = place.script("loop.sh", line.replace("train.py", f"train.py {place.desk}").replace("-node 8", "-node 1"))
    conf = f"lease_ttl=4,kill_bound=1,etcd_port={free_ports(1)[0]}"
    path = os.pathsep.join([str(place.folder), str(Path(sys.executable).parent), OUTER["PATH"]])
    env = {**place.env, "PATH": path, "PET_RDZV_CONF": conf, MARK: str(place.folder)}
    made = subprocess.Popen(["bash", str(script)], env=env, cwd=place.folder)
    yield made
    until(lambda: not [signal_all(marked(str(place.folder)))] or not marked(str(place.folder)), "cleaning up")
    made.wait()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


@pytest.mark.process
def test_the_ssh_loop_runs_a_job_to_its_end(place: Place, loop: subprocess.Popen[bytes]) -> None:
    place.wait_round(1, 2)
    place.order("done")
    assert loop.wait(30) == 0


@pytest.mark.process
def test_the_ssh_loop_is_stopped(place: Place, loop: subprocess.Popen[bytes]) -> None:
    said = place.wait_round(1, 2)
    loop.send_signal(signal.SIGTERM)
    assert loop.wait(30) == 128 + signal.SIGTERM
    until(lambda: not any(Path(f"/proc/{one['pid']}").exists() for one in said.values()), "the ranks are gone")
    assert (place.desk / "round-1" / "term-0").exists()  # they had their grace
