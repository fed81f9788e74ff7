"""(f) The store: latencies of our client and joins of many agents, beside the same operations of bare gRPC.

Both run in a process of their own (``store_calls.py``, ``joins.py``), against an etcd with the settings it comes with.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

from rows import Found, Row, medians
from stage import HERE, CannotMeasure, Stage

CALLS = 200
AGENTS = (64, 256)
PATIENCE_S = 300.0


def measure(stage: Stage, runs: int) -> Found:
    """Compare single calls, and joins of 64 and 256 agents."""
    calls = _run(stage, "store_calls.py", CALLS)
    ms = medians(calls)
    rows = [
        Row("f", f"etcd, {what}, median of {CALLS}", ms[f"{kind}, ours"], "bare gRPC", ms[f"{kind}, bare"], "ms")
        for kind, what in (("put", "put"), ("txn", "create if absent"), ("watch", "put to watch"))
    ]
    joins = {}
    for agents in AGENTS:
        joins[agents] = found = _run(stage, "joins.py", agents, runs)
        s = medians({"ours": found["ours"], "bare": found["bare"]})
        what = f"join of {agents} simulated agents"
        rows.append(Row("f", what, s["ours"], "the same, bare", s["bare"], "s", at_most=3))
    tails = ", ".join(f"{name} {statistics.quantiles(series, n=100)[98]:.2f}" for name, series in calls.items())
    return Found(rows, {"calls_ms": calls, "joins_s": joins}, (f"(f) 99th percentiles, ms: {tails}",))


def _run(stage: Stage, program: str, *args: int) -> dict[str, Any]:
    endpoint = f"127.0.0.1:{stage.etcd()}"
    job = stage.start(str(HERE / program), endpoint, *map(str, args), stdout=subprocess.PIPE)
    assert job.process.stdout is not None
    with job.process.stdout as out:
        said = out.read()
    job.done(PATIENCE_S)
    stage.end([job])
    try:
        found: dict[str, Any] = json.loads(said)
    except ValueError:
        raise CannotMeasure(f"{program} said {said[-500:]!r}\n{job.said()}") from None
    return found
