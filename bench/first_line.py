"""(a) How soon a rank's first line is on the console: remuster beside torchrun, an empty chain, and a bare Python.

Alternating runs, so that other work on the machine meets all of them alike; one round before that warms the caches and
is not counted. The script prints the clock, so both moments come from one run. Also a program of its own,
``python bench/first_line.py [RUNS]``, whose last line is JSON: tests/command/test_first_line.py reads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from rows import Found, Row, medians
from stage import HERE, REMUSTER, TORCHRUN, CannotMeasure, Stage

RUNS = 7
SCRIPT = "import os, time\nos.write(1, b'%f\\n' % time.monotonic())\n"
CHAIN = str(HERE / "empty_chain.py")
ARGS = {
    "python": ("-u",),
    "empty chain": (CHAIN, "2"),
    "empty chain with a loop": (CHAIN, "--loop", "2"),
    "remuster": (*REMUSTER, "--standalone", "--nproc-per-node", "2"),
    "torchrun": (*TORCHRUN, "--standalone", "--nproc-per-node", "2"),
}
WHAT = ("ran", "shown", "ended")
Sample = tuple[float, float, float]  # s from the start: the first rank ran, its line was shown, the command had ended


def measure(stage: Stage, runs: int) -> Found:
    """Compare the starts of one node with two ranks."""
    samples = alternate(stage, runs)
    shown = {name: [one[1] for one in series] for name, series in samples.items()}
    s = medians(shown)
    what = "command to first line, 1 node, 2 ranks"
    rows = [
        Row("a", what, s["remuster"], "torchrun", s["torchrun"], "s", at_least=8),
        Row("a", what, s["remuster"], "empty chain", s["empty chain"], "s", at_most=1.5),
        Row("a", what, s["remuster"], "empty chain, agent imports asyncio", s["empty chain with a loop"], "s"),
    ]
    note = f"(a) a bare Python's first line is there after {1000 * s['python']:.1f} ms"
    return Found(rows, {name: _columns(series) for name, series in samples.items()}, (note,))


def alternate(stage: Stage, runs: int) -> dict[str, list[Sample]]:
    """Run all commands in turn, ``runs`` times."""
    samples: dict[str, list[Sample]] = {name: [] for name in ARGS}
    script = stage.folder / "trivial.py"
    script.write_text(SCRIPT)
    for i in range(runs + 1):
        for name, args in ARGS.items():
            sample = _time(stage, (*args, str(script)), script.parent)
            if i:
                samples[name].append(sample)
    return samples


def _columns(series: list[Sample]) -> dict[str, list[float]]:
    return {what: [one[i] for one in series] for i, what in enumerate(WHAT)}


def _time(stage: Stage, args: tuple[str, ...], cwd: Path) -> Sample:
    """Run one command and time it."""
    began = time.monotonic()
    job = stage.start(*args, stdout=subprocess.PIPE)
    assert job.process.stdout is not None
    with job.process.stdout as out:
        first = out.readline()
        shown = time.monotonic()
        rest = out.readlines()
    job.done()
    ended = time.monotonic()
    stage.end([job])
    if not first:
        raise CannotMeasure(f"{job.process.args!r} wrote nothing\n{job.said()}")
    ran = min(float(line) for line in [first, *rest])
    return ran - began, shown - began, ended - began


def main(arguments: list[str]) -> None:
    runs = int(arguments[0]) if arguments else RUNS
    with Stage() as stage:
        samples = alternate(stage, runs)
    found: dict[str, float] = {}
    print(f"{f'medians of {runs} alternating runs':34}{'rank runs':>11}{'first line':>12}{'ended':>9}   ms")
    for name, series in samples.items():
        ms = [1000 * value for value in medians(_columns(series)).values()]
        found |= {f"{name}_{what}_ms": round(value, 1) for what, value in zip(WHAT, ms, strict=True)}
        print(f"{name:34}{ms[0]:11.0f}{ms[1]:12.0f}{ms[2]:9.0f}")
    found |= {f"ratio_{what}": round(found[f"torchrun_{what}_ms"] / found[f"remuster_{what}_ms"], 2) for what in WHAT}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
