"""Real checkpoints of frameworks, kept small in tests/checkpoint/samples, for the tests of their formats."""

from __future__ import annotations

from pathlib import Path

from remuster.checkpoint.formats.finding import Finding, Question
from remuster.checkpoint.formats.folder import Folder
from remuster.checkpoint.formats.known import format_of, judge, named

SAMPLES = Path(__file__).parent / "checkpoint" / "samples"


def format_name(path: Path) -> str:
    """Return the name of the format that claims a checkpoint, or ""."""
    found = format_of(Folder(path.parent, path.name))
    return found.name if found else ""


def judged(path: Path, world: int | None = 2, deep: bool = True, format_: str = "") -> Finding:
    """Judge a checkpoint as the format that claims it does, or as ``format_``."""
    folder = Folder(path.parent, path.name)
    return judge(folder, Question(world, deep), named(format_) if format_ else format_of(folder))
