"""Formats that others install by entry point: whatever their code does, the search goes on, in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from like_torch import dcp

from remuster.checkpoint.examine import Asked
from remuster.checkpoint.formats import installed
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import Choice, search
from remuster.launcher.commands import run

GOOD = """
class Odd:
    name = "odd"
    def claims(self, name, files):
        return "odd.txt" in files
    def judge(self, folder, question):
        from remuster.checkpoint.formats.finding import Whole
        return Whole("it says so", 7)
thing = Odd()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Return what installs a module of that text as the format 'odd'."""

    def made(text: str) -> None:
        info = tmp_path / "site" / "odd_format-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-format\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{installed.GROUP}]\nodd = odd_format:thing\n")
        (info.parent / "odd_format.py").write_text(text)
        monkeypatch.setattr(sys, "path", [str(info.parent), *sys.path])
        installed.installed.cache_clear()

    yield made
    sys.modules.pop("odd_format", None)
    installed.installed.cache_clear()


def find(directory: Path, format_name: str = "") -> Choice:
    return search(directory, Asked(format=format_name), Patience(()))


def made(tmp_path: Path) -> Path:
    """Make one checkpoint of theirs, and an older one of DCP's."""
    dcp(tmp_path / "ckpt", "step-5")
    (tmp_path / "ckpt" / "step-10").mkdir()
    (tmp_path / "ckpt" / "step-10" / "odd.txt").touch()
    return tmp_path / "ckpt"


def test_a_format_that_is_installed_judges_its_own(tmp_path: Path, install: object) -> None:
    install(GOOD)  # type: ignore[operator]
    choice = find(made(tmp_path))
    assert (choice.step, choice.format, choice.verified) == (7, "odd", "it says so")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise RuntimeError('no library\\nsecond line')", "cannot be loaded: RuntimeError: no library"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("", "cannot be loaded: AttributeError"),
        ("thing = object()", "cannot be loaded: AttributeError"),
        (GOOD.replace('return "odd', 'return files["x"] or "odd'), "cannot say what is its own: "),
        (GOOD.replace("return Whole", "return 1 / 0, Whole"), "failed: ZeroDivisionError: division by zero"),
        (GOOD.replace("return Whole", "raise SystemExit"), "failed: SystemExit"),
        (GOOD.replace("return Whole", "return print"), "gave no finding"),
        (GOOD.replace(", 7", ", 'seven'"), "gave 'seven' for a step"),
        (GOOD.replace(", 7", ", -1"), "gave '-1' for a step"),
    ],
    ids=["import", "exit", "absent", "none", "claims", "judge", "judge exits", "nothing", "step", "negative"],
)
def test_one_that_fails_is_named_and_the_search_goes_on(tmp_path: Path, install: object, text: str, words: str) -> None:
    install(text)  # type: ignore[operator]
    directory = made(tmp_path)
    choice = find(directory)
    assert choice.path == str(directory / "step-5")
    [(name, reason)] = choice.refused
    assert name == "step-10"
    assert words in reason
    assert reason.isprintable()
    if "say what is its own" not in words:
        assert words in find(directory, "odd").refused[0][1]


def test_one_that_cannot_be_loaded_may_not_be_asked_for(
    tmp_path: Path, install: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job would take it that every checkpoint is refused, and begin from nothing."""
    install("raise RuntimeError('no library')")  # type: ignore[operator]
    assert run("resume-point", [str(made(tmp_path)), "--format", "odd"], {}) == 2
    assert "cannot be loaded: RuntimeError: no library" in capsys.readouterr().err
