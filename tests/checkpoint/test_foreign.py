"""Checkpoints of frameworks among others: walked newest first, doubted when something is absent, read once only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES
from like_torch import dcp, saved

from remuster.checkpoint.examine import Asked, Seen
from remuster.checkpoint.formats.finding import Whole
from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import Choice, looks, newest, search

SHARD, SIZE = "__0_0.distcp", len(saved(1))


def find(directory: Path, **asked: object) -> Choice:
    return search(directory, Asked(deep=False, **asked), Patience(()))  # type: ignore[arg-type]


TORN: list[tuple[str, Callable[[Path], object], str]] = [
    ("no metadata", lambda d: (d / ".metadata").unlink(), "'.metadata' is missing"),
    ("metadata not renamed", lambda d: (d / ".metadata").rename(d / ".metadata.tmp"), "only .metadata.tmp"),
    ("half of the metadata", lambda d: os.truncate(d / ".metadata", 40), "'.metadata' cannot be read"),
    ("short shard", lambda d: os.truncate(d / SHARD, 99), f"has 99 bytes; .metadata needs {SIZE}"),
    ("no shard", lambda d: (d / SHARD).unlink(), "1 of 1 shard files are missing"),
    ("shard a link", lambda d: ((d / SHARD).rename(d / "x"), (d / SHARD).symlink_to("x")), "missing"),
    ("empty", lambda d: (shutil.rmtree(d), d.mkdir()), "none of the formats"),
    ("a link", lambda d: (d.rename(d.parent / "else"), d.symlink_to("else")), "symbolic link"),
]


@pytest.mark.parametrize(("tear", "words"), [pytest.param(t, w, id=i) for i, t, w in TORN])
def test_b48_the_newest_whole_one_is_taken_and_a_half_written_one_named(
    tmp_path: Path, tear: Callable[[Path], object], words: str
) -> None:
    """A launcher that takes the highest number dies of the same half-written one at every restart."""
    previous, torn = dcp(tmp_path, "step-10"), dcp(tmp_path, "step-20")
    assert find(tmp_path).path == str(torn)
    tear(torn)
    for _ in range(3):  # at every restart the same
        choice = find(tmp_path)
        assert (choice.path, choice.step, choice.format) == (str(previous), 10, "dcp")
        [(name, reason)] = choice.refused
        assert name == "step-20"
        assert words in reason
    assert os.path.lexists(torn)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (None, "", ()),
        ("latest", "", ()),
        ("latest", "step-30", (("step-30", "latest names it, but it is not there"),)),
        ("latest", "step-20", ()),
        ("latest", "step-5", ()),
        ("latest", "glo", ()),
        ("latest", "../step-99", ()),
        (
            "latest_checkpointed_iteration.txt",
            "30",
            (("iter_0000030", "latest_checkpointed_iteration.txt names it, but it is not there"),),
        ),
        ("latest_checkpointed_iteration.txt", "1", ()),
        ("latest_checkpointed_iteration.txt", "release", ()),
        ("latest_checkpointed_iteration.txt", "-30", ()),
        ("latest_checkpointed_iteration.txt", "3_0", ()),
    ],
)
def test_b49_whatever_the_pointer_says_the_same_good_step_is_found(
    tmp_path: Path, file: str | None, text: str, said: tuple[tuple[str, str], ...]
) -> None:
    """The pointer removed, empty, naming a missing one, naming an uncommitted one, stale."""
    good = dcp(tmp_path, "step-10")
    (dcp(tmp_path, "step-20") / ".metadata").unlink()
    if file is not None:
        (tmp_path / file).write_text(text)
    choice = find(tmp_path)
    assert choice.path == str(good)
    assert choice.refused == (*said, ("step-20", "'.metadata' is missing"))


def test_absence_is_doubted_while_patience_lasts(tmp_path: Path) -> None:
    """An NFS client may not see for seconds what another node has just written."""
    step = dcp(tmp_path, "step-10")
    hidden = (step / SHARD).rename(tmp_path / ".hidden")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            hidden.rename(step / SHARD)

    choice = search(tmp_path, Asked(deep=False), Patience((1, 2, 3), wait))
    assert (choice.path, waits) == (str(step), [1, 2])


def test_what_was_found_whole_is_read_again_only_when_a_file_has_changed(tmp_path: Path) -> None:
    step = dcp(tmp_path, "step-10")
    seen: Seen = {(str(step), "dcp", None, None): (Folder(tmp_path, "step-10").stamp, Whole("as before"))}
    assert search(tmp_path, Asked(), Patience(()), seen).verified == "as before"
    os.truncate(step / SHARD, 99)
    assert search(tmp_path, Asked(), Patience(()), seen).path == ""


def test_what_was_found_whole_for_so_many_ranks_is_judged_anew_for_others(tmp_path: Path) -> None:
    """Saved without collectives by two ranks, as the run's rounds say too: four ranks cannot load it."""
    shutil.copytree(SAMPLES / "dcp" / "own-2" / "step-5", tmp_path / "step-5")
    seen: Seen = {}
    for world, taken in ((2, True), (4, False)):
        choice = search(tmp_path, Asked(world=world, worlds=((1, None, 2),)), Patience(()), seen)
        assert bool(choice.path) is taken


def test_one_without_a_number_has_its_place_by_its_age(tmp_path: Path) -> None:
    for name, age in (("epoch=1-step=10.ckpt", 100), ("last.ckpt", 50), ("old.ckpt", 200), ("model.pt", 1)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    assert [look.name for look in looks(tmp_path, Asked())] == [
        "last.ckpt",
        "epoch=1-step=10.ckpt",
        "model.pt",
        "old.ckpt",
    ]


def test_a_checkpoint_given_in_place_of_its_directory_is_refused_in_words(tmp_path: Path) -> None:
    step = dcp(tmp_path, "step-10")
    assert find(step).path == ""
    assert find(step).astray == f"{step}: it is itself a checkpoint: give the directory that holds it"
    assert find(step).refused == ((str(step), "it is itself a checkpoint: give the directory that holds it"),)


def test_progress_is_seen_without_reading_content(tmp_path: Path) -> None:
    dcp(tmp_path, "step-10")
    dcp(tmp_path, "step-20", shard=bytes(8))
    found = newest(tmp_path, Asked(deep=False))
    assert found is not None
    assert found.step == 20
    assert newest(tmp_path / "none", Asked(deep=False)) is None


def test_a_format_that_is_asked_for_is_the_only_one(tmp_path: Path) -> None:
    step = dcp(tmp_path, "step-10")
    assert find(tmp_path, format="dcp").path == str(step)
    choice = find(tmp_path, format="manifest")
    assert choice.path == ""
    assert choice.refused[0][0] == "step-10"


def test_names_of_twelve_digits_may_be_anybodys(tmp_path: Path) -> None:
    step = dcp(tmp_path, "step-000000000010")
    assert (find(tmp_path).path, find(tmp_path).format) == (str(step), "dcp")


@pytest.mark.parametrize("target", ["epoch=0-step=5.ckpt", "./epoch=0-step=5.ckpt", "{directory}/epoch=0-step=5.ckpt"])
def test_a_link_to_what_lies_beside_it_is_no_news(tmp_path: Path, target: str) -> None:
    """Lightning's save_last='link': last.ckpt leads to the newest file of the same directory."""
    (tmp_path / "epoch=0-step=5.ckpt").write_bytes(saved(1))
    (tmp_path / "last.ckpt").symlink_to(target.format(directory=tmp_path))
    assert [look.name for look in looks(tmp_path, Asked(), Patience(()))] == ["epoch=0-step=5.ckpt"]


@pytest.mark.parametrize("target", ["gone.ckpt", "step-20", "last.ckpt", "/nowhere/step-20", "..", "."])
@pytest.mark.parametrize("name", ["step-20", "last.ckpt"])
def test_a_link_that_leads_nowhere_hides_no_checkpoint(tmp_path: Path, name: str, target: str) -> None:
    step = dcp(tmp_path, "step-10")
    (tmp_path / name).symlink_to(target)
    choice = find(tmp_path)
    assert choice.path == str(step)
    assert all("symbolic link" in reason for _, reason in choice.refused)


def test_the_files_of_a_checkpoint_are_not_taken_for_checkpoints(tmp_path: Path) -> None:
    for name in ("rng_state_0.pth", "rng_state_1.pth", "scheduler.pt", "optimizer.pt", "trainer_state.json"):
        (tmp_path / name).write_bytes(saved(1))
    assert find(tmp_path).refused == ((str(tmp_path), "it is itself a checkpoint: give the directory that holds it"),)


@pytest.mark.parametrize(
    ("file", "directory"),
    [
        ("run/step-10/__0_0.distcp", "run"),
        ("run/global_step10/mp_rank_00_model_states.pt", "run"),
        ("run/epoch=0-step=5.ckpt", "run"),
        ("run/version_0/checkpoints/epoch=0-step=5.ckpt", "run/version_0/checkpoints"),
    ],
)
def test_the_directory_above_is_refused_in_words(tmp_path: Path, file: str, directory: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(saved(1))
    [(name, reason)] = find(tmp_path).refused
    assert name == "run"
    assert f"give {directory!r} as the directory" in reason
    assert find(tmp_path).astray == find(tmp_path, format="dcp").astray == f"run: {reason}"


def _torn(path: Path) -> Path:
    (path / ".metadata").unlink()
    return path


@pytest.mark.parametrize(
    ("make", "format_", "astray"),
    [
        pytest.param(lambda d: dcp(d, "step-10"), "orbax", "step-10: it is of the format dcp, not orbax", id="another"),
        pytest.param(
            lambda d: dcp(d, "step-000000000010"),
            "manifest",
            "step-000000000010: it is of the format dcp, not manifest",
            id="by the name only",
        ),
        pytest.param(
            lambda d: ((d / "model-10.pt").write_bytes(saved(1)), _torn(dcp(d, "step-10"))),
            "orbax",
            "model-10.pt: it is of the format torch, not orbax",
            id="a file with a step",
        ),
        pytest.param(lambda d: (d / "best_model.pt").write_bytes(saved(1)), "dcp", "", id="some model"),
        pytest.param(lambda d: (d / "logs").mkdir(), "dcp", "", id="no checkpoint at all"),
        pytest.param(lambda d: _torn(dcp(d, "step-10")), "orbax", "", id="torn, perhaps in the first save"),
        pytest.param(lambda d: (dcp(d, "step-10"), dcp(d, "step-20")), "dcp", "", id="the right one"),
        pytest.param(
            lambda d: (_torn(dcp(d, "step-10")), (d / "iter_0000020").mkdir()), "dcp", "", id="the right one, torn"
        ),
        pytest.param(lambda d: (_torn(dcp(d, "step-10")), dcp(d / "run", "step-10")), "", "", id="torn, and one below"),
    ],
)
def test_a_format_by_which_nothing_can_be_read_is_doubted(
    tmp_path: Path, make: Callable[[Path], object], format_: str, astray: str
) -> None:
    make(tmp_path)
    assert find(tmp_path, format=format_).astray == astray


def test_a_model_beside_checkpoints_is_none_of_them(tmp_path: Path) -> None:
    """To begin from best_model.pt when every checkpoint is refused would be neither a resume nor a fresh start."""
    torn = dcp(tmp_path, "step-10")
    (torn / ".metadata").unlink()
    (tmp_path / "best_model.pt").write_bytes(saved(1))
    choice = find(tmp_path)
    assert choice.path == ""
    assert "beside dcp checkpoints" in dict(choice.refused)["best_model.pt"]
    assert find(tmp_path, format="torch").path == str(tmp_path / "best_model.pt")


def test_a_link_that_may_not_be_followed_hides_nothing(tmp_path: Path) -> None:
    """What lies behind /proc/1/fd/0 nobody may see, root in a container included, or it is something else."""
    step = dcp(tmp_path, "step-10")
    (tmp_path / "step-20").symlink_to("/proc/1/fd/0")
    assert find(tmp_path).path == str(step)


def test_a_file_that_is_cut_short_while_it_is_read_is_told_in_words(tmp_path: Path) -> None:
    for moment in range(40):
        step = tmp_path / f"{moment}" / "checkpoint_5"
        shutil.copytree(SAMPLES / "accelerate/complete/checkpoint_5", step)
        asked = iter(range(1000))

        def cut(step: Path = step, asked: Iterator[int] = asked, moment: int = moment) -> bool:
            if next(asked) == moment:
                os.truncate(step / "random_states_1.pkl", 99)
            return False

        choice = search(step.parent, Asked(give_up=cut), Patience(()))
        assert choice.path or "random_states_1.pkl" in choice.refused[0][1]


@pytest.mark.parametrize("step", [-1, 10**18, 10**4000], ids=["negative", "19 digits", "4001 digits"])
def test_a_step_that_is_none_is_refused(tmp_path: Path, step: int) -> None:
    """It would go into the job's record, and to the ranks."""
    (tmp_path / "last.pt").write_bytes(saved({"step": step}))
    choice = find(tmp_path)
    assert not choice.path or choice.step == 0
    (tmp_path / "step-5.pt").write_bytes(saved({"step": 10**18 - 1}))
    assert find(tmp_path).step == 10**18 - 1


@pytest.mark.parametrize("kept", ["lightning/complete", "ray/after-worker-kill/case", "dcp"])
def test_the_checkpoint_directory_may_be_a_link(tmp_path: Path, kept: str) -> None:
    """To scratch storage, usually. Single files and pointers are read through it too."""
    real = tmp_path / "real"
    if kept == "dcp":
        dcp(real, "step-10")
    else:
        shutil.copytree(SAMPLES / kept, real)
    (real / "latest").write_text("step-99999999999")
    (tmp_path / "link").symlink_to("real")
    (there, said), (here, _) = ((c.path, c.refused) for c in (find(real), find(tmp_path / "link")))
    assert here == there.replace("/real/", "/link/")
    assert here
    assert find(tmp_path / "link").refused == said
    assert said or kept == "ray/after-worker-kill/case"


def test_what_was_found_whole_is_not_looked_at_again_as_a_part(tmp_path: Path) -> None:
    """The metadata of many ranks takes seconds to read, and each round of a job with more than one node looks."""
    step = Path(shutil.copytree(SAMPLES / "dcp" / "own-2" / "step-5", tmp_path / "step-5"))
    for path in step.glob("__1*"):
        path.unlink()
    asked = Asked(world=2, part=True)
    assert search(tmp_path, asked, Patience(())).ranks == (0,)
    seen: Seen = {(str(step), "dcp", 2, None): (Folder(tmp_path, "step-5").stamp, Whole("as before"))}
    choice = search(tmp_path, asked, Patience(()), seen)
    assert (choice.verified, choice.ranks) == ("as before", ())
