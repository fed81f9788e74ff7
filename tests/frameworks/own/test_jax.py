"""JAX with Orbax, in an environment of its own (make frameworks): kills in run and in save.

Its coordinator is new in every attempt, at MASTER_ADDR:MASTER_PORT. JAX catches SIGTERM and goes on: ranks that wait
for a dead one are killed when the grace is over.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command.cluster import Place
from frameworks.cases import ORBAX
from frameworks.resuming import Bench, built_shim, play

PYTHON = Path(__file__).parents[3] / ".venv-jax" / "bin" / "python"

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-jax; run make frameworks"),
]


def test_goes_on_to_the_last_bit(place: Place, tmp_path: Path) -> None:
    node = play(Bench(place, tmp_path, built_shim(tmp_path), PYTHON), ORBAX)
    first, second, _ = node.records()
    assert first["exit_codes"] == {"0": -9, "1": -9}, "rank 0 heard SIGTERM and went on until it was killed"
    assert (first["verdict"]["rank"], second["verdict"]["rank"]) == (1, 0), node.say()
