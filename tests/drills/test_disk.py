"""Drills: the disk of the log directory is full on one host, or hangs."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from drills.disk import TOOLS, HungDisk, mount_disk
from drills.job import AT_ONCE, HERE, Job
from drills.lab import Host
from drills.sight import boottime, until

pytestmark = pytest.mark.drill


def test_full_log_directory(job: Job, hosts: list[Host]) -> None:
    """Nothing is blocked: what cannot be kept is said, and a restart of the ranks needs no room."""
    h1, h2, h3 = hosts
    logs = job.lab.directory / "h2-logs"
    h2.sh(f"mkdir -m 700 {logs}; mount -t tmpfs -o size=256k,mode=700 tmpfs {logs}")
    job.start_with_spare(*hosts)
    h2.sh(f"dd if=/dev/zero of={logs}/fill bs=4k 2>/dev/null || true")
    job.steady(1, h1, h2, for_s=1.0)
    (rank,) = job.commands["h1"].ranks
    at = boottime()
    rank.signal(signal.SIGKILL)
    job.check_recovery(at, job.wait_round(2, h1, h2), AT_ONCE)
    job.check_failure(0, "killed_unknown", "h1", "unknown", h1, h3)
    job.finish(h1, h2, h3)
    assert "No space left on device" in job.commands["h2"].said()
    job.check_one_world()
    job.check_nothing_left()


WIDE = 99  # as talk.py writes them


def _said(host: Host, logs: Path) -> tuple[list[int], str]:
    """Return the numbers on the whole lines of the log of the host's rank, and the rest of it."""
    text = host.sh(f"cat {logs}/*/attempt_0/0/stdout.log")
    lines = text.split("\n")
    numbers = [int(line) for line in lines if line.isdecimal() and len(line) == WIDE]
    return numbers, "\n".join(line for line in lines if not line.isdecimal())


@pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {' and '.join(TOOLS)}")
def test_ranks_that_talk_onto_a_disk_that_hangs_go_on(job: Job, hosts: list[Host]) -> None:
    """Red when ranks write their files themselves, as on a disk by default: then they stand as long as it does."""
    h1, h2, _ = hosts
    logs = job.lab.directory / "h2-logs"
    mount_disk(h2, logs, "512M")
    job.script, job.options = HERE / "talk.py", (*job.options, "--log-writer", "agent", "-r", "3")
    job.start(h1, h2)
    job.wait_round(1, h1, h2)
    disk = HungDisk(h2, logs)
    try:
        at = boottime()
        until(lambda: job.last_signs(1)["h2"].at > at + 6.0, "the rank goes on", 30.0)
    finally:
        disk.thaw()
    until(lambda: "its file system hangs" in job.commands["h2"].said(), "it is said")
    job.finish(h1, h2)
    numbers, rest = _said(h2, logs)
    assert "bytes are missing here" in rest, rest[:2000]
    assert numbers == sorted(set(numbers)), "in order, and none twice"
    assert numbers[0] == 0
    job.check_nothing_left()


def test_ranks_that_talk_onto_a_disk_that_is_full_go_on(job: Job, hosts: list[Host]) -> None:
    """Red when ``LogWriter._write`` lets the error out. Whoever makes room (``room.py``) comes before it, or after."""
    h1, h2, _ = hosts
    logs = job.lab.directory / "h2-logs"
    h2.sh(f"mkdir -m 700 {logs}; mount -t tmpfs -o size=1m,mode=700 tmpfs {logs}")
    job.script, job.options = HERE / "talk.py", (*job.options, "--log-writer", "agent", "-r", "3")
    job.start(h1, h2)
    at = job.wait_round(1, h1, h2)
    until(lambda: job.last_signs(1)["h2"].at > at + 2.0, "the rank goes on", 30.0)
    told = ("No space left on device", f"the disk under {logs}")
    until(lambda: any(words in job.commands["h2"].said() for words in told), "it is said")
    job.finish(h1, h2)
    numbers, rest = _said(h2, logs)
    assert numbers[:600] == list(range(600)), "the head is whole"
    assert numbers == sorted(set(numbers)), "in order, and none twice"
    assert "bytes are missing here" in rest, rest[:2000]
    job.check_nothing_left()
