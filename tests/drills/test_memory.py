"""Drills: memory, shared memory and disks that are full, by the real kernel; and a kill that looks like one of them.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command.cluster import COMMAND, Node, Place
from command.outcome import Expected, check, keep_job
from command.processes import until
from small_disk import fill, small_disk

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups and mounts, which needs root"),
]

V1 = Path("/sys/fs/cgroup/memory")
M = 1 << 20

EATS = """
import os, pathlib, sys, time
if sys.argv[2] == os.environ["RANK"]:
    taken = []
    while True:
        taken.append(bytearray(b"x") * (4 << 20))
(pathlib.Path(sys.argv[1]) / "stands").touch()
time.sleep(60)
"""
LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        %s
if __name__ == "__main__":
    for batch in DataLoader(Rows(), num_workers=1):
        pass
"""
HUNGRY = "taken = [bytearray(b'x') * (1 << 20) for _ in range(1 << 12)]; return torch.zeros(1)"
LARGE = "return torch.zeros(8 << 20)"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "place")
    keep_job(made)
    yield made
    made.close()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of version 1 with a limit, for the whole command: as a scheduler or a container gives it."""
    if not (V1 / "memory.limit_in_bytes").exists():
        pytest.skip("needs the memory controller of cgroup version 1; version 2 is tested in a guest")
    made = V1 / f"remuster-test-{os.getpid()}"
    made.mkdir()
    yield made
    until(lambda: not (made / "cgroup.procs").read_text(), "the cgroup is empty")
    made.rmdir()


def inside(place: Place, cgroup: Path, mebibytes: int, *line: str | Path) -> Node:
    """Start the command in a cgroup with so much memory."""
    (cgroup / "memory.limit_in_bytes").write_text(str(mebibytes * M))
    enter = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), str(COMMAND))
    folder = place.folder / "nodes" / str(len(place.nodes))
    node = Node(folder, ("--log-dir", str(folder / "logs"), *map(str, line)), place.env, place.folder, program=enter)
    place.nodes.append(node)
    return node


def verdict(node: Node) -> dict[str, Any]:
    (record,) = node.records()
    found: dict[str, Any] = record["verdict"]
    return found


@pytest.mark.parametrize("kernel_log", ["/dev/kmsg", "none"])
def test_b30_a_rank_killed_for_memory_is_said_with_numbers(place: Place, cgroup: Path, kernel_log: str) -> None:
    """Red when ``_make_sources`` has no ``OomCounters``: without a kernel log nothing says why."""
    script = place.script("t.py", EATS)
    node = inside(place, cgroup, 400, "--nproc-per-node", "2", "--kernel-log", kernel_log, script, place.desk, "1")
    assert node.exit_code() == 137, node.say()
    found = check(place, Expected("host_oom", 1, "cgroup", first=(1,)))["verdict"]
    assert "1 out-of-memory kill counted for all ranks here (limit 400 MiB, peak 400 MiB)" in found["sentence"]
    named = any(proof["source"] == "kernel log" for proof in found["evidence"])
    assert named == (kernel_log != "none")


def test_b30_a_data_worker_killed_for_memory(place: Place, cgroup: Path) -> None:
    node = inside(place, cgroup, 900, place.script("t.py", LOADER % HUNGRY))
    assert node.exit_code(60.0) != 0, node.say()
    found = check(place, Expected("host_oom", 0, "cgroup", first=(0,)))["verdict"]
    assert "lost a data worker" in found["sentence"]
    assert "limit 900 MiB" in found["sentence"]


def test_b30_a_kill_by_somebody_is_not_taken_for_memory(place: Place) -> None:
    """Red when a kill in another cgroup of the same machine, a moment ago, counts: the kernel's log still has it."""
    node = place.command("--nproc-per-node", "2", place.script("t.py", EATS), place.desk, "none")
    until((place.desk / "stands").exists, "the ranks stand", show=node.say)
    pid = until(lambda: node.ranks().get(1), "there is a rank 1", show=node.say)
    os.kill(pid, signal.SIGKILL)
    assert node.exit_code() == 137, node.say()
    found = check(place, Expected("killed_unknown", 1, "cgroup", first=(1,)))["verdict"]
    assert found["confidence"] == "guess"
    assert found["sentence"].endswith("; the kernel counted no kill for want of memory")


def test_the_kernels_own_device_is_read(place: Place) -> None:
    """A line of a kind that decides nothing: for a minute every job on this machine sees it."""
    line = f"NVRM: Xid (PCI:0000:3b:00): 45, pid={os.getpid()}, name=python, Ch 00000010"
    script = place.script("t.py", EATS)
    node = place.command(script, place.desk, "none")
    until((place.desk / "stands").exists, "the rank stands", show=node.say)
    Path("/dev/kmsg").write_text(f"<4>{line}\n")
    os.kill(until(lambda: node.ranks().get(0), "there is a rank"), signal.SIGKILL)
    node.exit_code()
    (record,) = node.records()
    texts = [fact["text"] for one in record["evidence"] for fact in one["facts"] if fact["is"] == "kernel"]
    assert line in texts
    assert record["verdict"]["class"] == "killed_unknown"


def test_shared_memory_is_full(place: Place) -> None:
    """The data workers of a container that was given the usual small /dev/shm."""
    small = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$0" "$@"', str(COMMAND))
    folder = place.folder / "nodes" / "0"
    script = str(place.script("t.py", LOADER % LARGE))
    node = Node(folder, ("--log-dir", str(folder / "logs"), script), place.env, place.folder, program=small)
    place.nodes.append(node)
    assert node.exit_code(60.0) != 0, node.say()
    check(place, Expected("shm_exhausted", 0, "last lines", first=(0,)))


def test_the_disk_of_a_checkpoint_is_full(place: Place) -> None:
    text = "import sys\nwith open(sys.argv[1], 'wb') as file:\n    file.write(bytes(1 << 24))\n"
    with small_disk(place.folder / "disk", mebibytes=8) as disk:
        fill(disk)
        node = place.command(place.script("t.py", text), disk / "state.pt")
        assert node.exit_code() != 0, node.say()
    check(place, Expected("disk_full_or_io", 0, "last lines", first=(0,)))
