"""examples/digits/check.py as a module, for tests that compare what its trainer has done. Not a test module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits"
lacking = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]  # not imported here


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_check_of_the_example", EXAMPLE / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check = _load()
