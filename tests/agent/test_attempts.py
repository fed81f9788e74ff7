"""Records of attempts: what stands in them, that none is ever overwritten, and that all is private."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from remuster.agent.attempts import (
    AttemptFacts,
    AttemptState,
    Reentry,
    ReentryState,
    Times,
    attempt_record,
    mirror_directory,
    write_record,
)
from remuster.agent.run_dir import RunDirectoryError, attempt_directory, run_directory
from remuster.health.evidence import ErrorFile, Fenced, NodeEvidence, RankExit
from remuster.rendezvous.records import Incarnation, Member, NodeId, ResumePoint, Roster, Round

FACTS = AttemptFacts(
    run_id="run-7",
    launch="job.0",
    attempt=2,
    roster=Roster(
        Round(9),
        (
            Member(NodeId("a"), Incarnation(0x1A), "m1", 2, "10.0.0.1"),
            Member(NodeId("b"), Incarnation(0x2B), "m2", 1, "10.0.0.2"),
        ),
    ),
    state=AttemptState.RETRIED,
    exits=((2, -9), (0, 1)),
    verdict={"cls": "oom", "node": "b"},
    evidence=(
        NodeEvidence("b", (RankExit(2, 0, 77, -9, 1.5, error=ErrorFile("boom"), tail=("x",)), Fenced(2.0)), 120),
    ),
    resume=ResumePoint("/ckpt/step-000000000040", 40, "manifest", "digests"),
    refused=(("step-000000000050", "torn"),),
    reentry=Reentry(ReentryState.RECOVERED, 20, "steps, loss", 60),
    times=Times(detect=0.4, stop=120.0),
    started_at=1_795_951_311.25,
)


def test_the_record() -> None:
    record = attempt_record(FACTS)
    evidence = record.pop("evidence")
    assert record == {
        "schema_version": 1,
        "run_id": "run-7",
        "launch": "job.0",
        "attempt": 2,
        "round": 9,
        "state": "retried",
        "started_at": "2026-11-29T11:21:51.250+00:00",
        "ended_at": None,
        "world_size": 3,
        "members": [
            {
                "node": "a",
                "machine": "m1",
                "incarnation": "1a",
                "address": "10.0.0.1",
                "slots": 2,
                "ranks": [0, 1],
            },
            {"node": "b", "machine": "m2", "incarnation": "2b", "address": "10.0.0.2", "slots": 1, "ranks": [2]},
        ],
        "exit_codes": {"0": 1, "2": -9},
        "verdict": {"cls": "oom", "node": "b"},
        "resume": {"path": "/ckpt/step-000000000040", "step": 40, "format": "manifest", "verified": "digests"},
        "refused": [{"name": "step-000000000050", "reason": "torn"}],
        "reentry": {
            "state": "recovered",
            "steps": 20,
            "by": "steps, loss",
            "checkpoint": 60,
            "reason": None,
        },
        "times_ms": {
            "detect": 0.4,
            "stop": 120.0,
            "decide": None,
            "form": None,
            "spawn": None,
            "recovery": None,
            "load": None,
            "save": None,
        },
    }
    assert isinstance(evidence, list)
    assert json.loads(json.dumps(evidence))[0]["node"] == "b"
    assert [fact["is"] for fact in evidence[0]["facts"]] == ["exit", "fenced"]
    assert evidence[0]["facts"][0]["status"] == -9


def test_a_record_of_a_start_from_nothing() -> None:
    bare = replace(FACTS, resume=ResumePoint(), reentry=None, verdict=None, state=AttemptState.DONE)
    record = attempt_record(bare)
    assert (record["resume"], record["reentry"], record["verdict"], record["state"]) == (None, None, None, "done")


def test_a_record_is_written_whole_private_and_never_twice(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "attempts"
    paths = [write_record(directory, 2, {"n": n}) for n in range(3)]
    assert [p.name for p in paths] == ["attempt-002.json", "attempt-002.1.json", "attempt-002.2.json"]
    assert [json.loads(p.read_text()) for p in paths] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert sorted(os.listdir(directory)) == sorted(p.name for p in paths)  # no temporary is left
    assert {p.stat().st_mode & 0o777 for p in paths} == {0o600}
    assert {p.stat().st_mode & 0o777 for p in (directory, directory.parent)} == {0o700}


def test_writers_at_the_same_time_overwrite_nothing(tmp_path: Path) -> None:
    threads = [threading.Thread(target=write_record, args=(tmp_path, 0, {"n": n})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(p.read_text())["n"] for p in tmp_path.glob("attempt-*.json")) == list(range(8))


def test_a_record_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_record(tmp_path, 0, {"n": object()})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("run_id", "name"),
    [
        ("run-7", "run-7"),
        ("a b", "a_b-[0-9a-f]{8}"),
        ("../x", "_x-[0-9a-f]{8}"),
        ("..", "-[0-9a-f]{8}"),
        (".hidden", "hidden-[0-9a-f]{8}"),
        ("", "-[0-9a-f]{8}"),
        ("n" * 300, "n{100}-[0-9a-f]{8}"),
    ],
)
def test_a_run_id_is_a_safe_name(run_id: str, name: str) -> None:
    mirror = mirror_directory(Path("/ckpt"), run_id)
    assert re.fullmatch(f"/ckpt/.remuster/{name}/attempts", str(mirror))
    assert mirror != mirror_directory(Path("/ckpt"), run_id + "_")


def test_run_directories_are_new_and_private(tmp_path: Path) -> None:
    a, b = run_directory(tmp_path / "logs" / "deep", "run-7"), run_directory(tmp_path / "logs" / "deep", "run-7")
    assert a != b
    assert a.parent == tmp_path / "logs" / "deep"
    assert a.name.startswith("run-7_")
    assert len(a.name) == len("run-7_") + 8
    assert {p.stat().st_mode & 0o777 for p in (a, b, a.parent, a.parent.parent)} == {0o700}


def test_a_given_log_dir_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    run_directory(tmp_path, "r")
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_log_dir_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunDirectoryError, match=r"logs cannot be kept in .*: it is a file; give another --log-dir"):
            run_directory(path, "r")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the default goes, with TMPDIR set."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"remuster-{os.geteuid()}"


def test_the_default_is_this_users_own(own: Path) -> None:
    first = run_directory(None, "r")
    assert first.parent == own
    own.chmod(0o777)
    run_directory(None, "r")
    assert own.stat().st_mode & 0o777 == 0o700


def test_a_default_that_cannot_be_used_is_passed_over(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setenv("TEMP", str(tmp_path))
    assert run_directory(None, "r").parent == own
    assert os.listdir(tmp_path) == [own.name]  # nothing is left of the trial


def test_the_default_of_somebody_else_is_not_trusted(own: Path, tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    own.symlink_to(tmp_path / "trap")
    with pytest.raises(RunDirectoryError, match="is not a directory of this user's"):
        run_directory(None, "r")
    assert os.listdir(tmp_path / "trap") == []
    if os.geteuid() == 0:
        own.unlink()
        own.mkdir()
        os.chown(own, 12345, 12345)
        with pytest.raises(RunDirectoryError, match="is not a directory of this user's"):
            run_directory(None, "r")


def test_directories_of_ranks_are_never_used_twice(tmp_path: Path) -> None:
    first = [attempt_directory(tmp_path, 3, r) for r in range(2)]
    assert first == [tmp_path / "attempt_3" / "0", tmp_path / "attempt_3" / "1"]
    (first[0] / "stdout.log").write_text("words")
    again = [attempt_directory(tmp_path, 3, r) for r in range(2)]
    assert again == [tmp_path / "attempt_3.1" / "0", tmp_path / "attempt_3.1" / "1"]
    assert (first[0] / "stdout.log").read_text() == "words"
    assert {p.stat().st_mode & 0o777 for p in (*first, *again, first[0].parent)} == {0o700}
