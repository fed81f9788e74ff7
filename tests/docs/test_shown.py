"""The tests that docs/evidence.md names are there, and use the one assertion of what a failure must end in."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "evidence.md").read_text().partition("## Shown on living jobs")[2]
NAMED = re.findall(r"`(\w+/\w+\.py)::(\w+)`(\*?)", PAGE)
CHECKS = {"check", "check_record", "torch_job", "_verdict"}  # these two call it for several


def test_many_are_named() -> None:
    assert len(set(NAMED)) == len(NAMED) >= 20


@pytest.mark.parametrize(("module", "name", "drill"), NAMED, ids=[name for _, name, _ in NAMED])
def test_what_is_named_checks_all_that_a_failure_must_end_in(module: str, name: str, drill: str) -> None:
    tree = ast.parse((TESTS / module).read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    called = {
        call.func.id for call in ast.walk(found) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    assert called & CHECKS, f"{name} does not use command/outcome.py"
    marks = [ast.unparse(mark) for mark in found.decorator_list]
    assert bool(drill) == (module.startswith("drills/") or "pytest.mark.drill" in marks)
