"""The error file of the parent: the root's, handed on whole where it lies, and told from the record elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuster.agent import parent_file

NOW = 1_795_951_311
OURS: dict[str, Any] = {
    "message": {
        "message": "ValueError: boom",
        "extraInfo": {"py_callstack": "Traceback\nValueError: boom", "timestamp": "1770000000"},
        "site": {"ticket": 4},
    },
    "more": [1],
}
DEEP = "[" * 900 + "]" * 900


def record(path: Path | str = "", status: int = 7, **error: Any) -> dict[str, object]:
    told = {"message": "ValueError: boom", "traceback": "", "timestamp": 1_770_000_000, "path": str(path)} | error
    root = {"is": "exit", "rank": 1, "status": status, "error": told if path else None}
    facts = [{"is": "told"}, {"is": "exit", "rank": 0, "status": 1}, root]
    return {
        "verdict": {"node": "a", "rank": 1, "sentence": "rank 1 on a ended with exit status 7"},
        "evidence": [{"node": "b", "facts": [{"is": "exit", "rank": 2, "status": 9}]}, {"node": "a", "facts": facts}],
    }


def handed(target: Path, some: dict[str, object], node: str = "a") -> dict[str, Any]:
    parent_file.write(target, some, node, "this node was asked to leave", NOW)
    assert target.stat().st_mode & 0o777 == 0o600
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def test_the_roots_file_is_copied_whole_with_the_exit_code_inside(tmp_path: Path) -> None:
    (tmp_path / "root").write_text(json.dumps(OURS))
    target = tmp_path / "error.json"
    target.write_text("of an earlier start, and longer than what follows it " * 99)
    found = handed(target, record(tmp_path / "root", -11))
    assert found == {**OURS, "message": {**OURS["message"], "errorCode": -11}}


def test_the_other_form_is_copied_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "root").write_text(json.dumps({"message": "plain", "timestamp": 12}))
    assert handed(tmp_path / "error.json", record(tmp_path / "root")) == {"message": "plain", "timestamp": 12}


def test_another_node_tells_it_from_the_record(tmp_path: Path) -> None:
    (tmp_path / "root").write_text(json.dumps({"message": "of another machine with the same path"}))
    info = {"timestamp": "1770000000", "py_callstack": "Traceback\nValueError: boom"}
    some = record(tmp_path / "root", traceback="Traceback\nValueError: boom")
    assert handed(tmp_path / "error.json", some, "b") == {
        "message": {"message": "ValueError: boom", "extraInfo": info, "errorCode": 7}
    }


@pytest.mark.parametrize("content", ["", "{", '{"message": 3}', "[1]"])
def test_a_file_that_is_none_is_told_of_from_the_record(tmp_path: Path, content: str) -> None:
    (tmp_path / "root").write_text(content)
    told = {"message": "ValueError: boom", "extraInfo": {"timestamp": "1770000000"}, "errorCode": 7}
    assert handed(tmp_path / "error.json", record(tmp_path / "root")) == {"message": told}


def test_a_deep_file_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "root").write_text(f'{{"message": "x", "deep": {DEEP}}}')
    assert handed(tmp_path / "error.json", record(tmp_path / "root"))["message"] in ("x", {"message": "x"})


def test_a_root_without_a_file_is_told_of_in_the_verdicts_words(tmp_path: Path) -> None:
    told = {"message": "rank 1 on a ended with exit status 7", "extraInfo": {"timestamp": str(NOW)}, "errorCode": 7}
    assert handed(tmp_path / "error.json", record()) == {"message": told}


@pytest.mark.parametrize("some", [{}, {"verdict": 1, "evidence": 2}, {"verdict": {}, "evidence": [1, {"facts": [2]}]}])
def test_an_end_without_a_verdict_is_told_in_its_own_words(tmp_path: Path, some: dict[str, object]) -> None:
    told = {"message": "this node was asked to leave", "extraInfo": {"timestamp": str(NOW)}}
    assert handed(tmp_path / "error.json", some) == {"message": told}


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """As root one would remove /dev/null."""
    (tmp_path / "error.json").mkdir()
    with pytest.raises(OSError, match="exists"):
        parent_file.write(tmp_path / "error.json", {}, "a", "", NOW)
    assert (tmp_path / "error.json").is_dir()
