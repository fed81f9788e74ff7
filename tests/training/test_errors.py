"""What goes wrong on one rank is told to all, in words, and nobody waits for it; nothing half right is restored."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from training.conftest import Attempt, chosen, lines, said

FAULTS = {
    "raises": "rank 1: RuntimeError: no state today",
    "no plain value": "rank 1: NotPlain: per_rank['part']['tool'] is a _thread.lock, and a checkpoint holds tensors",
    "disk": "rank 1: ",
}


@pytest.mark.parametrize(
    ("fault", "kind", "mode"),
    [
        ("raises", "ddp", "sync"),
        ("raises", "fsdp2", "sync"),
        ("raises", "fsdp2", "async"),
        ("no plain value", "ddp", "async"),
        ("disk", "ddp", "sync"),
        ("disk", "fsdp2", "sync"),
        ("disk", "fsdp2", "async"),
    ],
)
def test_an_error_of_one_rank_in_saving_is_raised_on_all(
    attempt: Attempt, tmp_path: Path, fault: str, kind: str, mode: str
) -> None:
    out = tmp_path / "out"
    assert attempt(out=out, kind=kind, mode=mode, batches=3, save_every=1, fault=fault) == [0, 0], said(out)
    for rank in (0, 1):
        errors = lines(out, rank, "error")
        # Behind training the next call, or the end, has it to tell; that call then saves nothing.
        steps = ["1", "2", "3"] if mode == "sync" else ["2", "end"]
        assert [error.split(" ")[0] for error in errors] == steps, said(out)
        for error in errors:
            assert FAULTS[fault] in error
            assert "File too large" in error or fault != "disk"
        assert lines(out, rank, "saved") == []
        assert lines(out, rank, "begun") == ([] if mode == "sync" else ["1", "3"])
    assert os.listdir(out / "checkpoints") == []
    assert chosen(out).step == -1


def test_a_flight_that_fails_on_one_rank_alone_is_told_to_all(attempt: Attempt, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert attempt(out=out, batches=2, save_every=1, fault="flight") == [0, 0], said(out)
    for rank in (0, 1):
        assert lines(out, rank, "error") == ["1 no state today"]
        assert lines(out, rank, "saved") == ["2"]


def test_models_that_differ_are_not_saved_as_one(attempt: Attempt, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert attempt(out=out, kind="stages", batches=1, save_every=1) == [0, 0], said(out)
    for rank in (0, 1):
        [told] = lines(out, rank, "error")
        assert "rank 1 has another model than rank 0, which writes for all" in told


@pytest.fixture(scope="session")
def saved(attempt: Attempt, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 2 and 3 of a run with two ranks; the third lies between two optimizer steps."""
    out = tmp_path_factory.mktemp("saved") / "out"
    assert attempt(out=out, batches=2, save_every=2) == [0, 0], said(out)
    step = {"attempt": 1, "batches": 3, "save_every": 3}
    assert attempt(out=out, resume=chosen(out).path, **step) == [0, 0], said(out)
    return out


def again(attempt: Attempt, saved: Path, out: Path, step: int, **job: object) -> list[list[str]]:
    """Resume a copy of the saved run; return what each rank said of that."""
    shutil.copytree(saved / "checkpoints", out / "checkpoints")
    path = out / "checkpoints" / f"step-{step:012d}"
    world = int(str(job.get("world", 2)))
    assert attempt(out=out, attempt=2, batches=8, save_every=8, resume=path, **job) == [0] * world, said(out)
    return [lines(out, rank, "restore") + lines(out, rank, "resumed") for rank in range(world)]


@pytest.mark.parametrize("world", [1, 3])
def test_another_number_of_ranks_is_refused_on_all(attempt: Attempt, saved: Path, tmp_path: Path, world: int) -> None:
    for [told] in again(attempt, saved, tmp_path / "out", 2, world=world):
        assert f"is not restored: rank 0: 2 ranks wrote it, and {world} are here" in told
        assert "allow_world_change=True" in told


@pytest.mark.parametrize(("world", "batches"), [(1, 4), (3, 1)])
def test_another_number_of_ranks_goes_on_where_it_is_allowed(
    attempt: Attempt, saved: Path, tmp_path: Path, world: int, batches: int
) -> None:
    """Two ranks had two batches each: four for one rank; for three one each, and the fourth comes again."""
    got = again(attempt, saved, tmp_path / "out", 2, world=world, allow=True)
    assert got == [[f"2 epoch=0 batches={batches}"]] * world
    assert chosen(tmp_path / "out").step == 8


def test_gradients_of_half_a_step_are_not_shared_out(attempt: Attempt, saved: Path, tmp_path: Path) -> None:
    for [told] in again(attempt, saved, tmp_path / "out", 3, world=1, allow=True):
        assert "rank 0: it was saved with 1 micro-batches accumulated" in told


def test_a_sharded_model_is_not_restored_from_a_whole_one(attempt: Attempt, saved: Path, tmp_path: Path) -> None:
    for [told] in again(attempt, saved, tmp_path / "out", 2, kind="fsdp2"):
        assert "the checkpoint is not of a sharded model, and this one is sharded" in told


def test_a_file_that_one_rank_cannot_read_stops_all(attempt: Attempt, saved: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    (copy / "checkpoints" / "step-000000000002" / "rank-1.pt").write_bytes(b"torn")
    for [told] in again(attempt, copy, tmp_path / "out", 2):
        assert "is not restored: rank 1: " in told


def test_a_step_of_another_making_is_named(attempt: Attempt, saved: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    (copy / "checkpoints" / "step-000000000002" / "COMMITTED").unlink()
    for [told] in again(attempt, copy, tmp_path / "out", 2):
        assert "rank 0: 'COMMITTED' is missing" in told
