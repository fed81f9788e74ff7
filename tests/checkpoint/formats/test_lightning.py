"""Lightning's checkpoints: the real file, and folders of shards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged
from made_files import torch_file

from remuster.checkpoint.formats.finding import Finding, Torn, Unknown, Whole

REAL = SAMPLES / "lightning" / "complete" / "epoch=0-step=5.ckpt"
HEAD = {"pytorch-lightning_version": "2.6.6", "epoch": 0, "global_step": 7, "loops": {}}
STATE = {**HEAD, "state_dict": {}, "optimizer_states": [], "lr_schedulers": []}


def test_the_real_one_is_whole() -> None:
    assert format_name(REAL) == "lightning"
    assert judged(REAL) == Whole("CRC-32 of 1 file(s) of torch.save", step=5)


@pytest.mark.parametrize(
    "name", ["last.ckpt", "last-v1.ckpt", "epoch=0-step=5-v2.ckpt", "00-5.ckpt", "train_loss_step=0.25-step=5.ckpt"]
)
def test_other_names_of_it(tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(REAL, tmp_path / name))
    finding = judged(path)
    assert format_name(path) == "lightning"
    assert isinstance(finding, Whole)
    assert finding.step == 5


@pytest.mark.parametrize("name", ["epoch=0-step=10.ckpt", "step=6.ckpt", "model-global_step=4.ckpt"])
def test_a_name_that_contradicts_it(tmp_path: Path, name: str) -> None:
    finding = judged(Path(shutil.copy(REAL, tmp_path / name)))
    assert isinstance(finding, Torn)
    assert "it was saved at global_step 5, but its name says" in finding.reason


def test_a_file_that_was_cut_short_is_seen(tmp_path: Path) -> None:
    data = REAL.read_bytes()
    path = tmp_path / "epoch=0-step=5.ckpt"
    for size in (0, 1, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert isinstance(judged(path), Torn), size
        assert isinstance(judged(path, deep=False), Torn), size


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(STATE, Whole("CRC-32 of 1 file(s) of torch.save", step=7), id="as saved"),
        pytest.param(
            HEAD,
            Torn("it holds no optimizer: one saved with save_weights_only is not one to resume from"),
            id="weights only",
        ),
        pytest.param({"step": 3}, Whole("CRC-32 of 1 file(s) of torch.save", step=3), id="not Lightning's"),
    ],
)
def test_what_a_file_holds(tmp_path: Path, value: object, expected: Finding) -> None:
    assert judged(torch_file(tmp_path / "last.ckpt", value)) == expected


def test_a_pickle_is_not_carried_out(tmp_path: Path) -> None:
    made = tmp_path / "made"
    call = b"cos\nsystem\n(S'touch " + str(made).encode() + b"'\ntR."
    assert isinstance(judged(torch_file(tmp_path / "last.ckpt", None, pickled=call)), Whole)
    assert not made.exists()


def test_a_folder_of_shards(tmp_path: Path) -> None:
    path = tmp_path / "epoch=1-step=7.ckpt"
    shutil.copytree(SAMPLES / "dcp" / "complete" / "step-00000005", path)
    assert format_name(path) == "lightning"
    assert judged(path) == Torn("'meta.pt' is missing, which rank 0 writes last", ("meta.pt",))
    torch_file(path / "meta.pt", {key: value for key, value in STATE.items() if key != "state_dict"})
    finding = judged(path)
    assert isinstance(finding, Whole)
    assert (finding.step, finding.world) == (7, 2)
    (path / "meta.pt").write_bytes(b"")
    assert judged(path) == Torn("'meta.pt' is empty")
    (path / "meta.pt").unlink()
    (path / ".metadata").unlink()
    assert judged(path) == Torn("'.metadata' is missing", (".metadata", "meta.pt"))


def test_a_folder_of_deepspeeds(tmp_path: Path) -> None:
    path = tmp_path / "epoch=0-step=5.ckpt"
    shutil.copytree(SAMPLES / "deepspeed" / "complete" / "global_step5", path / "checkpoint")
    assert format_name(path) == "lightning"
    assert judged(path) == Torn("'latest' is missing, by which it is loaded", ("latest",))
    (path / "latest").write_text("checkpoint")
    finding = judged(path)
    assert isinstance(finding, Whole)
    assert (finding.step, finding.world) == (5, 2)
    next(path.glob("checkpoint/*_1_*_optim_states.pt")).unlink()
    assert isinstance(judged(path), Torn)


def test_a_folder_of_neither(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.mkdir()
    assert isinstance(judged(path), Unknown)
    (path / "readme").write_text("?")
    assert isinstance(judged(path), Unknown)
