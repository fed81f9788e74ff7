"""Where this rank re-enters, as its launcher decided for all ranks of the round.

For training scripts: ``point = remuster.resume_point()``; None means start from nothing. It reads the environment
and nothing else: the checkpoint was verified before the rank was started.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PATH = "REMUSTER_RESUME_FROM"
_STEP = "REMUSTER_RESUME_STEP"


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A verified checkpoint: its directory and the number of steps that are done in it."""

    path: Path
    step: int


def resume_point() -> ResumePoint | None:
    """Return the resume point of this round, or None to start from nothing (also outside remuster)."""
    path = os.environ.get(_PATH, "")
    if not path:
        return None
    if not os.path.isabs(path):
        raise ValueError(f"{_PATH}={path!a} is not an absolute path; the launcher sets it: do not change it")
    step = os.environ.get(_STEP, "")
    if not (step.isascii() and step.isdigit() and len(step) <= 18):
        raise ValueError(f"{_STEP}={step!a} is not a whole number, though {_PATH} is set; the launcher sets both")
    return ResumePoint(Path(path), int(step))
