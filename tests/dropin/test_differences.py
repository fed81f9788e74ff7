"""docs/differences.md is what the lists of this folder say, and what they say is shown somewhere.

With REMUSTER_DIFFERENCES=FILE the page is written instead of compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from dropin import page
from dropin.behaviour import CHAPTERS, Behaviour

ROOT = Path(__file__).parents[2]
LISTED = [one for listed in CHAPTERS.values() for one in listed]


def test_the_page_is_made_of_the_lists() -> None:
    made = page.render()
    if target := os.environ.get("REMUSTER_DIFFERENCES"):
        Path(target).write_text(made)
    again = "write it again: REMUSTER_DIFFERENCES=docs/differences.md .venv/bin/pytest tests/dropin/test_differences.py"
    assert (ROOT / "docs" / "differences.md").read_text() == made, again


@pytest.mark.parametrize("one", LISTED, ids=[one.what for one in LISTED])
def test_a_difference_is_shown_where_it_says(one: Behaviour) -> None:
    path, _, name = one.shown.partition("::")
    text = (ROOT / path).read_text()
    wanted = {".md": rf"^\| {re.escape(name)} \|", ".py": rf"def {re.escape(name)}\(|\"{re.escape(name)}\""}
    assert re.search(wanted[Path(path).suffix], text, re.MULTILINE), f"{path} has no {name}"
    assert all((one.what, one.torchrun, one.ours, one.reason))
    assert "|" not in "".join(one[:4]), "a table's cell"
