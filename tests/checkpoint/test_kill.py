"""kill -9 of the publisher at every operation: the reader always finds a whole step, the new one or the one before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remuster.checkpoint.resume import Choice

Publish = Callable[..., Path]
Find = Callable[..., Choice]
Killed = Callable[[int, str], bool]

ASIDE = "step-000000000020.superseded-0-0"
PUBLISHER = Path(__file__).with_name("dying_publisher.py")


@pytest.fixture
def killed_at(tmp_path: Path, child_environ: dict[str, str]) -> Killed:
    """Publish step 20 in a child that dies at its k-th operation; False when it came to its end first."""

    def run(k: int, how: str) -> bool:
        command = [sys.executable, str(PUBLISHER), str(tmp_path), "20", str(k), how]
        status = subprocess.run(command, timeout=60, check=False, env=child_environ).returncode
        assert status in (0, -signal.SIGKILL)
        return status != 0

    return run


def steps_found(
    base: Path, find: Find, killed_at: Killed, before: Callable[[], object], how: str
) -> list[tuple[int, list[str]]]:
    """Kill the publication of step 20 at each operation in turn; what was chosen, and what lay there."""
    found: list[tuple[int, list[str]]] = []
    alive = False
    while not alive:
        assert len(found) < 60, "the publication does not end"
        shutil.rmtree(base)
        base.mkdir()
        before()
        alive = not killed_at(len(found), how)
        choice = find()
        assert choice.refused == () or ASIDE in os.listdir(base)  # then latest.json names what is not there
        found.append((choice.step, sorted(os.listdir(base))))
    return found


@pytest.mark.parametrize("how", ["before", "half"])
def test_a_killed_publication_leaves_the_step_before(
    tmp_path: Path, publish_step: Publish, find: Find, killed_at: Killed, how: str
) -> None:
    found = steps_found(tmp_path, find, killed_at, lambda: publish_step(10), how)
    chosen = [step for step, _ in found]
    assert chosen == sorted(chosen)
    assert set(chosen) == {10, 20}
    assert chosen.count(10) >= 14  # everything up to the rename
    for step, names in found:
        assert ("step-000000000020" in names) == (step == 20)
        assert "step-000000000010" in names


def test_a_killed_replacement_leaves_a_whole_step(
    tmp_path: Path, publish_step: Publish, find: Find, killed_at: Killed
) -> None:
    def before() -> None:
        publish_step(10)
        publish_step(20)

    found = steps_found(tmp_path, find, killed_at, before, "before")
    chosen = [step for step, _ in found]
    assert chosen.count(10) == 1  # between the two renames; the old step 20 still lies aside
    assert ASIDE in found[chosen.index(10)][1]
    assert set(chosen) == {10, 20}


def test_the_next_attempt_publishes_over_what_a_kill_left(
    tmp_path: Path, publish_step: Publish, find: Find, killed_at: Killed
) -> None:
    publish_step(10)
    assert killed_at(12, "half")
    publish_step(20, round_=2)
    assert find().step == 20
    assert "step-000000000020.tmp-0" in os.listdir(tmp_path)
