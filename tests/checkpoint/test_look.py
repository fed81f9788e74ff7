"""How a checkpoint looks from another node: shared, copied, torn, absent, hidden for a while; on real files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES
from steps_on_disk import copied, published

from remuster.checkpoint.errors import Unreadable
from remuster.checkpoint.layout import COMMITTED, MANIFEST, step_name
from remuster.checkpoint.look import Looked, Print, View, awaited, look, print_of, steps
from remuster.checkpoint.patience import Patience

CAN = Looked(View.CAN)
NAME = step_name(20)


def seen(directory: Path, there: Print, name: str = NAME) -> Looked:
    return look(directory, name, there, Patience(()))


def test_the_same_directory_and_a_whole_copy(tmp_path: Path) -> None:
    path = published(tmp_path / "one", 20)
    there = print_of(path)
    assert (there.files, there.bytes) == (8, sum(f.stat().st_size for f in path.glob("part-*")))
    assert seen(tmp_path / "one", there) == CAN
    assert seen(copied(path, tmp_path / "two"), there) == CAN
    assert print_of(tmp_path / "two" / NAME).digest == there.digest
    assert print_of(tmp_path / "two" / NAME).sign != there.sign


def test_what_is_missing_is_counted_and_named(tmp_path: Path) -> None:
    path = published(tmp_path / "one", 20)
    there = print_of(path)
    two = copied(path, tmp_path / "two")
    for i in (1, 3, 5, 7):
        (two / NAME / f"part-{i}").unlink()
    why = "4 of 8 files are not there ('part-1', 'part-3', 'part-5', …)"
    assert seen(two, there) == Looked(View.LACKS, why)
    (two / NAME / COMMITTED).unlink()
    assert seen(two, there) == Looked(View.LACKS, "'COMMITTED' is missing")
    shutil.rmtree(two / NAME)
    assert seen(two, there) == Looked(View.LACKS, "it is not there (8 files)")
    away = tmp_path / "nowhere"
    assert seen(away, there) == Looked(
        View.LACKS, f"it is not there (8 files), and there is no directory {str(away)!a}"
    )


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda p: (p / "part-2").write_bytes(b"short"), "'part-2' has 5 bytes; its manifest says 16"),
        (lambda p: (p / "part-2").write_bytes(b"x" * 16), "'part-2' has not the content that was published"),
        (lambda p: (p / MANIFEST).write_text("{}"), "their digests differ"),
        (lambda p: (p / COMMITTED).write_text("sha256:"), "COMMITTED"),
    ],
    ids=["size", "content", "manifest", "marker"],
)
def test_a_copy_that_is_bad_is_another_thing_than_one_that_is_missing(tmp_path: Path, spoil: object, why: str) -> None:
    path = published(tmp_path / "one", 20)
    there = print_of(path)
    two = copied(path, tmp_path / "two")
    assert callable(spoil)
    spoil(two / NAME)
    found = seen(two, there)
    assert found.view is View.DIFFERS
    assert why in found.why


def test_another_checkpoint_of_the_same_step(tmp_path: Path) -> None:
    there = print_of(published(tmp_path / "one", 20))
    published(tmp_path / "two", 20, text="otherwise")
    assert seen(tmp_path / "two", there) == Looked(
        View.DIFFERS, "its manifest.json is not the one that the choosing node has"
    )


def test_where_the_directory_is_shared_nothing_is_hashed(tmp_path: Path) -> None:
    """Red when the sign is not compared: the leader has hashed it, and the others look at sizes alone."""
    path = published(tmp_path, 20)
    there = print_of(path)
    (path / "part-2").write_bytes(b"x" * 16)
    assert seen(tmp_path, there) == CAN
    (path / "part-2").write_bytes(b"short")
    assert seen(tmp_path, there).view is View.DIFFERS


def test_what_shows_late_is_waited_for(tmp_path: Path) -> None:
    path = published(tmp_path / "one", 20)
    there = print_of(path)
    two = tmp_path / "two"
    two.mkdir()
    hidden = [lambda: copied(path, two), lambda: None]
    assert look(two, NAME, there, Patience((0.1, 0.1), lambda _: hidden.pop(0)())) == CAN
    late = two / NAME / "part-3"
    data = late.read_bytes()
    late.unlink()
    assert look(two, NAME, there, Patience((0.1,), lambda _: late.write_bytes(data))) == CAN
    new = two / step_name(30)
    awaited(two, [step_name(30), "../evil"], Patience((0.1, 0.1), lambda _: new.mkdir(exist_ok=True)))
    assert new.is_dir()


def test_a_look_that_takes_too_long_says_that_nobody_can_tell(tmp_path: Path) -> None:
    path = published(tmp_path / "one", 20)
    two = copied(path, tmp_path / "two")
    assert look(two, NAME, print_of(path), Patience(()), lambda: True).view is View.UNKNOWN


def test_formats_without_a_manifest_by_names_and_sizes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        (root / "checkpoint-7" / "sub").mkdir(parents=True)
        for name in ("model.bin", "sub/state.bin"):
            (root / "checkpoint-7" / name).write_bytes(b"12345")
    there = print_of(one / "checkpoint-7")
    assert seen(two, there, "checkpoint-7") == CAN
    (two / "checkpoint-7" / "model.bin").write_bytes(b"1234")
    why = "there are 2 files of 9 bytes, not 2 of 10"
    assert seen(two, there, "checkpoint-7") == Looked(View.DIFFERS, why)
    (two / "checkpoint-7" / "model.bin").unlink()
    assert seen(two, there, "checkpoint-7") == Looked(View.LACKS, "1 of 2 files are not there")
    (two / "checkpoint-7" / "moodel.bin").write_bytes(b"12345")
    assert seen(two, there, "checkpoint-7") == Looked(View.DIFFERS, "names or sizes of its files are others")
    (one / "last.pt").write_bytes(b"123")
    (two / "last.pt").write_bytes(b"123")
    assert seen(two, print_of(one / "last.pt"), "last.pt") == CAN


@pytest.mark.parametrize("name", ["", ".", "..", "../one", "/etc/passwd", "a/../../one"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    there = print_of(published(tmp_path / "one", 20))
    assert seen(tmp_path / "one", there, name).view is View.DIFFERS


def test_what_may_not_be_read(tmp_path: Path) -> None:
    path = published(tmp_path, 20)
    there = print_of(path)
    path.chmod(0)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)  # root may read everything
        assert seen(tmp_path, there).view in (View.DIFFERS, View.LACKS)
    finally:
        os.seteuid(me)
        path.chmod(0o700)


def test_the_steps_of_a_node_newest_first(tmp_path: Path) -> None:
    for step in (5, 10, 20, 30):
        published(tmp_path, step, 1)
    (tmp_path / step_name(30) / COMMITTED).unlink()
    (tmp_path / step_name(5) / COMMITTED).unlink()
    (tmp_path / "foreign").mkdir()
    assert steps(tmp_path, 10, 32) == ((step_name(20), 20), (step_name(10), 10), (step_name(5), 5))
    assert steps(tmp_path, 30, 10) == ((step_name(30), 30), (step_name(20), 20))
    assert steps(tmp_path / "nowhere", -1, 32) == ()
    with pytest.raises(Unreadable):
        steps(tmp_path / step_name(5) / MANIFEST, -1, 32)


def test_the_files_of_the_first_ranks_alone_are_none_that_somebody_has(tmp_path: Path) -> None:
    """Where nothing records how many ranks there were, the round's number tells a node's part from all of it."""
    kept = tmp_path / "kept"
    shutil.copytree(SAMPLES / "accelerate" / "complete", kept)
    (kept / "checkpoint_5" / "random_states_1.pkl").unlink()
    assert steps(kept, -1, 8, 2) == ()
    assert steps(kept, -1, 8, 1) == (("checkpoint_5", 5),)
