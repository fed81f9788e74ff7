"""A run that is ended and resumed goes on to the last bit: losses, rates, order of samples, every source of chance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training.conftest import Attempt, batches, chosen, lines, said

BATCHES = 24
KINDS = [(kind, mode) for kind in ("ddp", "fsdp2") for mode in ("sync", "async")]


@pytest.fixture(scope="session")
def whole(attempt: Attempt, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of each kind that nothing interrupts, and that saves nothing."""
    made: dict[str, Path] = {}
    for kind in ("ddp", "fsdp2"):
        made[kind] = tmp_path_factory.mktemp("whole") / kind
        assert attempt(out=made[kind], kind=kind, batches=BATCHES, save_every=1000) == [0, 0], said(made[kind])
    return made


@pytest.mark.parametrize(("kind", "mode"), KINDS)
def test_losses_equal_those_of_a_run_without_a_break(
    attempt: Attempt, whole: dict[str, Path], tmp_path: Path, kind: str, mode: str
) -> None:
    out = tmp_path / "broken"
    job = {"out": out, "kind": kind, "mode": mode, "batches": BATCHES, "save_every": 3}
    # Step 15 lies between two optimizer steps, in the middle of the second epoch.
    assert attempt(**job, stop_after=17) == [0, 0], said(out)
    choice = chosen(out)
    assert (choice.step, choice.refused) == (15, ())
    assert attempt(**job, attempt=1, resume=choice.path) == [0, 0], said(out)
    assert chosen(out).step == BATCHES
    for rank in (0, 1):
        assert lines(out, rank, "resumed") == ["15 epoch=1 batches=6"]
        assert batches(out, rank) == batches(whole[kind], rank)
    files = {file["path"] for file in json.loads((Path(choice.path) / "manifest.json").read_bytes())["files"]}
    shards = {"dcp/.metadata", "dcp/__0_0.distcp", "dcp/__1_0.distcp"} if kind == "fsdp2" else set()
    assert files == {"state.pt", "rank-0.pt", "rank-1.pt"} | shards
