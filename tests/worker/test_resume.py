"""What a training script is told about where to re-enter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import remuster
from remuster.worker import ResumePoint, resume_point


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REMUSTER_RUN_ID", "REMUSTER_RESUME_FROM", "REMUSTER_RESUME_STEP"):
        monkeypatch.delenv(name, raising=False)


def test_outside_remuster_there_is_none() -> None:
    assert resume_point() is None


@pytest.mark.parametrize("step", [None, "", "-1", "7"])
def test_start_from_nothing(monkeypatch: pytest.MonkeyPatch, step: str | None) -> None:
    monkeypatch.setenv("REMUSTER_RUN_ID", "run")
    monkeypatch.setenv("REMUSTER_RESUME_FROM", "")
    if step is not None:
        monkeypatch.setenv("REMUSTER_RESUME_STEP", step)
    assert resume_point() is None


def test_the_resume_point_of_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUSTER_RESUME_FROM", "/data/c k/step-000000000020")
    monkeypatch.setenv("REMUSTER_RESUME_STEP", "20")
    assert remuster.resume_point() == ResumePoint(Path("/data/c k/step-000000000020"), 20)


@pytest.mark.parametrize(
    ("path", "step", "words"),
    [
        ("step-000000000020", "20", "REMUSTER_RESUME_FROM='step-000000000020' is not an absolute path"),
        ("/c/step-000000000020", None, "REMUSTER_RESUME_STEP='' is not a whole number"),
        ("/c/step-000000000020", "-1", "REMUSTER_RESUME_STEP='-1' is not a whole number"),
        ("/c/step-000000000020", "2_0", "REMUSTER_RESUME_STEP='2_0' is not a whole number"),
        ("/c/step-000000000020", "9" * 5000, "is not a whole number"),
    ],
)
def test_a_malformed_environment_is_said(
    monkeypatch: pytest.MonkeyPatch, path: str, step: str | None, words: str
) -> None:
    monkeypatch.setenv("REMUSTER_RESUME_FROM", path)
    if step is not None:
        monkeypatch.setenv("REMUSTER_RESUME_STEP", step)
    with pytest.raises(ValueError, match="the launcher sets") as caught:
        resume_point()
    assert words in str(caught.value)


def test_asking_costs_a_training_script_next_to_nothing() -> None:
    code = (
        "import sys, __future__, os, pathlib, dataclasses, typing; before = set(sys.modules)\n"
        "import remuster; remuster.resume_point()\n"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('remuster')))"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(remuster.__file__).parent.parent)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environ)
    assert done.stdout == "[]\n"
