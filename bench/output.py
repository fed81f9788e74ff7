"""(g) 8 ranks × 50 MB of lines through the console, beside torchrun's --tee 3: how long it takes, and what is lost.

The console is a file. Timed is from the last rank's first line of code to the command's end: torchrun's import of
torch is measured elsewhere. Afterwards each rank's lines are read back: all there, whole, and in order.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from rows import Found, Row, medians
from stage import REMUSTER, TORCHRUN, CannotMeasure, Stage

RANKS = 8
MB = 50
RUNS = 3  # at most: each writes 800 MB twice
LINE = 100
PER_RANK = MB * 1_000_000 // LINE
PATIENCE_S = 600.0
PROGRAMS = {"remuster --tee 3": (*REMUSTER, "--tee", "3"), "torchrun --tee 3": (*TORCHRUN, "--tee", "3")}
SCRIPT = f"""
import os, time
desk = os.open(os.environ["BENCH_DESK"], os.O_WRONLY)
rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
os.write(desk, f"{{rank}} {{world}} {{time.monotonic()!r}} {{os.getpid()}}\\n".encode())
for start in range(0, {PER_RANK}, 500):
    lines = [b"rank %d line %d " % (int(rank), i) for i in range(start, start + 500)]
    data = memoryview(b"".join(line.ljust({LINE - 1}, b".") + b"\\n" for line in lines))
    while data: data = data[os.write(1, data):]
"""
_LINE = re.compile(rb"(?:\[default\d+\]:)?rank (\d) line (\d{1,6}) \.+\Z")


class Shown(NamedTuple):
    """What one run took, how many lines are missing, and how many are not as they were written."""

    s: float
    lost: int
    odd: int


def measure(stage: Stage, runs: int) -> Found:
    """Compare the way from a rank's write to the console."""
    script = stage.folder / "lines.py"
    script.write_text(SCRIPT)
    samples: dict[str, list[Shown]] = {name: [] for name in PROGRAMS}
    for _ in range(min(runs, RUNS)):
        for name, args in PROGRAMS.items():
            samples[name].append(_run(stage, args, script))
    seconds = {name: [one.s for one in series] for name, series in samples.items()}
    lost = {name: sum(one.lost for one in series) for name, series in samples.items()}
    odd = {name: sum(one.odd for one in series) for name, series in samples.items()}
    ours, theirs = PROGRAMS
    if lost[ours] or odd[ours]:
        raise CannotMeasure(f"{ours} lost {lost[ours]} lines, and {odd[ours]} are mixed or out of order")
    s = medians(seconds)
    what = f"{RANKS} ranks x {MB} MB of lines through the console"
    note = f"(g) {theirs}: {lost[theirs]} lines lost, {odd[theirs]} mixed, of {RANKS * PER_RANK * len(samples[ours])}"
    return Found([Row("g", what, s[ours], theirs, s[theirs], "s", at_least=1)], seconds, (note,))


def _run(stage: Stage, args: tuple[str, ...], script: Path) -> Shown:
    console, logs, desk = stage.folder / "console", stage.folder / "logs", stage.desk()
    with console.open("wb") as out:
        began = time.monotonic()
        line = ("--standalone", "--nproc-per-node", str(RANKS), "--log-dir", str(logs), str(script))
        job = stage.start(*args, *line, desk=desk, stdout=out.fileno())
        first_s = desk.first_lines(RANKS, began, [job])
        job.done(PATIENCE_S)
        took_s = time.monotonic() - first_s
    stage.end([job])
    lost, odd = _missing(console)
    shutil.rmtree(logs)
    os.unlink(console)
    return Shown(took_s, lost, odd)


def _missing(console: Path) -> tuple[int, int]:
    """Return how many lines are nowhere, and how many there are that nobody wrote so: mixed, doubled, out of order."""
    seen, last, odd = [bytearray(PER_RANK) for _ in range(RANKS)], [-1] * RANKS, 0
    with console.open("rb") as lines:
        for line in lines:
            match = _LINE.match(line.rstrip(b"\n"))
            if match is not None:
                rank, number = int(match[1]), int(match[2])
                odd += number <= last[rank]
                last[rank] = number
                seen[rank][number] = 1
            else:
                odd += bool(line.strip())
    return sum(one.count(0) for one in seen), odd
