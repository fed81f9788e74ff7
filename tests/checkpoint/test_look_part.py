"""What a node says of its part of a checkpoint when it is asked: absent, another, torn, whole, not to be read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_samples import ACCELERATE, SAMPLES, TRAINER, ZERO, laid

from remuster.checkpoint.errors import Unreadable
from remuster.checkpoint.examine import Asked
from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.look import View, sign_of
from remuster.checkpoint.look_part import Part, is_part, look_part, newest_part
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import search

NAME = "checkpoint-5"


def seen(directory: Path, name: str = NAME, step: int = 5, format_: str = "transformers", world: int = 2) -> Part:
    return look_part(directory, name, step, format_, world, patience=Patience(()))


def test_its_part_and_a_whole_copy(tmp_path: Path) -> None:
    for rank in (0, 1):
        laid(TRAINER, tmp_path / f"{rank}", rank)
        assert seen(tmp_path / f"{rank}") == Part(View.CAN, "", (rank,))
    laid(TRAINER, tmp_path / "all", 0, 1)
    assert seen(tmp_path / "all") == Part(View.CAN, "", (0, 1))
    laid(ZERO, tmp_path / "zero", 1)
    assert seen(tmp_path / "zero", "global_step5", 5, "deepspeed") == Part(View.CAN, "", (1,))


def test_more_ranks_are_to_come_than_have_files(tmp_path: Path) -> None:
    laid(TRAINER, tmp_path, 0, 1)
    assert seen(tmp_path, world=4) == Part(View.CAN, "", (0, 1))


def test_another_number_of_ranks_wrote_what_is_here(tmp_path: Path) -> None:
    """The node that chooses knows it of its own part alone."""
    laid(ZERO, tmp_path, 1)
    found = seen(tmp_path, "global_step5", 5, "deepspeed", world=4)
    assert found == Part(View.LACKS, "2 ranks wrote what is here of it, and 4 are to come")


def test_what_is_not_there_is_waited_for(tmp_path: Path) -> None:
    assert seen(tmp_path) == Part(View.LACKS, "it is not there")
    assert seen(tmp_path / "nowhere") == Part(View.LACKS, "it is not there")
    waits: list[float] = []

    def later(wait: float) -> None:
        waits.append(wait)
        if len(waits) == 2:
            laid(TRAINER, tmp_path, 0)

    found = look_part(tmp_path, NAME, 5, "transformers", 2, patience=Patience((0.1, 0.2, 0.3), later))
    assert (found, waits) == (Part(View.CAN, "", (0,)), [0.1, 0.2])


@pytest.mark.parametrize("name", ["", ".", "..", "../checkpoint-5", "/etc", "a/../../checkpoint-5"])
def test_a_name_that_leads_out(tmp_path: Path, name: str) -> None:
    laid(TRAINER, tmp_path, 0)
    (tmp_path / "a").mkdir()
    found = seen(tmp_path / "a", name)
    assert found == Part(View.DIFFERS, f"{name!a} is no name of a checkpoint")


def test_what_is_no_checkpoint_or_no_entry(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("")
    assert seen(tmp_path, "train.log") == Part(View.DIFFERS, "it is no checkpoint here")
    laid(TRAINER, tmp_path / "logs", 0)
    assert seen(tmp_path, f"logs/{NAME}") == Part(View.DIFFERS, "it is no checkpoint here")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    laid(TRAINER, tmp_path / "elsewhere", 0)
    here = tmp_path / "here"
    here.mkdir()
    (here / NAME).symlink_to(tmp_path / "elsewhere" / NAME)
    found = seen(here)
    assert (found.view, found.ranks) == (View.UNKNOWN, ())
    assert "symbolic link" in found.why


def test_a_name_that_is_another_step_here(tmp_path: Path) -> None:
    laid(ZERO, tmp_path, 0).rename(tmp_path / "best-9")
    found = seen(tmp_path, "best-9", 6, "deepspeed")
    assert found == Part(View.DIFFERS, "it is of step 5 here")


def cut_short(place: Path) -> None:
    os.truncate(place / "optimizer.pt", 99)


def without_model(place: Path) -> None:
    (place / "model.safetensors").unlink()


def without_any_rank(place: Path) -> None:
    (place / "rng_state_0.pth").unlink()


def unfinished(place: Path) -> None:
    (place.parent / f"{NAME}-unfinished").write_text("")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut_short, "'optimizer.pt' is no whole file of torch.save"),
        (without_model, "'model.safetensors'"),
        (without_any_rank, "'rng_state_0.pth' and 'rng_state_1.pth' are missing"),
        (unfinished, "did not come to its end"),
    ],
)
def test_what_an_interrupted_save_has_left(change: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    change(laid(TRAINER, tmp_path, 0))
    found = seen(tmp_path)
    assert (found.view, found.ranks) == (View.DIFFERS, ())
    assert words in found.why


def test_what_nobody_here_can_judge(tmp_path: Path) -> None:
    """A format that is not installed here."""
    laid(TRAINER, tmp_path, 0)
    assert seen(tmp_path, format_="theirs").view is View.UNKNOWN


def test_shards_of_another_number_of_ranks(tmp_path: Path) -> None:
    """Only the cuts show it, and the words say so."""
    laid("dcp/own-4/step-5", tmp_path, 1)
    found = seen(tmp_path, "step-5", 5, "dcp", world=2)
    assert (found.view, found.ranks) == (View.DIFFERS, ())
    assert "'__0.metadata' is missing" in found.why
    assert "is not cut as for rank 1 of 2" in found.why


def test_a_look_that_takes_too_long(tmp_path: Path) -> None:
    laid(TRAINER, tmp_path, 0)
    found = look_part(tmp_path, NAME, 5, "transformers", 2, "", Patience(()), lambda: True)
    assert (found.view, found.ranks) == (View.UNKNOWN, ())


def test_what_may_not_be_read() -> None:
    """In a folder of its own, which users may enter that are not root: root may read everything."""
    me = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        directory.chmod(0o755)
        place = laid(TRAINER, directory, 0)
        place.chmod(0)
        try:
            if me == 0:
                os.seteuid(65534)
            found = seen(directory)
        finally:
            os.seteuid(me)
            place.chmod(0o700)
    assert (found.view, found.ranks) == (View.UNKNOWN, ())
    assert "Permission denied" in found.why


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    """What it holds is not known: that nothing is there would let the job begin anew."""
    (tmp_path / "kept").write_text("")
    assert seen(tmp_path / "kept").view is View.UNKNOWN
    with pytest.raises(Unreadable):
        newest_part(tmp_path / "kept", 2)


def test_the_newest_of_which_a_part_is_here(tmp_path: Path) -> None:
    assert newest_part(tmp_path, 2) == ()
    laid(TRAINER, tmp_path, 0)
    assert newest_part(tmp_path, 2) == ((NAME, 5),)
    laid(ACCELERATE, tmp_path, 1).rename(tmp_path / "checkpoint_9")
    assert newest_part(tmp_path, 2) == (("checkpoint_9", 9),)
    shutil.copy(SAMPLES / ACCELERATE / "random_states_0.pkl", tmp_path / "checkpoint_9")  # now it is all here
    assert newest_part(tmp_path, 2) == ((NAME, 5),)
    os.truncate(tmp_path / NAME / "rng_state_0.pth", 0)
    assert newest_part(tmp_path, 2) == ()


def test_whether_one_is_a_part(tmp_path: Path) -> None:
    place = laid(TRAINER, tmp_path, 1)
    assert is_part(tmp_path, NAME, Asked(world=2))
    assert not is_part(tmp_path, "checkpoint-6", Asked(world=2))
    shutil.copy(SAMPLES / TRAINER / "rng_state_0.pth", place)
    assert not is_part(tmp_path, NAME, Asked(world=2))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory on no device, as those of a network are: what is absent there is doubted."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_the_very_folder_that_the_choosing_node_has_read_is_not_read_again(tmp_path: Path) -> None:
    """Where all nodes share the directory, each of them would read a step that is torn."""
    part = laid(TRAINER, tmp_path, 0)
    sign = sign_of(part)
    data = bytearray((part / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 255
    (part / "optimizer.pt").write_bytes(data)
    assert look_part(tmp_path, NAME, 5, "transformers", 2, sign, Patience(())) == Part(View.CAN, "", (0,))
    shutil.copytree(part, tmp_path / "local" / NAME)
    assert look_part(tmp_path / "local", NAME, 5, "transformers", 2, sign, Patience(())).view is View.DIFFERS


def test_files_that_are_hidden_for_a_while_are_waited_for_before_it_is_called_a_part(shared: Path) -> None:
    """In a directory that all nodes share: whoever believed the first look would call a whole step torn."""
    part, rest = laid(TRAINER, shared, 0, 1) / "rng_state_1.pth", shared / "rest"

    def shows(_: float) -> None:
        rest.rename(part)

    part.rename(rest)
    choice = search(shared, Asked(world=2, part=True), Patience((1.0,), shows))
    assert (choice.path, choice.ranks) == (str(part.parent), ())
    part.rename(rest)
    assert look_part(shared, NAME, 5, "transformers", 2, "", Patience((1.0,), shows)) == Part(View.CAN, "", (0, 1))


def test_on_a_device_nothing_is_hidden(tmp_path: Path) -> None:
    laid(TRAINER, tmp_path, 0)
    if not Folder(tmp_path, NAME).on_device:
        assert os.major(tmp_path.stat().st_dev) == 0
        return
    assert search(tmp_path, Asked(world=2, part=True), Patience((1.0,), pytest.fail)).ranks == (0,)
