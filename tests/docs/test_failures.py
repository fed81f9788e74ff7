"""docs/failures.md is what the tables say. With REMUSTER_FAILURES=FILE the page is written instead of compared."""

from __future__ import annotations

import os
from pathlib import Path

from docs import failures_page
from remuster.health.classes import all_classes

PAGE = Path(__file__).parents[2] / "docs" / "failures.md"


def test_the_page_is_made_of_the_tables() -> None:
    made = failures_page.render()
    if target := os.environ.get("REMUSTER_FAILURES"):
        Path(target).write_text(made)
    again = "write it again: REMUSTER_FAILURES=docs/failures.md .venv/bin/pytest tests/docs/test_failures.py"
    assert PAGE.read_text() == made, again


def test_every_class_is_there_with_its_recognition() -> None:
    text = PAGE.read_text()
    missing = [name for name, cls in all_classes().items() if cls.family != "none" and f"### `{name}`" not in text]
    assert not missing
