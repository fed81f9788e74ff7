"""Folders of Accelerator.save_state: the real ones, and what is wrong with others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged
from made_files import safetensors_file, torch_file

from remuster.checkpoint.formats.finding import Torn, Unknown, Whole

REAL = SAMPLES / "accelerate" / "complete" / "checkpoint_5"
TWO_MODELS = SAMPLES / "accelerate" / "two-models" / "checkpoint_0"  # and as many optimizers; one rank


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of the real one, which two ranks wrote."""
    return Path(shutil.copytree(REAL, tmp_path / "checkpoint_5"))


def torn(path: Path, world: int | None = 2) -> Torn:
    finding = judged(path, world)
    assert isinstance(finding, Torn), finding
    return finding


def test_the_real_ones_are_whole() -> None:
    assert format_name(REAL) == format_name(TWO_MODELS) == "accelerate"
    known, unknown, two = judged(REAL), judged(REAL, world=None), judged(TWO_MODELS, world=1)
    assert isinstance(known, Whole)
    assert (known.step, known.world) == (None, 2)  # the step is its name's
    assert isinstance(unknown, Whole)
    assert "the number of ranks that wrote it is not recorded" in unknown.how
    assert isinstance(two, Whole)


def test_killed_at_its_optimizer(real: Path) -> None:
    """As rank 0 leaves it; rank 1, which writes nothing else, had its random state."""
    (real / "optimizer.bin").write_bytes(b"")
    for name in ("scheduler.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl"):
        (real / name).unlink()
    assert torn(real) == Torn("'optimizer.bin' is empty; 'random_states_0.pkl' is missing")


def test_killed_at_its_model(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_10").mkdir()
    (tmp_path / "checkpoint_10" / "model.safetensors").write_bytes(b"")
    assert format_name(tmp_path / "checkpoint_10") == "accelerate"
    assert "'model.safetensors' is empty" in torn(tmp_path / "checkpoint_10").reason


def test_a_rank_that_was_killed_before_its_random_state(real: Path) -> None:
    (real / "random_states_1.pkl").unlink()
    finding = torn(real)
    assert finding.lacking == ("random_states_1.pkl",)
    assert "a rank of the 2 did not come to it, or fewer ranks, 1, wrote this checkpoint" in finding.reason
    assert isinstance(judged(real, world=None), Whole)  # one rank may have written it: the launcher must know


def test_a_hole_among_the_ranks(real: Path) -> None:
    (real / "random_states_0.pkl").unlink()
    for world in (2, None):
        assert torn(real, world) == Torn("'random_states_0.pkl' is missing", ("random_states_0.pkl",))


@pytest.mark.parametrize("gone", ["model.safetensors", "optimizer.bin"])
def test_several_models_leave_holes(tmp_path: Path, gone: str) -> None:
    path = shutil.copytree(TWO_MODELS, tmp_path / "any-name")
    (path / gone).unlink()
    assert torn(path, world=1).lacking == (gone,)


def test_a_hole_among_what_the_script_registered(real: Path) -> None:
    (real / "custom_checkpoint_0.pkl").rename(real / "custom_checkpoint_2.pkl")
    assert torn(real).lacking == ("custom_checkpoint_0.pkl", "custom_checkpoint_1.pkl")


@pytest.mark.parametrize("name", ["scheduler.bin", "custom_checkpoint_0.pkl", "random_states_1.pkl"])
def test_every_file_is_read(real: Path, name: str) -> None:
    data = bytearray((real / name).read_bytes())
    data[data.index(b"\x80\x02") + 4] ^= 255  # within the pickle
    (real / name).write_bytes(data)
    assert repr(name) in torn(real).reason


def test_another_ranks_random_state(real: Path) -> None:
    shutil.copy(real / "random_states_0.pkl", real / "random_states_1.pkl")
    assert torn(real).reason == "'random_states_1.pkl' holds what was saved as 'random_states_0.pkl'"


def test_models_that_the_script_saves_by_itself(real: Path) -> None:
    """As Diffusers' scripts do, in folders named checkpoint-N as Trainer's are."""
    (real / "model.safetensors").unlink()
    path = real.rename(real.with_name("checkpoint-5"))
    assert format_name(path) == "accelerate"
    assert torn(path).lacking == ("model.safetensors",)
    safetensors_file(path / "unet" / "diffusion_pytorch_model.safetensors")
    assert torn(path).lacking == ("model.safetensors",)  # what lies anywhere is not a model of its own
    (path / "unet" / "config.json").write_text("{}")
    assert isinstance(judged(path), Whole)


def test_shards_of_fsdp(real: Path) -> None:
    (real / "model.safetensors").unlink()
    (real / "optimizer.bin").unlink()
    dcp = SAMPLES / "dcp" / "complete" / "step-00000005"
    shutil.copytree(dcp, real / "pytorch_model_fsdp_0")
    assert torn(real).lacking == ("optimizer.bin",)
    shutil.copytree(dcp, real / "optimizer_0")
    assert format_name(real) == "accelerate"
    assert isinstance(judged(real), Whole)
    (real / "pytorch_model_fsdp_0" / ".metadata").unlink()
    assert torn(real).lacking == ("pytorch_model_fsdp_0/.metadata",)


def test_deepspeed(real: Path) -> None:
    (real / "model.safetensors").unlink()
    (real / "optimizer.bin").unlink()
    shutil.copytree(SAMPLES / "deepspeed" / "complete" / "global_step5", real / "pytorch_model")
    assert format_name(real) == "accelerate"
    assert isinstance(judged(real), Whole)
    next(real.glob("pytorch_model/*_0_*_optim_states.pt")).unlink()
    assert torn(real).lacking


def test_files_of_the_script_are_not_judged(real: Path) -> None:
    (real / "notes.bin").write_bytes(b"not torch's")
    (real / "vocabulary.json").write_bytes(b"not JSON")
    assert isinstance(judged(real), Whole)


def test_old_files_of_torch_are_named_as_such(real: Path) -> None:
    torch_file(real / "scheduler.bin", {})
    (real / "scheduler.bin").write_bytes(bytes.fromhex("80028a0a6cfc9c46f9206aa850192e") + b"rest")
    finding = judged(real)
    assert isinstance(finding, Unknown)
    assert "'scheduler.bin' was written in torch.save's old format" in finding.reason
