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
from frameworks.resuming import Bench, Case, Kill, built_shim, play

PYTHON = Path(__file__).parents[2] / ".venv-frameworks" / "bin" / "python"

pytestmark = [pytest.mark.drill, pytest.mark.timeout(900)]

CASES = [
    Case(
        name="DDP with torch.save",
        script="saves_ddp.py",
        argument="--resume={path}",
        format="torch",
        torn=Kill(0, "half", 2, "step-15.pt"),
        refused="step-15.pt",
        reason="no whole file",
    ),
    Case(
        name="FSDP2 with DCP",
        script="saves_fsdp2.py",
        argument="--resume={path}",
        format="dcp",
        torn=Kill(1, "half", 1, "step-15/__1_0"),
        refused="step-15",
        reason="'.metadata' is missing",
    ),
    Case(
        name="FSDP2 with DCP, async_save",
        script="saves_fsdp2.py",
        argument="--resume={path}",
        format="dcp",
        torn=Kill(0, "rename", 1, "step-15/.metadata"),
        refused="step-15",
        reason="the save did not come to its end",
        env={"ASYNC_SAVE": "1"},
        resumed_at=(5, 10),
    ),
    Case(
        name="Accelerate",
        script="saves_accelerate.py",
        argument="--resume_from_checkpoint={path}",
        format="accelerate",
        torn=Kill(1, "open", 1, "checkpoint_15/random_states_1"),
        refused="checkpoint_15",
        reason="random_states_1.pkl",
    ),
    Case(
        name="Lightning",
        script="saves_lightning.py",
        argument="--ckpt_path={path}",
        format="lightning",
        torn=Kill(0, "half", 1, "step=15.ckpt"),
        refused="epoch=0-step=15.ckpt",
        reason="no whole file",
    ),
    Case(
        name="Transformers Trainer",
        script="saves_transformers.py",
        argument="--resume_from_checkpoint={path}",
        format="transformers",
        torn=Kill(0, "open", 1, "checkpoint-15/trainer_state.json"),
        refused="checkpoint-15",
        reason="trainer_state.json",
    ),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What kills ranks."""
    return built_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than the checkpoints: Lightning's last move is a copy then, and can be torn."""
    made = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if made.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("a torn file of Lightning's needs two file systems: /dev/shm, and another for the tests' files")
        yield made
    finally:
        shutil.rmtree(made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_goes_on_to_the_last_bit(case: Case, place: Place, tmp_path: Path, shim: Path, elsewhere: Path) -> None:
    bench = Bench(place, tmp_path, shim, PYTHON)
    play(bench, case if case.name != "Lightning" else replace(case, env={"TMPDIR": str(elsewhere)}))
