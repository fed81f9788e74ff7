"""A nursery of ranks for the tests of saving and restoring."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import figures

import remuster
from remuster.checkpoint.examine import Asked
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import Choice, search

TESTS = Path(__file__).parents[1]
Attempt = Callable[..., list[int]]


def pytest_configure(config: pytest.Config) -> None:
    """Show figures at the end."""
    figures.register(config)


@pytest.fixture(scope="session")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempt]:
    """Run one attempt of a job (``trainer.Job``, by its fields); return the ranks' exit statuses, -99 for a hang."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch: pip install torch")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("REMUSTER_", "TORCHELASTIC_"))}
    env = {
        **clean,
        "PYTHONPATH": os.pathsep.join((str(TESTS), str(Path(remuster.__file__).parents[1]))),
        "PYTHONWARNINGS": "error",
        "OMP_NUM_THREADS": "1",
    }
    said = tmp_path_factory.mktemp("nursery") / "said"
    with said.open("wb") as errors:
        nursery = subprocess.Popen(
            [sys.executable, "-m", "training.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            text=True,
        )
    assert nursery.stdin is not None
    assert nursery.stdout is not None

    def run(**job: Any) -> list[int]:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write(f"{json.dumps({k: str(v) if isinstance(v, Path) else v for k, v in job.items()})}\n")
        nursery.stdin.flush()
        answer = nursery.stdout.readline()
        assert answer, said.read_text()
        statuses: list[int] = json.loads(answer)
        return statuses

    yield run
    nursery.kill()
    nursery.wait()
    nursery.stdin.close()
    nursery.stdout.close()


def lines(out: Path, rank: int, word: str) -> list[str]:
    """Return what follows ``word`` in the lines of a rank's log that begin with it."""
    return [line.removeprefix(f"{word} ") for line in _log(out, rank) if line.startswith(f"{word} ")]


def batches(out: Path, rank: int) -> dict[int, set[str]]:
    """Return what a rank wrote of each batch, over all attempts: one thing if it did the same each time."""
    found: dict[int, set[str]] = {}
    for text in lines(out, rank, "batch"):
        number, _, rest = text.partition(" ")
        found.setdefault(int(number), set()).add(rest)
    return found


def chosen(out: Path) -> Choice:
    """Choose as the agent does, without waiting for anything absent."""
    return search(out / "checkpoints", Asked("run-a"), Patience(()))


def said(out: Path) -> str:
    """Return the ranks' own words, to be shown when a test fails."""
    return "\n".join(path.read_text() for path in sorted(out.glob("rank-*.*"))) if out.exists() else ""


def _log(out: Path, rank: int) -> list[str]:
    text = (out / f"rank-{rank}.log").read_text()
    return text.split("\n")[:-1]  # a kill can leave the last line without its end
