"""What a start costs in modules: the young interpreter stays young, and ``import remuster`` in a script is free."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import remuster

HEAVY = (
    "torch",
    "numpy",
    "rich",
    "grpc",
    "google",
    "http.server",
    "pydantic",
    "asyncio",
    "click",
    "structlog",
    "psutil",
    "pynvml",
)
NEVER = ("torch", "numpy", "rich", "grpc", "http.server", "pydantic", "prometheus_client")


def loaded(code: str, tmp_path: Path) -> set[str]:
    """Return the modules that a fresh interpreter holds after ``code``, beyond those it started with."""
    where = str(Path(remuster.__file__).parents[1])
    program = (
        f"import sys; before = set(sys.modules)\n{code}\n"
        "after = set(sys.modules); import json; json.dump(sorted(after - before), open('modules', 'w'))"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": where, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads((tmp_path / "modules").read_text()))


def of(names: tuple[str, ...], modules: set[str]) -> set[str]:
    return {m for m in modules if any(m == name or m.startswith(f"{name}.") for name in names)}


@pytest.mark.parametrize(
    "code",
    [
        "import remuster",
        "import remuster; remuster.resume_point",
        "import remuster.launcher.entry",
        "import remuster.agent.keeper",
        "import remuster.agent.guardian",
    ],
)
def test_what_must_stay_light_does(code: str, tmp_path: Path) -> None:
    modules = loaded(code, tmp_path)
    assert "remuster" in modules
    assert not of(HEAVY, modules)


@pytest.mark.parametrize(("line", "code"), [("--version", 0), ("--nnodes=0", 2), ("--help", 0), ("-m x", 7)])
def test_a_command_line_is_read_with_little(line: str, code: int, tmp_path: Path) -> None:
    run = f"from remuster.launcher import cli; assert cli.run({line.split()!r}, {{}}, lambda spec: 7) == {code}"
    modules = loaded(run, tmp_path)
    assert ("click" in modules) == (line == "--help")
    assert not of((*NEVER, "asyncio", "structlog", "psutil", "pynvml"), modules)
