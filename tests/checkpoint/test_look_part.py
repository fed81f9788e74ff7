"""What of a checkpoint lies on one node: its ranks' files, all of them, none, bad ones, or some that show late."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES

from remuster.checkpoint.examine import Asked
from remuster.checkpoint.look import View, sign_of
from remuster.checkpoint.look_part import Part, look_part, newest_part
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import search

NAME = "checkpoint-5"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """What a node with rank 0 of two has of a checkpoint of Trainer's."""
    place = Path(shutil.copytree(SAMPLES / "transformers" / "complete" / NAME, tmp_path / NAME))
    (place / "rng_state_1.pth").rename(tmp_path.parent / f"{tmp_path.name}.rest")
    return place


def rest(part: Path) -> Path:
    return part.parent.parent / f"{part.parent.name}.rest"


def looked(part: Path, name: str = NAME, step: int = 5, patience: Patience | None = None, sign: str = "") -> Part:
    return look_part(part.parent, name, step, "transformers", 2, sign, patience or Patience(()))


def test_whose_files_are_here(part: Path) -> None:
    assert looked(part) == Part(View.CAN, ranks=(0,))
    assert newest_part(part.parent, 2) == ((NAME, 5),)
    rest(part).rename(part / "rng_state_1.pth")
    assert looked(part) == Part(View.CAN, ranks=(0, 1))
    assert newest_part(part.parent, 2) == (), "it is no part"


def test_what_is_none_or_bad(part: Path) -> None:
    assert looked(part, "checkpoint-6").view is View.LACKS
    assert looked(part, f"../{part.parent.name}/{NAME}").view is View.DIFFERS
    assert looked(part, step=6) == Part(View.DIFFERS, "it is of step 5 here")
    os.truncate(part / "optimizer.pt", 99)
    assert looked(part).view is View.DIFFERS


def test_the_very_folder_that_the_choosing_node_has_read_is_not_read_again(part: Path) -> None:
    """Where all nodes share the directory, each of them would read a step that is torn."""
    sign = sign_of(part)
    data = bytearray((part / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 255
    (part / "optimizer.pt").write_bytes(data)
    assert looked(part, sign=sign) == Part(View.CAN, ranks=(0,))
    copy = Path(shutil.copytree(part, part.parent / "local" / NAME))
    assert looked(copy, sign=sign).view is View.DIFFERS


def test_files_that_are_hidden_for_a_while_are_waited_for_before_it_is_called_a_part(part: Path) -> None:
    """In a directory that all nodes share: whoever believed the first look would call a whole step torn."""

    def shows(_: float) -> None:
        rest(part).rename(part / "rng_state_1.pth")

    choice = search(part.parent, Asked(world=2, part=True), Patience((1.0,), shows))
    assert (choice.path, choice.ranks) == (str(part), ())
    (part / "rng_state_1.pth").rename(rest(part))
    assert looked(part, patience=Patience((1.0,), shows)) == Part(View.CAN, ranks=(0, 1))
