"""The command on a disk that is full: its ranks go on, and what is kept of their logs is what they wrote."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command.cluster import Node, Place
from command.processes import until
from small_disk import fill, small_disk

pytestmark = pytest.mark.process

M = 1 << 20
MARK = re.compile(rb"\n\[remuster: (\d+) bytes are missing here: ([^\]]+)\] *\n")
SAID = "the disk under %s is full: ranks go on"

# Writes so many MiB of numbered lines, at so many a second.
WRITER = """
import os, sys, time
whole, rate = int(sys.argv[1]) << 20, int(sys.argv[2]) << 20
begun, sent = time.monotonic(), 0
while sent < whole:
    sent += os.write(1, b"".join(b"%015d\\n" % i for i in range(sent // 16, sent // 16 + 1024)))
    time.sleep(max(0.0, sent / rate - (time.monotonic() - begun)))
"""
# Writes before any interpreter has begun; lives on while the disk is full, and is started again on it.
AT_ONCE = f"""
echo "first word of $TORCHELASTIC_RESTART_COUNT" || exit 9
exec {sys.executable} "$@"
"""
TWICE = """
import os, pathlib, sys, time
attempt, desk = os.environ["TORCHELASTIC_RESTART_COUNT"], pathlib.Path(sys.argv[1])
for i in range(150):
    os.write(1, b"%015d\\n" % i * 1024)
    time.sleep(0.005)
(desk / attempt).touch()
while attempt == "0" and not (desk / "go").exists():
    time.sleep(0.01)
print("last word of", attempt, flush=True)
sys.exit(attempt == "0")
"""


def lines(size: int) -> bytes:
    return b"".join(b"%015d\n" % i for i in range(size // 16))


def check_log(log: Path, whole: bytes, why: bytes) -> tuple[int, int]:
    """Check that a log is byte-exact around its hole and holds nothing beyond its end; return what is kept."""
    written = log.read_bytes()
    assert len(written) == len(whole)
    (mark,) = MARK.finditer(written)
    assert mark[2] == why
    end = mark.start() + int(mark[1])
    assert written[: mark.start()] == whole[: mark.start()]
    assert written[end:] == whole[end:]
    kept = mark.end() + len(whole) - end
    assert log.stat().st_blocks * 512 <= kept + 128 * 1024, "the reserve has not been given back"
    return mark.start(), len(whole) - end


def logs(disk: Path, attempt: int = 0) -> list[Path]:
    (run,) = disk.glob("*_*")
    return sorted((run / f"attempt_{attempt}").glob("*/stdout.log"))


def only_one_warning(node: Node, disk: Path) -> bool:
    (run,) = disk.glob("*_*")
    return node.err.count(SAID % str(run)) == 1


@pytest.mark.drill  # alone on the machine: ranks that are faster than the thread that makes room meet the full disk
@pytest.mark.parametrize(("kind", "room", "each"), [("tmpfs", 32, 40), ("ext4", 64, 100)])
def test_ranks_write_more_than_a_disk_holds(place: Place, kind: str, room: int, each: int) -> None:
    """Red when ``Crew.start`` does not have the room kept, when holes are shown, and when the reserve stays."""
    with small_disk(place.folder / "disk", kind, room) as disk:
        line = ("--nproc-per-node", "2", "--log-dir", disk, "-r", "1:3")
        node = place.command(*line, place.script("t.py", WRITER), str(each), "50")
        assert node.exit_code(60.0) == 0, node.say()[-3000:]
        assert only_one_warning(node, disk)
        assert b"\0" not in node.out
        whole = lines(each * M)
        for log in logs(disk):
            head, tail = check_log(log, whole, b"the disk was full")
            assert head >= M - 200
            assert tail >= 8 * M


def test_a_limit_bounds_each_log(place: Place) -> None:
    """Red when ``--log-limit`` does not reach ``Room``."""
    node = place.command("--log-limit", "2M", "-r", "3", place.script("t.py", WRITER), "10", "20")
    assert node.exit_code() == 0, node.say()
    (log,) = logs(node.log_dir)
    head, tail = check_log(log, lines(10 * M), b"the log had reached its limit")
    assert head + tail <= 2 * M
    assert head > 200_000
    assert tail > 700_000


@pytest.mark.drill  # alone, as above
def test_a_round_starts_again_on_a_full_disk(place: Place) -> None:
    """Red when the reserve of the round before is given back only once the new ranks run (``_room_at_once``)."""
    with small_disk(place.folder / "disk") as disk:
        line = ("--max-restarts", "1", "-r", "3", "--log-dir", disk, "--no-python", "/bin/sh")
        node = place.command(*line, place.script("t.sh", AT_ONCE), place.script("t.py", TWICE), place.desk)
        until(lambda: list(disk.glob("*_*/attempt_0/0/stdout.log")), "the rank has begun", show=node.say)
        until(lambda: logs(disk)[0].stat().st_size > M // 2, "it writes", show=node.say)
        fill(disk)
        until((place.desk / "0").exists, "it has written all", show=node.say)
        fill(disk)
        (place.desk / "go").touch()
        assert node.exit_code() == 0, node.say()
        assert only_one_warning(node, disk)
        for attempt in (0, 1):
            (log,) = logs(disk, attempt)
            written = log.read_bytes()
            assert written.startswith(b"first word of %d\n" % attempt)
            assert written.endswith(b"last word of %d\n" % attempt)
