"""The lines that docs/frameworks.md gives are those that the drills play, with scripts that do not know remuster."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.cases import CASES, DEEPSPEED, ORBAX
from frameworks.resuming import HERE, Case

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
ROWS = [row.strip("| ").split(" | ") for row in PAGE.splitlines() if "`--checkpoint-arg=" in row]
PLAYED = [*CASES, DEEPSPEED, ORBAX]


def test_the_page_has_what_is_played_and_no_other() -> None:
    assert [row[0] for row in ROWS] == [case.name for case in PLAYED]


@pytest.mark.parametrize(("row", "case"), [*zip(ROWS, PLAYED, strict=False)], ids=[case.name for case in PLAYED])
def test_its_line_is_the_drills(row: list[str], case: Case) -> None:
    assert row[2] == f"`--checkpoint-arg='{case.argument}'`"
    assert "remuster" not in (HERE / "scripts" / case.script).read_text()
