"""(i) What one ``remuster.heartbeat(step)`` costs the rank that calls it, on a real page.

A program of its own stands in for the rank, as the loop of a training script would: 200 000 calls, the median of its
runs. The bar is two microseconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from rows import Found, Row
from stage import CannotMeasure, Stage

CALLS = 200_000
MOST_US = 2.0
RANK = f"""
import time
import remuster

def nothing(step):
    pass

def timed(call):
    call(0)
    began = time.perf_counter()
    for step in range({CALLS}):
        call(step)
    return (time.perf_counter() - began) / {CALLS} * 1e6

from remuster.worker.beat import _Own
print(timed(remuster.heartbeat), timed(nothing), _Own.heart is not None)
"""


def measure(_stage: Stage, runs: int) -> Found:
    """Time the calls in processes that find the page as ranks do."""
    from remuster.agent.beats import Beats

    ours: list[float] = []
    theirs: list[float] = []
    page = Beats(1, 1)
    env = {**os.environ, "REMUSTER_BEATS": page.address(0), "REMUSTER_ROUND": "1"}
    try:
        for _ in range(runs):
            said = subprocess.run([sys.executable, "-c", RANK], env=env, capture_output=True, text=True, check=False)
            words = said.stdout.split()
            if said.returncode or words[2:] != ["True"]:
                raise CannotMeasure(f"no heart was found: {said.stdout}{said.stderr[-500:]}")
            ours.append(float(words[0]))
            theirs.append(float(words[1]))
    finally:
        page.close()
    beat, bare = statistics.median(ours), statistics.median(theirs)
    bar = Row("i", "a heartbeat, of the 2 us that it may take", beat, "allowed", MOST_US, "us", at_most=1.0)
    return Found([bar], {"heartbeat_us": ours, "empty_call_us": theirs}, (f"(i) an empty call: {bare:.2f} us",))
