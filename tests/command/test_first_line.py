"""A rank's first line is on the console many times sooner than with torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command.figures import FIGURE

pytestmark = [pytest.mark.process, pytest.mark.timing]

BENCH = Path(__file__).parents[2] / "bench" / "first_line.py"
PAIRS = 5
LEAST = 8.0


def test_the_first_line_is_there_many_times_sooner(record_property: Callable[[str, object], None]) -> None:
    done = subprocess.run([sys.executable, BENCH, str(PAIRS)], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = found["remuster_shown_ms"], found["torchrun_shown_ms"]
    figures = f"{ours:.0f} ms, torchrun {theirs:.0f} ms: {found['ratio_shown']:.1f} times sooner"
    record_property(FIGURE, f"first line on the console, medians of {PAIRS} pairs: {figures}")
    assert found["ratio_shown"] >= LEAST, done.stdout
