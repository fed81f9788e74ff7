"""Choosing among real files, torn in every way: it never takes a torn step, never deletes one, and says why."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from remuster.checkpoint import publish
from remuster.checkpoint.errors import GaveUp, Unreadable
from remuster.checkpoint.examine import Asked, Seen
from remuster.checkpoint.manifest import MAX_BYTES, committed
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import Choice, search
from remuster.checkpoint.verify import Refused, Verified, verify

Publish = Callable[..., Path]
Find = Callable[..., Choice]
Tear = Callable[[Path], object]


def edit(change: Callable[[dict[str, object]], object], commit: bool = False) -> Tear:
    """Change the manifest, and make COMMITTED agree if asked: a writer that lies, rather than a torn file."""

    def tear(step: Path) -> None:
        data = json.loads((step / "manifest.json").read_bytes())
        change(data)
        text = json.dumps(data).encode()
        (step / "manifest.json").write_bytes(text)
        if commit:
            (step / "COMMITTED").write_bytes(committed(text))

    return tear


def replaced(name: str, make: Callable[[Path], object]) -> Tear:
    def tear(step: Path) -> None:
        (step / name).rename(step.parent / "kept-outside")
        make(step / name)

    return tear


def flip(step: Path) -> None:
    with open(step / "model.pt", "r+b") as f:
        f.seek(3500)
        byte = f.read(1)
        f.seek(3500)
        f.write(bytes([byte[0] ^ 1]))


def whole(data: bytes) -> list[dict[str, object]]:
    return [{"path": "../outside.bin", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}]


def away(step: Path) -> None:
    step.rename(step.parent / "elsewhere")


def file_instead(step: Path) -> None:
    shutil.rmtree(step)
    step.write_bytes(b"")


def linked(step: Path) -> None:
    away(step)
    step.symlink_to("elsewhere")


def linked_folder(step: Path) -> None:
    (step / "shards").rename(step.parent / "shards-elsewhere")
    (step / "shards").symlink_to("../shards-elsewhere")


TORN: list[tuple[str, Tear, str]] = [
    ("one byte less", lambda d: os.truncate(d / "model.pt", 6999), "'model.pt' has 6999 bytes; its manifest says 7000"),
    ("one byte more", lambda d: os.truncate(d / "model.pt", 7001), "'model.pt' has 7001 bytes"),
    ("empty", lambda d: os.truncate(d / "model.pt", 0), "'model.pt' has 0 bytes"),
    ("zero-filled", lambda d: (d / "model.pt").write_bytes(bytes(7000)), "sha256 differs"),
    ("one bit", flip, "sha256 differs"),
    ("no data", lambda d: (d / "model.pt").unlink(), "'model.pt' is missing"),
    ("no data below", lambda d: shutil.rmtree(d / "shards"), "'shards' is missing"),
    ("data a link outside", replaced("model.pt", lambda p: p.symlink_to("../kept-outside")), "symbolic link"),
    ("data a link inside", replaced("model.pt", lambda p: p.symlink_to("shards/0.bin")), "symbolic link"),
    ("folder a link outside", linked_folder, "symbolic link"),
    ("data a FIFO", replaced("model.pt", os.mkfifo), "is not a regular file"),
    ("data a folder", replaced("model.pt", Path.mkdir), "is not a regular file"),
    ("no COMMITTED", lambda d: (d / "COMMITTED").unlink(), "'COMMITTED' is missing"),
    ("empty COMMITTED", lambda d: (d / "COMMITTED").write_bytes(b""), "COMMITTED does not hold"),
    ("half COMMITTED", lambda d: os.truncate(d / "COMMITTED", 40), "COMMITTED does not hold"),
    ("other COMMITTED", lambda d: (d / "COMMITTED").write_bytes(committed(b"")), "their digests differ"),
    ("huge COMMITTED", lambda d: os.truncate(d / "COMMITTED", 1 << 40), "more than the 256 allowed"),
    ("COMMITTED a FIFO", replaced("COMMITTED", os.mkfifo), "is not a regular file"),
    ("no manifest", lambda d: (d / "manifest.json").unlink(), "'manifest.json' is missing"),
    ("half manifest", lambda d: os.truncate(d / "manifest.json", 100), "their digests differ"),
    ("manifest edited", edit(lambda m: m.update(dataset_snapshot="x")), "their digests differ"),
    ("huge manifest", lambda d: os.truncate(d / "manifest.json", MAX_BYTES + 1), "more than the"),
    ("foreign manifest", edit(lambda m: m.clear(), commit=True), "has no 'schema_version'"),
    ("newer manifest", edit(lambda m: m.update(schema_version=9), commit=True), "schema_version 9"),
    ("other step", edit(lambda m: m.update(step=7), commit=True), "manifest.json is of step 7"),
    ("escaping", edit(lambda m: m.update(files=whole(b"x")), commit=True), "'..' part"),
    ("no files", edit(lambda m: m.update(files=[]), commit=True), "lists no files"),
    ("step a file", file_instead, "where a real directory is needed"),
    ("step a link", linked, "symbolic link"),
    ("step a dangling link", lambda d: (away(d), d.symlink_to("nowhere")), "symbolic link"),
]


def listing(directory: Path) -> list[str]:
    return sorted(str(p) for p in directory.rglob("*"))


@pytest.mark.parametrize(("tear", "words"), [pytest.param(t, w, id=i) for i, t, w in TORN])
def test_a_torn_step_is_named_kept_and_passed_over(
    tmp_path: Path, publish_step: Publish, find: Find, tear: Tear, words: str
) -> None:
    (tmp_path / "outside.bin").write_bytes(b"x")
    previous, newest = publish_step(10), publish_step(20)
    assert find().path == str(newest)
    tear(newest)
    before = listing(tmp_path)
    choice = find()
    assert (choice.path, choice.step, choice.format) == (str(previous), 10, "manifest")
    [(name, reason)] = choice.refused
    assert name == newest.name
    assert words in reason
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "hint",
    [
        None,
        b"",
        b"global",
        b"[]",
        b'"step-000000000020"',
        b'{"name": 7}',
        b'{"name": "../step-000000000099"}',
        b'{"name": "step-000000000010"}',
        b'{"name": "step-000000000005"}',
        b"[" * 4000,
        b"\xff" * 9999,
    ],
)
def test_the_pointer_is_only_a_hint(tmp_path: Path, publish_step: Publish, find: Find, hint: bytes | None) -> None:
    publish_step(10)
    newest = publish_step(20)
    (tmp_path / "latest.json").unlink()
    if hint is not None:
        (tmp_path / "latest.json").write_bytes(hint)
    assert find() == Choice(str(newest), 20, "manifest", find().verified, ())


def test_a_pointer_to_a_step_that_is_not_there_is_doubted_then_said(tmp_path: Path, publish_step: Publish) -> None:
    publish_step(10)
    publish_step(20).rename(tmp_path / "not-yet-visible")
    waits: list[float] = []
    choice = search(tmp_path, Asked("run-a"), Patience((1, 2), waits.append))
    assert (choice.step, waits) == (10, [1, 2])
    assert choice.refused == (("step-000000000020", "latest.json names it, but it is not there"),)

    def appear(_: float) -> None:
        (tmp_path / "not-yet-visible").rename(tmp_path / "step-000000000020")

    assert search(tmp_path, Asked("run-a"), Patience((1, 2), appear)) == Choice(
        str(tmp_path / "step-000000000020"), 20, "manifest", choice.verified, ()
    )


@pytest.mark.parametrize("name", ["COMMITTED", "manifest.json", "model.pt", "shards/0.bin"])
def test_a_file_that_seems_absent_is_doubted(tmp_path: Path, publish_step: Publish, name: str) -> None:
    newest = publish_step(20)
    (newest / name).rename(tmp_path / "hidden")

    def appear(_: float) -> None:
        (tmp_path / "hidden").rename(newest / name)

    assert isinstance(verify(newest, Patience((1,), appear)), Verified)


def test_the_waits_of_a_whole_selection_are_bounded(tmp_path: Path, publish_step: Publish) -> None:
    for step in range(1, 6):
        (publish_step(step) / "COMMITTED").unlink()
    waits: list[float] = []
    choice = search(tmp_path, Asked("run-a"), Patience((1, 2, 3), waits.append))
    assert (choice.path, choice.step, len(choice.refused), waits) == ("", -1, 5, [1, 2, 3])


def test_only_the_published_name_is_taken_and_no_unfinished_one_is_told_of(
    tmp_path: Path, publish_step: Publish, find: Find
) -> None:
    whole = publish_step(10)
    for name in (
        "step-000000000020.tmp-0",
        "step-000000000020.tmp-attempt-03",
        "step-000000000020.superseded-1-0",
        "step-20",
        "step-0000000000020",
        "step-٠٠٠٠٠٠٠٠٠٠٢٠",
        "global_step20",
        ".remuster",
        "step-000000000020\n",
    ):
        shutil.copytree(whole, tmp_path / name)
    os.mkdir(os.fsencode(tmp_path) + b"/step-\xff\xfe")
    choice = find()
    assert choice.path == str(whole)
    assert {name for name, _ in choice.refused} == {
        "step-20",
        "step-0000000000020",
        "global_step20",
        r"step-000000000020\n",
    }
    assert all("is not the name of a published step" in reason for _, reason in choice.refused)


def test_only_as_much_is_hashed_as_the_answer_needs(publish_step: Publish, find: Find) -> None:
    (publish_step(10) / "model.pt").unlink()
    publish_step(20)
    assert (find().step, find().refused) == (20, ())


def test_more_files_than_threads(tmp_path: Path, publish_step: Publish, find: Find) -> None:
    from remuster.checkpoint import publish

    previous = publish_step(10)
    with publish(20, tmp_path) as p:
        for i in range(50):
            p.path(f"shards/{i:02}/data.bin").write_bytes(b"%d" % i * 99)
    (tmp_path / "step-000000000020" / "of-nobody.bin").write_bytes(b"an extra file is nobody's business")
    assert find().step == 20
    assert "sha256 of 50 file(s)" in find().verified
    (tmp_path / "step-000000000020/shards/31/data.bin").write_bytes(b"13" * 99)
    assert find().path == str(previous)
    assert "'shards/31/data.bin' has not the content" in find().refused[0][1]


def test_a_stale_step_is_refused_before_it_is_read(publish_step: Publish, find: Find) -> None:
    publish_step(10, round_=1)
    thawed = publish_step(30, round_=1)
    (thawed / "model.pt").unlink()
    choice = find(history=((1, None), (2, 10)))
    assert choice.step == 10
    assert "stale: published by round 1, but round 2 had already resumed from step 10" in choice.refused[0][1]
    publish_step(20, round_=2)
    assert find(history=((1, None), (2, 10))).step == 20
    assert find(history=((1, None), (2, 10)), run="run-b").refused[0][1] == "'model.pt' is missing"


def test_what_another_node_objects_to_is_passed_over_unread(tmp_path: Path, publish_step: Publish) -> None:
    publish_step(10)
    (publish_step(20) / "model.pt").unlink()
    objections = {"step-000000000020": "node b lacks it"}
    choice = search(tmp_path, Asked(objection=lambda name: objections.get(name, "")), Patience(()))
    assert (choice.step, choice.refused) == (10, (("step-000000000020", "node b lacks it"),))


def test_only_what_is_older_than_a_suspect_is_taken(tmp_path: Path, publish_step: Publish) -> None:
    """Unfinished ones are still no news."""
    for step in (10, 20, 30):
        publish_step(step)
    publish_step(40).rename(tmp_path / "step-000000000040.tmp-3")
    choice = search(tmp_path, Asked(below=(20, "suspect")), Patience(()))
    assert choice.step == 10
    assert choice.refused == (("step-000000000030", "suspect"), ("step-000000000020", "suspect"))
    assert search(tmp_path, Asked(below=(10, "suspect")), Patience(())).path == ""


def test_nothing_to_resume_from(tmp_path: Path, find: Find) -> None:
    assert find() == Choice()
    absent = search(tmp_path / "absent", Asked("run-a"))
    assert (absent.path, absent.step) == ("", -1)
    assert absent.refused == ((str(tmp_path / "absent"), "this checkpoint directory does not exist"),)


def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unreadable, match=r"cannot be listed: Not a directory; mount or repair it"):
        search(tmp_path / "file", Asked("run-a"))


def test_the_caller_can_end_it(publish_step: Publish, tmp_path: Path) -> None:
    publish_step(10)
    asked: list[int] = []

    def give_up() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(GaveUp, match="time for verifying checkpoints was over"):
        search(tmp_path, Asked(give_up=give_up), Patience(()))


def test_a_step_of_the_older_spelling_and_its_torn_twins(tmp_path: Path) -> None:
    """A manifest without incarnation, as an earlier publisher wrote it; and what kills left of the next step."""
    whole, data = tmp_path / "step-000000000005", b"PK" * 999
    whole.mkdir()
    (whole / "state.pt").write_bytes(data)
    manifest = {
        "schema_version": 1,
        "run_id": "run-digits-001",
        "attempt": 2,
        "round": 2,
        "step": 5,
        "world_size": 2,
        "parallelism": {"dp": 2},
        "framework": {"name": "pytorch", "version": "2.13.0+cpu"},
        "code_commit": None,
        "dataset_snapshot": "sklearn-digits-1797",
        "files": [{"path": "state.pt", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}],
        "created_at": "2026-11-29T11:39:00Z",
    }
    text = json.dumps(manifest, indent=1).encode()
    (whole / "manifest.json").write_bytes(text)
    (whole / "COMMITTED").write_text(f"sha256:{hashlib.sha256(text).hexdigest()}\n")
    assert isinstance(verify(whole, Patience(())), Verified)
    assert search(tmp_path, Asked("run-digits-001", ((1, None), (2, None)))).step == 5
    for step, left in ((10, ["state.pt"]), (15, ["state.pt", "manifest.json"]), (5, list(os.listdir(whole)))):
        twin = tmp_path / f"step-{step:012d}.tmp-attempt-03"
        twin.mkdir()
        for name in left:
            shutil.copy(whole / name, twin / name)
        assert isinstance(verify(twin, Patience(())), Refused)
    assert search(tmp_path, Asked("run-digits-001")).refused == ()


def test_a_step_may_be_deeper_than_any_frameworks(tmp_path: Path) -> None:
    """Red when what was seen before is looked for in a way that such a step cannot be."""
    name = "/".join("abcdefghijkl")
    with publish(5, directory=tmp_path, gather=lambda text: [text], rank=0) as p:
        p.path(name).write_bytes(b"data")
    seen: Seen = {}
    assert search(tmp_path, Asked(), Patience(()), seen).step == 5
    (tmp_path / "step-000000000005" / name).write_bytes(b"dat!")
    assert search(tmp_path, Asked(), Patience(()), seen).path == ""
