"""The two commands about checkpoints: what they print, in words and as JSON, and their exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import TRAINER, laid
from like_torch import dcp

from remuster.launcher.commands import run


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Whole at 10, in mid-save at 20, a temporary at 30, and what is none at all."""
    directory = tmp_path / "kept"
    dcp(directory, "step-10")
    (dcp(directory, "step-20") / ".metadata").unlink()
    dcp(directory, "step-30.tmp")
    (directory / "step-5").mkdir()
    (directory / "train.log").write_text("")
    return directory


def told(capsys: pytest.CaptureFixture[str], code: int, *argv: object) -> Any:
    assert run(str(argv[0]), [*map(str, argv[1:]), "--json"], {}) == code
    return json.loads(capsys.readouterr().out)


def test_the_table(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("checkpoints", [str(kept)], {}) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:7] == ["STEP", "NAME", "FORMAT", "WHOLE", "SIZE", "AGE", "WORLD"]
    assert [row.split()[:4] for row in rows] == [
        ["30", "step-30.tmp", "dcp", "no"],
        ["20", "step-20", "dcp", "no"],
        ["10", "step-10", "dcp", "yes"],
        ["5", "step-5", "-", "unknown"],
    ]
    assert "'.metadata' is missing" in rows[1]


def test_the_table_as_json(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, 0, "checkpoints", kept)
    assert (found["schema_version"], found["directory"]) == (1, str(kept))
    whole = found["checkpoints"][2]
    files = list((kept / "step-10").iterdir())
    assert {name: whole[name] for name in ("name", "path", "step", "format", "whole", "bytes", "why_not")} == {
        "name": "step-10",
        "path": str(kept / "step-10"),
        "step": 10,
        "format": "dcp",
        "whole": True,
        "bytes": sum(path.stat().st_size for path in files),
        "why_not": None,
    }
    assert [one["whole"] for one in found["checkpoints"]] == [False, False, True, None]
    assert ".metadata" in whole["how"]
    assert whole["age_s"] >= 0


def test_the_point(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    point = told(capsys, 0, "resume-point", kept)
    assert (point["path"], point["step"], point["format"]) == (str(kept / "step-10"), 10, "dcp")
    assert [one["name"] for one in point["refused"]] == ["step-30.tmp", "step-20"]
    assert run("resume-point", [str(kept)], {}) == 0
    out, err = capsys.readouterr()
    assert out == f"{kept / 'step-10'}\n"
    assert "step-20: '.metadata' is missing" in err


def test_no_point(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kept / "step-10" / "__0_0.distcp").unlink()
    point = told(capsys, 1, "resume-point", kept)
    assert point["path"] is point["step"] is point["format"] is None
    assert [one["name"] for one in point["refused"]] == ["step-30.tmp", "step-20", "step-10", "step-5"]
    assert run("resume-point", [str(kept)], {}) == 1
    assert "no checkpoint in" in capsys.readouterr().err
    assert told(capsys, 1, "checkpoints", kept)["checkpoints"][2]["whole"] is False


def test_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, 1, "resume-point", tmp_path)["refused"] == []
    assert run("checkpoints", [str(tmp_path)], {}) == 1
    assert "no checkpoint in" in capsys.readouterr().out


def test_quick_reads_no_content(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = kept / "step-10" / "__0_0.distcp"
    shard.write_bytes(bytes(shard.stat().st_size))
    assert told(capsys, 0, "resume-point", kept, "--quick")["step"] == 10


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "Missing argument 'DIR'"),
        (["nowhere"], "Directory 'nowhere' does not exist"),
        ([".", "--format", "zip"], "'zip'; known here are manifest, "),
        ([".", "--world", "0"], "0 is not in the range"),
    ],
)
@pytest.mark.parametrize("name", ["checkpoints", "resume-point"])
def test_wrong_usage(name: str, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, argv, {}) == 2
    assert says in capsys.readouterr().err


def test_names_cannot_write_to_the_terminal(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.rename(kept / "step-5", kept / "step-5\x1b[2J")
    assert run("checkpoints", [str(kept)], {}) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_path_in_json_is_the_true_one_whatever_the_name_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dcp(tmp_path, "step-5-\n\udcff")
    [one] = told(capsys, 0, "checkpoints", tmp_path)["checkpoints"]
    assert one["name"] == r"step-5-\n\udcff"
    assert one["path"] == told(capsys, 0, "resume-point", tmp_path)["path"]
    assert Path(one["path"]).is_dir()


def test_what_other_nodes_may_have_is_said_and_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command sees one node; the reason says where the rest may be, if nothing else is wrong."""
    place = laid(TRAINER, tmp_path, 1)
    why = (
        "'rng_state_0.pth' is missing (where each node keeps the files of its own ranks, others may have the rest, "
        "and a job asks them)"
    )
    found = told(capsys, 1, "resume-point", tmp_path, "--world", "2")
    assert (found["path"], found["refused"]) == (None, [{"name": "checkpoint-5", "reason": why}])
    (one,) = told(capsys, 1, "checkpoints", tmp_path)["checkpoints"]
    assert (one["whole"], one["why_not"]) == (False, why)
    (place / "scheduler.pt").unlink()
    (one,) = told(capsys, 1, "checkpoints", tmp_path)["checkpoints"]
    assert one["why_not"] == "'rng_state_0.pth' and 'scheduler.pt' are missing"
