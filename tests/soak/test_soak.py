"""One hour of random real faults under a real training run, and nothing that grows: ``make soak``.

Runs of the digits example follow each other, on an etcd of one durable member and on one of three by turns. Faults
come in bursts; after each the job must commit a newer step by itself, and after each run its weights must be those of
the uninterrupted one, bit for bit. REMUSTER_SOAK_S shortens it, REMUSTER_SOAK_SEED repeats its faults,
REMUSTER_SOAK_SUMMARY names a file for its summary (docs/soak.md). What is injected is real; when it comes is not to
the millisecond what the seed says, so a seed repeats the plan and not every race.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak.hour import Soak

SOAK_S = float(os.environ.get("REMUSTER_SOAK_S", "3600"))
SEED = os.environ.get("REMUSTER_SOAK_SEED") or os.urandom(4).hex()
SUMMARY = os.environ.get("REMUSTER_SOAK_SUMMARY")
BESIDES_S = 2400.0  # the uninterrupted run, the end of the last run, and a slow machine


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + BESIDES_S)
def test_soak(tmp_path: Path) -> None:
    print(f"soak of {SOAK_S:g} s, REMUSTER_SOAK_SEED={SEED}", flush=True)
    soak = Soak(tmp_path, SEED, SOAK_S)
    try:
        soak.go()
    finally:
        soak.close()
        if SUMMARY is not None:
            Path(SUMMARY).write_text(soak.report.render())
