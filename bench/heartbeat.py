"""(i) What one ``remuster.heartbeat`` costs the rank that calls it, on a real page: with loss, gradient norm and rate.

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

def whole(step):
    remuster.heartbeat(step, loss=0.5, grad_norm=1.5, lr=1e-3)

from remuster.worker.beat import _Own
print(timed(whole), timed(remuster.heartbeat), timed(nothing), _Own.heart is not None)
"""


def measure(_stage: Stage, runs: int) -> Found:
    """Time the calls in processes that find the page as ranks do."""
    from remuster.agent.beats import Beats

    ours: list[float] = []
    steps: list[float] = []
    theirs: list[float] = []
    page = Beats(1, 1)
    env = {**os.environ, "REMUSTER_BEATS": page.address(0), "REMUSTER_ROUND": "1"}
    try:
        for _ in range(runs):
            said = subprocess.run([sys.executable, "-c", RANK], env=env, capture_output=True, text=True, check=False)
            words = said.stdout.split()
            if said.returncode or words[3:] != ["True"]:
                raise CannotMeasure(f"no heart was found: {said.stdout}{said.stderr[-500:]}")
            ours.append(float(words[0]))
            steps.append(float(words[1]))
            theirs.append(float(words[2]))
    finally:
        page.close()
    beat, step, bare = (statistics.median(found) for found in (ours, steps, theirs))
    bar = Row("i", "a heartbeat, of the 2 us that it may take", beat, "allowed", MOST_US, "us", at_most=1.0)
    samples = {"heartbeat_us": ours, "step_alone_us": steps, "empty_call_us": theirs}
    return Found([bar], samples, (f"(i) with the step alone: {step:.2f} us; an empty call: {bare:.2f} us",))
