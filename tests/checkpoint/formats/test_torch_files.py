"""Plain files of torch.save, and folders of them."""

from __future__ import annotations

import random
import shutil
import zipfile
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged
from made_files import torch_file

from remuster.checkpoint.formats.finding import Torn, Unknown, Whole

REAL = SAMPLES / "ray" / "after-worker-kill" / "case" / "checkpoint_2026-11-29_11-45-29.404045" / "state.pt"
HOW = "CRC-32 of 1 file(s) of torch.save"


@pytest.mark.parametrize("name", ["state.pt", "model_step_40.pth", "40.bin"])
def test_a_single_file(tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(REAL, tmp_path / name))
    assert format_name(path) == "torch"
    assert judged(path) == Whole(HOW, step=40)


@pytest.mark.parametrize(
    ("held", "step"),
    [
        ({"step": 4}, 4),
        ({"global_step": 5}, 5),
        ({"iteration": 6, "epoch": 1}, 6),
        ({"step": True}, None),
        ({"step": -1}, None),
        ({"step": "7"}, None),
        ({"model": {"step": 8}}, None),
        ([1], None),
    ],
)
def test_the_step_that_it_holds(tmp_path: Path, held: object, step: int | None) -> None:
    assert judged(torch_file(tmp_path / "a.pt", held)) == Whole(HOW, step=step)


def test_damage_is_seen(tmp_path: Path) -> None:
    data, path = REAL.read_bytes(), tmp_path / "state.pt"
    for size in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert isinstance(judged(path), Torn), size
    at = data.index(b"\x80\x02") + 4  # within the pickle
    path.write_bytes(data[:at] + bytes(64) + data[at + 64 :])
    assert isinstance(judged(path), Torn)
    path.write_bytes(bytes(len(data)))
    assert isinstance(judged(path), Torn)


@pytest.mark.parametrize("real", [REAL, SAMPLES / "lightning" / "complete" / "epoch=0-step=5.ckpt"])
def test_no_file_with_zeros_in_it_is_whole(tmp_path: Path, real: Path) -> None:
    data, path, chance = real.read_bytes(), tmp_path / real.name, random.Random(5)
    for _ in range(100):
        length = chance.choice([1, 64, 4096])
        at = chance.randrange(len(data) - length)
        path.write_bytes(data[:at] + bytes(length) + data[at + length :])
        assert isinstance(judged(path), Torn) or members(path) == members(real), (at, length)


def members(path: Path) -> dict[str, bytes] | None:
    """Return what torch.load reads; what pads it may be damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {member.filename: archive.read(member) for member in archive.infolist()}
    except zipfile.BadZipFile:
        return None


def test_the_old_format_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(bytes.fromhex("80028a0a6cfc9c46f9206aa850192e") + bytes(100))
    finding = judged(path)
    assert isinstance(finding, Unknown)
    assert "old format" in finding.reason
    assert isinstance(judged(path, format_="lightning"), Unknown)


def test_a_folder_of_whole_files_is_unknown(tmp_path: Path) -> None:
    for name in ("model.pt", "optimizer.pt"):
        torch_file(tmp_path / "step-5" / name, {})
    assert format_name(tmp_path / "step-5") == "torch"
    finding = judged(tmp_path / "step-5")
    assert isinstance(finding, Unknown)
    assert "nothing says which there must be" in finding.reason
    (tmp_path / "step-5" / "model.pt").write_bytes(b"")
    assert judged(tmp_path / "step-5") == Torn("'model.pt' is empty")


@pytest.mark.parametrize(
    "name", ["training_args.bin", "pytorch_model.bin", "model.safetensors", "notes.txt", "x.pt.tmp"]
)
def test_files_that_are_no_checkpoints(tmp_path: Path, name: str) -> None:
    torch_file(tmp_path / name, {})
    assert format_name(tmp_path / name) == ""
