"""Publishing: what lies on the disk afterwards, and that an error on any rank reaches every rank."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from remuster.checkpoint import Publication, PublishError, publish
from remuster.checkpoint.commit import commit
from remuster.checkpoint.disk import Disk
from remuster.checkpoint.manifest import FileEntry, Manifest
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import Choice
from remuster.checkpoint.verify import Verified, verify

Publish = Callable[..., Path]
Find = Callable[..., Choice]
Body = Callable[[Publication, int], object]


class Meeting:
    """An all-gather among threads: the ranks of a worker group in one process."""

    def __init__(self, size: int) -> None:
        self._texts = [""] * size
        self._barrier = threading.Barrier(size, timeout=20)

    def gather(self, rank: int) -> Callable[[str], Sequence[str]]:
        def meet(text: str) -> Sequence[str]:
            self._texts[rank] = text
            self._barrier.wait()
            texts = list(self._texts)
            self._barrier.wait()
            return texts

        return meet


def together(directory: Path, body: Body, size: int = 3, step: Callable[[int], int] = lambda rank: 20) -> list[str]:
    """Publish as ``size`` ranks; return what each got: an empty text, or its error."""
    meeting, got = Meeting(size), [""] * size

    def run(rank: int) -> None:
        try:
            with publish(step(rank), directory, gather=meeting.gather(rank), rank=rank) as p:
                body(p, rank)
        except (PublishError, ValueError, OSError) as e:
            got[rank] = f"{type(e).__name__}: {e}"

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def each_its_own(p: Publication, rank: int) -> None:
    p.path(f"rng-{rank}.pt").write_bytes(b"%d" % rank)


def test_every_rank_writes_and_one_step_comes_of_it(tmp_path: Path, find: Find) -> None:
    assert together(tmp_path, each_its_own) == ["", "", ""]
    step = tmp_path / "step-000000000020"
    manifest = json.loads((step / "manifest.json").read_bytes())
    assert [f["path"] for f in manifest["files"]] == ["rng-0.pt", "rng-1.pt", "rng-2.pt"]
    assert (manifest["world_size"], manifest["step"], manifest["run_id"]) == (3, 20, "")
    assert sorted(os.listdir(tmp_path)) == ["latest.json", step.name]
    assert json.loads((tmp_path / "latest.json").read_bytes()) == {"schema_version": 1, "step": 20, "name": step.name}
    assert find().path == str(step)


def test_the_manifest_says_who_published(publish_step: Publish) -> None:
    manifest = json.loads((publish_step(10, round_=3) / "manifest.json").read_bytes())
    assert list(manifest) == [
        "schema_version",
        "run_id",
        "attempt",
        "round",
        "incarnation",
        "step",
        "world_size",
        "parallelism",
        "framework",
        "code_commit",
        "dataset_snapshot",
        "files",
        "created_at",
        "save_ms",
    ]
    assert [manifest[k] for k in ("run_id", "attempt", "round", "incarnation")] == ["run-a", 2, 3, "6f"]


def full_disk(p: Publication, rank: int) -> None:
    path = p.path(f"rng-{rank}.pt")
    if rank == 1:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
    path.write_bytes(b"x")


def never_written(p: Publication, rank: int) -> None:
    path = p.path(f"rng-{rank}.pt")
    if rank != 2:
        path.write_bytes(b"x")


def same_name(p: Publication, rank: int) -> None:
    p.path("rng.pt").write_bytes(b"x")


def escaping(p: Publication, rank: int) -> None:
    p.path("../rng.pt" if rank == 1 else f"rng-{rank}.pt").write_bytes(b"x")


def failing_serializer(p: Publication, rank: int) -> None:
    p.path(f"rng-{rank}.pt").write_bytes(b"x")
    if rank == 1:
        raise ValueError("cannot pickle this")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (full_disk, "rank 1: step-000000000020.tmp-0/rng-1.pt: No space left on device"),
        (never_written, "rank 2: step-000000000020.tmp-0/rng-2.pt: No such file or directory"),
        (same_name, "rank 0: ranks 0 and 1 both wrote 'rng.pt'"),
        (escaping, "rank 1: ValueError: checkpoint file name '../rng.pt' has an empty, '.' or '..' part"),
        (failing_serializer, "rank 1: while writing rng-1.pt: ValueError: cannot pickle this"),
        (lambda p, rank: None, "rank 0: no rank wrote a file"),
    ],
)
def test_an_error_on_one_rank_reaches_all(
    tmp_path: Path, publish_step: Publish, find: Find, body: Body, words: str
) -> None:
    previous = publish_step(10)
    got = together(tmp_path, body)
    assert all(got), got
    spread = [text for text in got if text.startswith("PublishError")]
    assert len(spread) >= 2  # the rank at fault may keep its own exception
    for text in spread:
        assert words in text
        assert "Steps published before are untouched" in text
    assert find() == Choice(str(previous), 10, "manifest", find().verified, ())
    assert sorted(os.listdir(tmp_path)) == ["latest.json", previous.name]


def test_ranks_that_have_come_apart(tmp_path: Path) -> None:
    got = together(tmp_path, each_its_own, step=lambda rank: 20 + rank)
    assert set(got) == {"PublishError: rank 1 publishes step 21, but rank 0 step 20: the ranks have come apart"}


def test_a_directory_that_is_not_shared(tmp_path: Path) -> None:
    """Rank 1's file went to a disk of its own node: rank 0 doubts its eyes, within bounds, then says so."""
    (tmp_path / "step-000000000020.tmp-0").mkdir()
    manifest = Manifest("", 0, 0, 20, (FileEntry("rng-1.pt", 1, "ab" * 32),))
    waits: list[float] = []
    with pytest.raises(PublishError, match=r"'rng-1.pt' is not there: the checkpoint directory must be one shared by"):
        commit(tmp_path, manifest, Disk(), Patience((1, 2), waits.append))
    assert waits == [1, 2]
    (tmp_path / "step-000000000020.tmp-0" / "rng-1.pt").write_bytes(b"12")
    with pytest.raises(PublishError, match=r"'rng-1.pt' has 2 bytes here, 1 where it was written"):
        commit(tmp_path, manifest, Disk(), Patience(()))
    assert os.listdir(tmp_path) == ["step-000000000020.tmp-0"]


def test_a_real_full_file_system(tmp_path: Path, child_environ: dict[str, str]) -> None:
    """The kernel refuses the write (RLIMIT_FSIZE, as a quota would): both ranks of a child process are told."""
    child = (
        "import resource, sys, threading\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_publication import together\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "def body(p, rank): p.path(f'{rank}.pt').write_bytes(bytes(100 if rank else 9000))\n"
        f"print('\\n'.join(together(Path({str(tmp_path)!r}), body, size=2)))\n"
    )
    command = [sys.executable, "-c", child]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=child_environ)
    first, second = done.stdout.splitlines()
    assert first.startswith("OSError")
    assert "rank 0: while writing 0.pt: OSError: [Errno 27] File too large" in second


def test_more_ranks_than_one_need_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PublishError, match=r"WORLD_SIZE is 2, but this process has no initialised torch\.distributed"):
        publish(20, tmp_path)


@pytest.mark.parametrize("text", ["-1", "1.0", " 1", "x", "٣", "9" * 30])
def test_a_malformed_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("REMUSTER_ROUND", text)
    with pytest.raises(PublishError, match="REMUSTER_ROUND="):
        publish(20, tmp_path)


def test_where_to_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PublishError, match="no checkpoint directory"):
        publish(20)
    monkeypatch.setenv("REMUSTER_CHECKPOINT_DIR", str(tmp_path / "a" / "b"))
    with publish(20) as p:
        each_its_own(p, 0)
    assert isinstance(verify(tmp_path / "a" / "b" / "step-000000000020"), Verified)


def test_an_exit_inside_publishes_nothing_and_waits_for_nobody(tmp_path: Path) -> None:
    met: list[str] = []

    def gather(text: str) -> Sequence[str]:
        met.append(text)
        return [text]

    def leave() -> None:
        with publish(20, tmp_path, gather=gather) as p:
            each_its_own(p, 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert len(met) == 1
    assert os.listdir(tmp_path) == ["step-000000000020.tmp-0"]


def test_a_peer_that_is_gone(tmp_path: Path) -> None:
    def gather(text: str) -> Sequence[str]:
        raise RuntimeError("Connection closed by peer [10.0.0.7]:29500")

    with (
        pytest.raises(PublishError, match=r"the ranks could not agree: Connection closed by peer"),
        publish(20, tmp_path, gather=gather),
    ):
        pass


def test_what_an_earlier_try_of_the_same_attempt_left_is_not_published(tmp_path: Path) -> None:
    left = tmp_path / "step-000000000020.tmp-0"
    (left / "sub").mkdir(parents=True)
    (left / "COMMITTED").write_bytes(b"old")
    (left / "sub" / "rng-7.pt").write_bytes(b"old")
    other = tmp_path / "step-000000000020.tmp-3"
    other.mkdir()
    assert together(tmp_path, each_its_own) == ["", "", ""]
    assert not (tmp_path / "step-000000000020" / "sub").exists()
    assert other.exists()


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert together(tmp_path / "c", each_its_own, size=1) == [""]
    finally:
        os.umask(before)
    for path in (tmp_path / "c", *(tmp_path / "c").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def names(directory: Path) -> list[str]:
    return sorted(n for n in os.listdir(directory) if n.startswith("step-"))


def test_a_step_published_again_keeps_the_old_one_aside(tmp_path: Path, publish_step: Publish, find: Find) -> None:
    publish_step(20, round_=1, text=b"old")
    for round_ in (2, 2):
        publish_step(20, round_=round_, text=b"new")
    assert names(tmp_path) == [
        "step-000000000020",
        "step-000000000020.superseded-2-0",
        "step-000000000020.superseded-2-1",
    ]
    assert (tmp_path / "step-000000000020.superseded-2-0" / "model.pt").read_bytes() == b"old" * 1000
    assert find(history=((1, None), (2, None))).refused == ()
    assert find(history=((1, None), (2, None))).step == 20


def test_a_torn_step_in_the_way_is_kept_aside_too(tmp_path: Path, publish_step: Publish, find: Find) -> None:
    (publish_step(20) / "COMMITTED").unlink()
    publish_step(20, round_=2)
    assert find().step == 20
    assert not (tmp_path / "step-000000000020.superseded-2-0" / "COMMITTED").exists()


def test_a_worker_group_that_was_replaced_cannot_push_out_its_successors_step(
    tmp_path: Path, publish_step: Publish
) -> None:
    publish_step(20, round_=3, text=b"valid")
    with pytest.raises(PublishError, match="round 3 has already published step 20, and this is round 2"):
        publish_step(20, round_=2, text=b"stale")
    assert (tmp_path / "step-000000000020" / "model.pt").read_bytes() == b"valid" * 1000
    publish_step(20, round_=1, run="run-b")  # another run's rounds say nothing about ours
    assert len(names(tmp_path)) == 2


class Odd(Disk):
    """A file system with one oddity at a time, in front of the real one."""

    def __init__(self, oddity: str) -> None:
        self.oddity = oddity

    def rename_once(self, source: Path, target: Path) -> None:
        if self.oddity == "fails" and ".tmp-" in source.name:
            raise OSError(errno.EIO, "Input/output error", str(source))
        if self.oddity != "lost":
            super().rename_once(source, target)
        if self.oddity in ("reply lost", "lost"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(source))

    def write(self, path: Path, data: bytes) -> None:
        if self.oddity == "no pointer" and path.name.startswith("latest.json"):
            raise OSError(errno.EDQUOT, "Disk quota exceeded", str(path))
        super().write(path, data)


def test_a_rename_whose_reply_was_lost_has_happened(tmp_path: Path, find: Find) -> None:
    with publish(20, tmp_path, disk=Odd("reply lost")) as p:
        each_its_own(p, 0)
    assert find().step == 20


@pytest.mark.parametrize(("oddity", "words"), [("lost", "No such file or directory"), ("fails", "Input/output error")])
def test_a_rename_that_failed_leaves_the_old_step_in_place(
    tmp_path: Path, publish_step: Publish, find: Find, oddity: str, words: str
) -> None:
    publish_step(20, text=b"old")
    with pytest.raises(PublishError, match=words), publish(20, tmp_path, disk=Odd(oddity)) as p:
        each_its_own(p, 0)
    assert names(tmp_path) == ["step-000000000020"]
    assert find().step == 20
    assert (tmp_path / "step-000000000020" / "model.pt").exists()


def test_a_pointer_that_cannot_be_written_costs_no_step(
    tmp_path: Path, find: Find, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), publish(20, tmp_path, disk=Odd("no pointer")) as p:
        each_its_own(p, 0)
    assert find().step == 20
    assert "step 20 is published, but latest.json could not be updated" in caplog.text


def test_a_directory_that_cannot_be_synced_is_tolerated_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Disk().sync_dir(Path("/proc/self/task"))  # procfs answers EINVAL, as some network file systems do
    assert "fsync of directory /proc/self/task" in caplog.text
