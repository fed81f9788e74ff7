"""``remuster check`` by the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


def check(*args: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "remuster", "check", *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_node_that_can_take_part(tmp_path: Path) -> None:
    done = check("--log-dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "This node can take part" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110


def test_a_node_that_cannot_and_why(tmp_path: Path) -> None:
    done = check("--log-dir", tmp_path, "--json", "--run", "sh -c 'echo fan 3 is dead; exit 4'")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["passed"] is False
    assert answer["sentence"] == "sh: fan 3 is dead"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--gpus", "many"), "not a valid integer"),
        (("--run", "sh -c 'x"), "cannot be split"),
        (("--run", " "), "empty"),
        (("--deeper",), "no such option"),
    ],
)
def test_wrong_usage(args: tuple[str, ...], says: str) -> None:
    done = check(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.drill
def test_deep_with_real_torch(tmp_path: Path) -> None:
    """A drill by its time: torch is imported, and a machine with two cores fills memory for seconds."""
    done = check("--log-dir", tmp_path, "--deep", "--json")
    found = {(f["check"], f["what"]): f["state"] for f in json.loads(done.stdout)["findings"]}
    assert ("deep", "GPUs") in found or found["memory", "cpu"] == found["arithmetic", "cpu"] == "ok"


ON_RDMA = """
mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/ports/1 || exit 2
cd /sys/class/infiniband/mlx5_0/ports/1
echo 4: ACTIVE > state; echo 5: LinkUp > phys_state; cd /; exec "$0" "$@"
"""
BROKEN = """#!/bin/sh
case "$*" in *127.0.0.1) echo ' Completion with error at client' >&2; exit 1;; esac
exec sleep 600
"""


@pytest.mark.drill
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system is put over /sys/class")
def test_a_port_that_cannot_send_to_itself(tmp_path: Path) -> None:
    """A mount namespace gives the command an RDMA device; the tool stands for ib_write_bw, for no hardware is here."""
    (tmp_path / "ib_write_bw").write_text(BROKEN)
    (tmp_path / "ib_write_bw").chmod(0o700)
    argv = [sys.executable, "-m", "remuster", "check", "--deep", "--python", "/bin/true", "--log-dir", str(tmp_path)]
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["unshare", "-m", "sh", "-c", ON_RDMA, *argv]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 1, done.stdout + done.stderr
    first = done.stdout.splitlines()[0]
    assert first == "bad     mlx5_0 port 1: a transfer over it to itself failed: Completion with error at client"
