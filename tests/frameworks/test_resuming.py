"""Unchanged scripts go on from their framework's own checkpoint, to the last bit, after kills in run and in save.

None of them knows remuster: what they resume from is an argument that ``--checkpoint-arg`` makes. The shim kills at an
exact operation, so what the second kill leaves is a real torn checkpoint of that framework (docs/frameworks.md).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command.cluster import Place
from frameworks.cases import CASES
from frameworks.resuming import Bench, Case, built_shim, play

PYTHON = Path(__file__).parents[2] / ".venv-frameworks" / "bin" / "python"

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-frameworks; run make .venv-frameworks/stamp"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What kills ranks."""
    return built_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder in memory. If the checkpoints are on a disk, Lightning's last move is a copy then, and can be torn."""
    made = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_goes_on_to_the_last_bit(case: Case, place: Place, tmp_path: Path, shim: Path, elsewhere: Path) -> None:
    if case.name == "Lightning":
        if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("a torn file of Lightning's needs two file systems: /dev/shm, and another for the tests' files")
        case = replace(case, env={"TMPDIR": str(elsewhere)})
    play(Bench(place, tmp_path, shim, PYTHON), case)
