"""Scripts of the training frameworks find here what they look for: ranks, world, backend, and that they were launched.

Small, but the real packages, from ``.venv-frameworks``; the command itself stays in the tests' own environment.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command.cluster import Node, Place

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).with_name("scripts")
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
PACKAGES = ("accelerate", "lightning", "transformers", "torch")
STEPS, WORLD = 8, 2
PATIENCE_S = 240.0  # two ranks import torch and a framework: ten seconds, and many times that on a busy machine

pytestmark = [pytest.mark.drill, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    """Skip where the frameworks are not, with what is missing and how to get it."""
    how = "; run make .venv-frameworks/stamp"
    if not PYTHON.exists():
        pytest.skip(f"there is no {PYTHON.relative_to(ROOT)}{how}")
    look = f"import importlib.util as u; print(*[n for n in {PACKAGES!r} if u.find_spec(n) is None])"
    done = subprocess.run([PYTHON, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    if done.stdout.strip():
        pytest.skip(f"{PYTHON.relative_to(ROOT)} lacks {done.stdout.strip()}{how}")


def start(place: Place, script: str, out: Path, *more: str | Path, flags: tuple[str | Path, ...] = ()) -> Node:
    """Start a script of this folder with two ranks, which run the frameworks' Python."""
    out.mkdir()
    env = {"PYTHON_EXEC": str(PYTHON), "HF_HUB_OFFLINE": "1", "ACCELERATE_MIXED_PRECISION": "bf16"}
    return place.command("--nproc-per-node", str(WORLD), *flags, SCRIPTS / script, out, *more, env=env)


def heard(node: Node, out: Path) -> list[Mapping[str, Any]]:
    """Wait for the command's good end, and return what its ranks said, in their order."""
    assert node.exit_code(PATIENCE_S) == 0, node.say()
    files = sorted(path.name for path in out.glob("rank-*.json"))
    assert files == [f"rank-{rank}.json" for rank in range(WORLD)], node.say()
    return [json.loads((out / name).read_text()) for name in files]


def trained_together(said: list[Mapping[str, Any]], kind: str) -> None:
    """Assert that each rank knows its place, and that all have trained one model to the end."""
    assert [(one["rank"], one["local_rank"], one["world"]) for one in said] == [(0, 0, WORLD), (1, 1, WORLD)]
    assert {(one["kind"], one["backend"], one["steps"]) for one in said} == {(kind, "gloo", STEPS)}
    assert len({one["parameters"] for one in said}) == 1


def test_accelerate_and_after_the_loss_of_a_rank_it_ends_with_the_same_weights(place: Place, tmp_path: Path) -> None:
    whole = start(place, "on_accelerate.py", tmp_path / "whole")
    said = heard(whole, tmp_path / "whole")
    trained_together(said, "MULTI_CPU")
    assert {tuple(one["gathered"]) for one in said} == {(0, 1)}
    assert {one["precision"] for one in said} == {"bf16"}, "what accelerate launch would have chosen did not arrive"

    flags = ("--max-restarts", "1", "--checkpoint-dir", tmp_path / "kept")
    broken = start(place, "on_accelerate.py", tmp_path / "broken", "--lose-rank", flags=flags)
    again = heard(broken, tmp_path / "broken")
    trained_together(again, "MULTI_CPU")
    assert [record["state"] for record in broken.records()] == ["retried", "done"], broken.say()
    assert {one["resumed"] for one in again} == {4}
    assert again[0]["parameters"] == said[0]["parameters"], "it has not trained on the same batches from the same state"


def test_lightning_sees_that_it_was_launched_and_starts_no_ranks_itself(place: Place, tmp_path: Path) -> None:
    said = heard(start(place, "on_lightning.py", tmp_path / "out"), tmp_path / "out")
    trained_together(said, "TorchElasticEnvironment")
    assert {(one["detected"], one["creates_processes"]) for one in said} == {(True, False)}


def test_the_transformers_trainer(place: Place, tmp_path: Path) -> None:
    said = heard(start(place, "on_transformers.py", tmp_path / "out"), tmp_path / "out")
    trained_together(said, "distributed")
