"""Real published steps for the tests of the checkpoint room."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import remuster
from remuster.checkpoint import publish
from remuster.checkpoint.examine import Asked
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import Choice, search
from remuster.checkpoint.select import History

RUN = "run-a"
Publish = Callable[..., Path]
Find = Callable[..., Choice]


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test outside remuster, whatever the tests themselves run under."""
    for name in [n for n in os.environ if n.startswith("REMUSTER_") or n in ("RANK", "WORLD_SIZE")]:
        monkeypatch.delenv(name)


@pytest.fixture
def child_environ() -> dict[str, str]:
    """The environment of a child process, which finds the same remuster as the tests do."""
    return {**os.environ, "PYTHONPATH": str(Path(remuster.__file__).parent.parent)}


@pytest.fixture
def publish_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Publish a step of two files, as round ``round_`` of a run, into tmp_path."""

    def make(step: int, round_: int = 1, run: str = RUN, text: bytes = b"weights") -> Path:
        with monkeypatch.context() as m:
            m.setenv("REMUSTER_RUN_ID", run)
            m.setenv("REMUSTER_ROUND", str(round_))
            m.setenv("REMUSTER_ATTEMPT", str(round_ - 1))
            m.setenv("REMUSTER_INCARNATION", "6f")
            with publish(step, tmp_path, parallelism={"dp": 1}) as p:
                p.path("model.pt").write_bytes(text * 1000)
                p.path("shards/0.bin").write_bytes(b"%d" % step * 3)
        return tmp_path / f"step-{step:012d}"

    return make


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Choose in tmp_path without waiting for anything absent."""

    def run(history: History = (), run: str = RUN) -> Choice:
        return search(tmp_path, Asked(run, history), Patience(()))

    return run
