"""(e) 64 ranks on one node: from the command to the first line of the last, beside 64 bare spawns of the same Python.

The spawns are a loop of posix_spawn in the bench itself: no command is started for them, and nobody waits for one
before the next. Each leads a session, as ranks do: the kernel shares the cores out by session. Every interpreter says
when it came to its first line, by its own clock, and ends at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rows import Found, Row, medians
from stage import DESK, HERE, REMUSTER, TORCHRUN, Desk, Stage

RANKS = 64
SCRIPT = (str(HERE / "rank.py"), "end")
ARGS = ("--standalone", "--nproc-per-node", str(RANKS), *SCRIPT)


def measure(stage: Stage, runs: int) -> Found:
    """Compare many ranks with as many spawns."""
    desk = stage.desk()
    programs: dict[str, Callable[[], float]] = {
        "remuster": lambda: _command(stage, desk, REMUSTER),
        "bare spawns": lambda: _spawns(stage, desk),
        "torchrun": lambda: _command(stage, desk, TORCHRUN),
    }
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for i in range(runs + 1):
        for name, run in programs.items():
            took_s = run()
            if i:
                samples[name].append(took_s)
    s = medians(samples)
    what = f"command to all first lines, {RANKS} ranks"
    rows = [
        Row("e", what, s["remuster"], f"{RANKS} bare spawns", s["bare spawns"], "s", at_most=2),
        Row("e", what, s["remuster"], "torchrun", s["torchrun"], "s"),
    ]
    return Found(rows, dict(samples))


def _command(stage: Stage, desk: Desk, args: tuple[str, ...]) -> float:
    began = time.monotonic()
    job = stage.start(*args, *ARGS, desk=desk)
    took_s = desk.first_lines(RANKS, began, [job]) - began
    job.done()
    stage.end([job])
    return took_s


def _spawns(stage: Stage, desk: Desk) -> float:
    environs = [
        {**stage.env, DESK: str(desk.path), "RANK": str(rank), "WORLD_SIZE": str(RANKS)} for rank in range(RANKS)
    ]
    began = time.monotonic()
    pids = [os.posix_spawn(stage.python, [stage.python, "-u", *SCRIPT], env, setsid=True) for env in environs]
    took_s = desk.first_lines(RANKS, began, []) - began
    for pid in pids:
        os.waitpid(pid, 0)
    return took_s
