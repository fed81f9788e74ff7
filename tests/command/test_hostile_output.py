"""Output that consoles choke on: bars at fifty a second, characters in pieces, no character at all, no line end ever.

Each docstring says what was broken in a copy of the product to see the test fail.
"""

from __future__ import annotations

import os
import re

import pytest
from command.cluster import Node, Place
from command.processes import read, until

pytestmark = pytest.mark.process

MIB = 64  # an agent at rest has 25 or so, of which half are the interpreter's

BARS = """
import os, sys, time
r, seconds = int(os.environ["RANK"]), float(sys.argv[1])
kept = open(f"written-{r}", "wb", buffering=0)
def write(data):
    os.write(2, data); kept.write(data)
glyph = "█".encode()
for i in range(int(50 * seconds)):
    write(b"\\r%3d%%|" % (100 * i // (50 * seconds)) + glyph[: 1 + i % 2])
    time.sleep(0.02)
    write(glyph[1 + i % 2:] + b"| \\x1b[32mrank %d\\x1b[0m caf\\xe9" % r)
    if i % 100 == 99:
        write(b"\\n\\xff\\xfe loss of rank %d is 1.0\\n" % r)
write(b"\\r100%% of rank %d\\n" % r)
"""


def held_mib(node: Node) -> float:
    """Return the most memory that the agent has had."""
    (peak,) = re.findall(rb"^VmHWM:\s+(\d+) kB", read(node.agent, "status"), re.M)
    return int(peak) / 1024


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.drill)])
def test_b13_progress_bars(place: Place, seconds: int) -> None:
    """Red when every drawing is shown (``feed`` in splice.py taking to the last return), and when none is."""
    node = place.command("--nproc-per-node", "2", place.script("t.py", BARS), str(seconds))
    for rank in (0, 1):
        until((place.folder / f"written-{rank}").exists, "the ranks draw", show=place.say)
    peak = held_mib(node)
    assert node.exit_code(seconds + 30) == 0, node.say()
    raw = (node.folder / "stderr").read_bytes()
    for rank in (0, 1):
        log = (node.run_dir / "attempt_0" / str(rank) / "stderr.log").read_bytes()
        assert log == (place.folder / f"written-{rank}").read_bytes()
        assert raw.count(b"100%% of rank %d\n" % rank) == 1
        assert raw.count(b"loss of rank %d is 1.0\n" % rank) == seconds // 2
        assert raw.count(b"rank %d\x1b[0m" % rank) >= seconds // 2
    drawn = len(re.findall(rb"rank [01]\x1b\[0m", raw))
    assert 4 * seconds < drawn < 15 * seconds + 10, "of 100 in a second"
    assert raw.count(b"\n") < 10 * seconds + 40
    assert not re.search(rb"\xe2(?!\x96\x88)|(?<!\xe2\x96)\x88", raw), "a character is cut in two"
    assert peak < MIB


WITHOUT_END = """
import os, sys, time
if os.environ["RANK"] == "0":
    block = (b"no end " * 149797)[:1 << 20]
    begun = time.monotonic()
    for _ in range(int(sys.argv[1])):
        left = memoryview(block)
        while left: left = left[os.write(1, left):]
    open(".ended", "w").write(str(time.monotonic() - begun))
    os.rename(".ended", "ended")
"""


@pytest.mark.parametrize(
    ("ranks", "mib"),
    [(2, 128), *(pytest.param(ranks, 1024, marks=pytest.mark.drill) for ranks in (1, 2))],
)
def test_a_gibibyte_without_a_line_end(place: Place, ranks: int, mib: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody reads the console meanwhile. Red when what waits for it has no bound (``has_room`` in console.py)."""
    reader, writer = os.pipe()
    script = place.script("t.py", WITHOUT_END)
    node = place.command("--nproc-per-node", str(ranks), script, str(mib), stdout=writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        until((place.folder / "ended").exists, "the rank has written all", show=place.say)
        took_s = float((place.folder / "ended").read_text())
        log = node.run_dir / "attempt_0" / "0" / "stdout.log"
        assert log.stat().st_size == mib << 20
        shown, peak = 0, 0.0
        while data := pipe.read1(1 << 20):
            shown += len(data)
            peak = peak or (shown >= mib << 19 and held_mib(node))  # it has had time to read ahead
    assert shown >= mib << 20
    assert node.exit_code() == 0, node.say()
    log.unlink()
    with capsys.disabled():
        print(f" [{mib} MiB in {took_s:.2f} s, {shown >> 20} MiB shown; the agent held {peak:.1f} MiB] ", end="")
    assert peak < MIB


@pytest.mark.drill
def test_a_gibibyte_without_a_line_end_on_a_terminal(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal is looked at only when the rank has ended."""
    screen, command = os.openpty()
    node = place.command(place.script("t.py", WITHOUT_END), "1024", terminal=command)
    os.close(command)
    until((place.folder / "ended").exists, "the rank has written all", 120)
    peak, took_s = held_mib(node), float((place.folder / "ended").read_text())
    log = node.run_dir / "attempt_0" / "0" / "stdout.log"
    try:
        while os.read(screen, 1 << 16):
            pass
    except OSError:
        os.close(screen)
    assert node.exit_code() == 0
    assert log.stat().st_size == 1 << 30
    log.unlink()
    with capsys.disabled():
        print(f" [1024 MiB in {took_s:.2f} s; the agent held {peak:.1f} MiB] ", end="")
    assert peak < MIB
