"""The names inside a checkpoint directory. Pure; used by the publishing side and by the reader.

``step-%012d`` is the only name that a reader takes for a step. A directory has it only after the last rename of a
publication, so every other name, ``.tmp-`` and ``.superseded-`` above all, says "not a resume point" by itself.
"""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
COMMITTED = "COMMITTED"
LATEST = "latest.json"

_STEP = re.compile(r"step-([0-9]{12,18})")


def step_name(step: int) -> str:
    """Return the final directory name of a step."""
    return f"step-{step:012d}"


def step_of(name: str) -> int | None:
    """Return the step that a final directory name stands for, or None for any other name."""
    found = _STEP.fullmatch(name)
    if found is None:
        return None
    step = int(found[1])
    return step if step_name(step) == name else None


def writing_name(step: int, attempt: int) -> str:
    """Return the name of a step's directory while its ranks are still writing."""
    return f"{step_name(step)}.tmp-{attempt}"


def superseded_name(step: int, round_: int, count: int) -> str:
    """Return the name under which round ``round_`` keeps what had this step's name before."""
    return f"{step_name(step)}.superseded-{round_}-{count}"
