"""What the kernel's log says of a failure, by the real command and a named pipe in the log's place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Node, Place
from command.outcome import Expected, check, keep_job
from command.processes import until

pytestmark = pytest.mark.process

XID = "Nov 30 03:48:33 node7 kernel: [ 1173.103843] NVRM: Xid (PCI:0000:3b:00): %d, pid=7, name=python, %s\n"
# Says that it stands, then dies of the order, without a word.
STANDS = """
import os, pathlib, signal, sys, time
desk = pathlib.Path(sys.argv[1])
(desk / "stands").touch()
while not (desk / "die").exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGABRT)
"""


def started(place: Place, *line: str | Path) -> tuple[Node, Path]:
    """Start a rank under a kernel log that is a pipe; return both once the pipe is read."""
    keep_job(place)
    pipe = place.folder / "kernel-log"
    os.mkfifo(pipe)
    node = place.command("--kernel-log", pipe, *line, place.script("t.py", STANDS), place.desk)
    until((place.desk / "stands").exists, "the rank stands", show=node.say)
    return node, pipe


def write(pipe: Path, text: str) -> None:
    """Write as a log daemon does, once somebody reads."""

    def opened() -> int:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return 0

    fd = until(opened, "the log is read")
    os.write(fd, text.encode())
    os.close(fd)


def kernel_lines(record: dict[str, Any]) -> list[str]:
    return [fact["text"] for node in record["evidence"] for fact in node["facts"] if fact["is"] == "kernel"]


@pytest.mark.parametrize(
    ("code", "text", "cls"),
    [(79, "GPU has fallen off the bus.", "gpu_lost"), pytest.param(48, "DBE", "gpu_ecc", marks=pytest.mark.drill)],
)
def test_a_hard_line_ends_a_round_whose_ranks_live(place: Place, code: int, text: str, cls: str) -> None:
    """Red when ``KernelLog`` posts no alarm: the rank stands for ever."""
    node, pipe = started(place)
    write(pipe, XID % (code, text))
    assert node.exit_code() == 75, node.say()
    record = check(place, Expected(cls, 0, "kernel log", action="aside"))
    assert kernel_lines(record) == [(XID % (code, text)).partition("] ")[2].strip()]


@pytest.mark.parametrize(
    ("code", "text", "cls"),
    [
        (31, "Ch 00000008, intr 00000000. MMU Fault", "gpu_app_fault"),
        (94, "Contained: SM (0x1). RST: No, D-RST: No", "gpu_ecc_contained"),
        (45, "Ch 00000010", "exit_unknown"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "gpu_driver_hang"),
    ],
)
def test_a_line_that_ranks_survive_explains_their_end(place: Place, code: int, text: str, cls: str) -> None:
    node, pipe = started(place)
    write(pipe, XID % (code, text))
    (place.desk / "die").touch()
    node.exit_code()
    source, action = ("kernel log", "aside") if code == 154 else ("exit status" if code == 45 else "kernel log", None)
    record = check(place, Expected(cls, 0, source, action=action, first=(0,)))
    assert len(kernel_lines(record)) == 1


def test_none_reads_no_log_and_lacks_none(place: Place) -> None:
    node = place.command("--kernel-log", "none", place.script("t.py", STANDS), place.desk)
    (place.desk / "die").touch()
    node.exit_code()
    (record,) = node.records()
    assert "kernel log" not in node.err
    assert not any("kernel log" in lacked for lacked in record["verdict"]["lacked"])


def test_a_log_that_is_not_there_is_said_once_and_named_in_the_verdict(place: Place) -> None:
    line = ("--kernel-log", place.folder / "missing", "--max-restarts", "1")
    node = place.command(*line, place.script("t.py", STANDS), place.desk)
    (place.desk / "die").touch()
    node.exit_code()
    assert node.err.count("no evidence from kernel log: ") == 1, node.say()
    for record in node.records():
        assert any(lacked.startswith("kernel log on ") for lacked in record["verdict"]["lacked"])
