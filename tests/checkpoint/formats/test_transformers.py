"""Checkpoints of Hugging Face's Trainer: the real one, what is wrong with others, and those of DeepSpeed and FSDP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged
from made_files import safetensors_file, torch_file

from remuster.checkpoint.examine import Asked
from remuster.checkpoint.formats.finding import Torn, Whole
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import search

REAL = SAMPLES / "transformers" / "complete" / "checkpoint-5"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of the real one, which two ranks wrote."""
    return Path(shutil.copytree(REAL, tmp_path / "checkpoint-5"))


def torn(path: Path, world: int | None = 2) -> Torn:
    finding = judged(path, world)
    assert isinstance(finding, Torn), finding
    return finding


def test_the_real_one_is_whole() -> None:
    assert format_name(REAL) == "transformers"
    known, unknown = judged(REAL), judged(REAL, world=None)
    assert isinstance(known, Whole)
    assert (known.step, known.world) == (5, 2)
    assert "trainer_state.json" in known.how
    assert isinstance(unknown, Whole)
    assert "the number of ranks that wrote it is not recorded" in unknown.how


def test_killed_at_its_optimizer(real: Path) -> None:
    """As rank 0 leaves it: rank 1 had its random state, rank 0 nothing after the optimizer."""
    (real / "optimizer.pt").write_bytes(b"")
    for name in ("rng_state_0.pth", "scheduler.pt", "trainer_state.json"):
        (real / name).unlink()
    assert format_name(real) == "transformers"
    assert torn(real) == Torn(
        "'optimizer.pt' is empty; 'rng_state_0.pth', 'scheduler.pt' and 'trainer_state.json' are missing"
    )


def test_killed_at_its_trainer_state(real: Path) -> None:
    (real / "trainer_state.json").unlink()
    assert torn(real) == Torn("'trainer_state.json' is missing", ("trainer_state.json",))


@pytest.mark.parametrize(("wrote", "world", "whole"), [(2, 4, True), (None, 4, False), (4, 2, False), (None, 2, True)])
def test_a_job_that_grew_or_shrank_goes_by_the_round_that_saved_it(
    real: Path, wrote: int | None, world: int, whole: bool
) -> None:
    """Two ranks' random states: all of it in a run of two that grew to four, torn in a run of four that shrank."""
    worlds = () if wrote is None else ((1, None, wrote),)
    choice = search(real.parent, Asked(world=world, worlds=worlds), Patience(()))
    assert bool(choice.path) is whole


def test_a_number_that_is_no_ranks_holds_nothing_up(real: Path) -> None:
    shutil.copy(real / "rng_state_1.pth", real / "rng_state_99999999999.pth")
    assert isinstance(judged(real), Whole)


def test_a_rank_that_was_killed_before_its_random_state(real: Path) -> None:
    """trainer_state.json is there: rank 0 does not wait for the others."""
    (real / "rng_state_1.pth").unlink()
    for world in (2, None):  # a number in the name says that there are at least two
        assert torn(real, world).lacking == ("rng_state_1.pth",)


def test_missing_files_are_all_that_is_wrong_or_are_not_told(real: Path) -> None:
    """A node that has only its own ranks' files must say so only if these are whole: others may have the rest."""
    (real / "rng_state_1.pth").unlink()
    data = bytearray((real / "optimizer.pt").read_bytes())
    data[data.index(b"\x80\x02") + 4] ^= 255
    (real / "optimizer.pt").write_bytes(data)
    finding = torn(real)
    assert finding.lacking == ()
    assert "'optimizer.pt' is no whole file of torch.save" in finding.reason
    assert "'rng_state_1.pth' is missing" in finding.reason


def test_more_ranks_than_wrote_it(real: Path) -> None:
    finding = torn(real, world=4)
    assert finding.lacking == ("rng_state_2.pth", "rng_state_3.pth")
    assert "a rank of the 4 did not come to it, or fewer ranks, 2, wrote this checkpoint" in finding.reason


def test_fewer_ranks_than_wrote_it_find_their_files(real: Path) -> None:
    finding = judged(real, world=1)
    assert isinstance(finding, Whole)
    assert finding.world == 2


def test_one_rank_has_another_file(real: Path) -> None:
    (real / "rng_state_1.pth").unlink()
    (real / "rng_state_0.pth").unlink()
    assert torn(real, world=1).lacking == ("rng_state.pth",)
    torch_file(real / "rng_state.pth", {"cpu": 1})
    for world in (1, None):
        finding = judged(real, world)
        assert isinstance(finding, Whole)
        assert finding.world == 1
    assert "one rank wrote this checkpoint, and 2 are to come" in torn(real).reason


def without_global_step(path: Path) -> None:
    (path / "trainer_state.json").write_text("{}")


def of_another_step(path: Path) -> None:
    state = json.loads((path / "trainer_state.json").read_text())
    (path / "trainer_state.json").write_text(json.dumps({**state, "global_step": 4}))


def without_its_end(path: Path) -> None:
    data = (path / "trainer_state.json").read_bytes()
    (path / "trainer_state.json").write_bytes(data[:-9])


def exchanged(path: Path) -> None:
    a, b = path / "rng_state_0.pth", path / "rng_state_1.pth"
    one, other = a.read_bytes(), b.read_bytes()
    a.write_bytes(other)
    b.write_bytes(one)


def copied(path: Path) -> None:
    shutil.copy(path / "scheduler.pt", path / "optimizer.pt")


def only_the_model(path: Path) -> None:
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
        (path / name).unlink()


def without_model(path: Path) -> None:
    (path / "model.safetensors").unlink()


def scaler_cut_short(path: Path) -> None:
    (path / "scaler.pt").write_bytes((path / "scheduler.pt").read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_global_step, "trainer_state.json does not say its global_step"),
        (of_another_step, "trainer_state.json says global_step 4, but the folder is named 'checkpoint-5'"),
        (without_its_end, "'trainer_state.json' is cut short or no JSON"),
        (exchanged, "'rng_state_0.pth' holds what was saved as 'rng_state_1.pth'"),
        (copied, "'optimizer.pt' holds what was saved as 'scheduler.pt'"),
        (only_the_model, "it holds no optimizer: one saved with save_only_model is not one to resume from"),
        (without_model, "'model.safetensors' is missing"),
        (scaler_cut_short, "'scaler.pt' is no whole file of torch.save"),
    ],
)
def test_what_is_wrong_is_said(real: Path, change: Callable[[Path], None], words: str) -> None:
    change(real)
    assert words in torn(real).reason


def test_a_folder_of_another_name_keeps_its_step(real: Path) -> None:
    assert judged(real.rename(real.with_name("best"))) == judged(REAL)


class TestModels:
    """The model may be in several files, or only what was trained of it."""

    @pytest.fixture(autouse=True)
    def bare(self, real: Path) -> None:
        """Take the model away."""
        (real / "model.safetensors").unlink()

    def test_shards_and_their_index(self, real: Path) -> None:
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        (real / "model.safetensors.index.json").write_text(json.dumps(index))
        first = safetensors_file(real / "model-00001-of-00002.safetensors", ("a",))
        assert torn(real).lacking == ("model-00002-of-00002.safetensors",)
        second = safetensors_file(real / "model-00002-of-00002.safetensors", ("b",))
        assert isinstance(judged(real), Whole)
        shutil.copy(second, first)
        assert "does not hold tensor 'a'" in torn(real).reason
        safetensors_file(first, ("a",))
        (real / "model.safetensors.index.json").unlink()
        assert torn(real).lacking == ("model.safetensors.index.json",)

    def test_an_index_without_weights(self, real: Path) -> None:
        safetensors_file(real / "model.safetensors")
        (real / "model.safetensors.index.json").write_text('{"weight_map": {}}')
        assert "names no weights" in torn(real).reason

    def test_an_adapter(self, real: Path) -> None:
        safetensors_file(real / "adapter_model.safetensors")
        assert torn(real).lacking == ("adapter_config.json",)
        (real / "adapter_config.json").write_text("{}")
        assert isinstance(judged(real), Whole)

    def test_an_adapter_in_a_folder_of_its_name(self, real: Path) -> None:
        safetensors_file(real / "mine" / "adapter_model.safetensors")
        assert torn(real).lacking == ("model.safetensors",)
        (real / "mine" / "adapter_config.json").write_text("{}")
        assert isinstance(judged(real), Whole)

    def test_torchs_own_files(self, real: Path) -> None:
        torch_file(real / "pytorch_model.bin", {"a": 1})
        assert isinstance(judged(real), Whole)

    def test_shards_of_fsdp(self, real: Path) -> None:
        dcp = SAMPLES / "dcp" / "complete" / "step-00000005"
        shutil.copytree(dcp, real / "pytorch_model_fsdp_0")
        (real / "optimizer.pt").unlink()
        assert torn(real).lacking == ("optimizer_0/.metadata",)
        shutil.copytree(dcp, real / "optimizer_0")
        assert format_name(real) == "transformers"
        assert isinstance(judged(real), Whole)
        (real / "optimizer_0" / "__1_0.distcp").unlink()
        assert torn(real).lacking == ("optimizer_0/__1_0.distcp",)

    def test_deepspeed(self, real: Path) -> None:
        shutil.copytree(SAMPLES / "deepspeed" / "complete" / "global_step5", real / "global_step5")
        (real / "optimizer.pt").unlink()
        assert format_name(real) == "transformers"
        assert torn(real).lacking == ("latest",)
        (real / "latest").write_text("global")
        assert "'latest' names 'global', but 'global_step5' is what lies there" in torn(real).reason
        (real / "latest").write_text("global_step5")
        finding = judged(real)
        assert isinstance(finding, Whole)
        assert finding.step == 5
        gone = next(real.glob("global_step5/*_1_*_optim_states.pt"))
        gone.unlink()
        assert torn(real).lacking == (f"global_step5/{gone.name}",)
