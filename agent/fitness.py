"""This node's own check as its agent runs it: before it joins, and more of it when a verdict has blamed the node.

Loaded only where there is something to look at: a node without GPUs and RDMA ports starts as if there were no check.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..health.node_check import State, conclude
from .blamed import CheckResult, Grade
from .gpu_start import driver_here
from .node_check import Looking, Spare, Wish, check_node
from .spec import JobSpec

DEEP_S = 90.0  # within ``blamed.CHECK_S``, with what comes before


class Here(NamedTuple):
    """This node, and how its children are spared from sweeps."""

    spec: JobSpec
    run_dir: Path
    environ: Mapping[str, str]  # the ranks'
    spare: Callable[[str], Spare]
    say: Callable[[str], None]


async def before_joining(here: Here) -> str:
    """Look at this node; return why it cannot take part, '' when it can or nobody can tell."""
    found = await check_node(_wish(here), Looking(here.spare, here.say))
    for finding in found:
        if finding.state is State.UNKNOWN:
            here.say(f"node check: {finding.what}: {finding.text}")
    answer = conclude(found)
    return answer.sentence if answer.passed is False else ""


async def when_blamed(here: Here) -> CheckResult:
    """Look at this node more closely: installed checks too, and tests of its GPUs where it has any."""
    if not here.spec.node_check.on:
        return CheckResult(Grade.UNKNOWN, "--node-check=off")
    wish = _wish(here)._replace(installed=True, deep=driver_here(os.environ), deep_s=DEEP_S)
    answer = conclude(await check_node(wish, Looking(here.spare, here.say)))
    if answer.passed is False:
        return CheckResult(Grade.FAILED, answer.sentence)
    return CheckResult(Grade.UNKNOWN if answer.passed is None else Grade.PASSED, answer.sentence)


def _wish(here: Here) -> Wish:
    check = here.spec.node_check
    return Wish(here.run_dir, here.environ, here.spec.python, check.command, check.installed, own=os.getpid())
