"""A drill for each fault of the catalogue: three hosts train with DDP over gloo, ``--nnodes 2:3``, and one is struck.

REMUSTER_FAULTS=docs/faults.md has the table of this run written there.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable

import pytest
from drills.catalogue import FAULTS
from drills.course import Fault, Row, play
from drills.job import Late
from drills.lab import Lab

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="needs torch: pip install -r requirements/train.txt"
    ),
]


@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name, marks=[pytest.mark.soak] * f.soak) for f in FAULTS])
def test_fault(fault: Fault, new_lab: Callable[[], Lab], record_row: Callable[[Row], None]) -> None:
    """See what comes of it. A missed bound is tried once more: the machine may have been busy. The row says so."""
    if missing := [tool for tool in fault.needs if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    try:
        record_row(play(fault, new_lab()))
    except Late as late:
        record_row(play(fault, new_lab())._replace(late_s=late.took_s))
