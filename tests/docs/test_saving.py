"""The examples of docs/saving.md, as they stand there, under the real command: with and without the loss of a rank."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.cluster import Node, Place
from command.processes import until

PAGE = Path(__file__).parents[2] / "docs" / "saving.md"
STEPS = 400  # so that there is time to kill a rank
PATIENCE_S = 100  # importing torch takes seconds, and many times that on a busy machine

pytestmark = [
    pytest.mark.drill,  # for its length; it needs no root
    pytest.mark.timeout(400),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where the commands are started."""
    made = Place(tmp_path / "place")
    yield made
    made.close()


def example(number: int) -> str:
    """Return the text of the page's first or second script."""
    scripts: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(scripts) == 2
    assert scripts[number].count("STEPS = 200\n") == 1
    return scripts[number].replace("STEPS = 200\n", f"STEPS = {STEPS}\n")


def losses(node: Node) -> dict[int, set[str]]:
    """Return what all ranks printed of each step, over all attempts."""
    found: dict[int, set[str]] = {}
    for path in sorted(node.run_dir.glob("attempt_*/*/stdout.log")):
        for step, loss in re.findall(r"^step ([0-9]+) loss (\S+)$", path.read_text(), re.MULTILINE):
            found.setdefault(int(step), set()).add(f"{path.parent.name} {loss}")
    return found


@pytest.mark.parametrize("number", [0, 1], ids=["ddp", "fsdp2"])
def test_an_example_loses_a_rank_and_goes_on_to_the_last_bit(place: Place, number: int) -> None:
    script = place.script("train.py", example(number))
    kept = place.folder / "kept"
    two = ("--nproc-per-node", "2", "--max-restarts", "1")
    whole = place.command(*two, "--checkpoint-dir", place.folder / "whole", script)
    assert whole.exit_code(PATIENCE_S) == 0, whole.say()
    broken = place.command(*two, "--checkpoint-dir", kept, script)
    until(lambda: any(kept.glob("step-*0/COMMITTED")), "a step is committed", PATIENCE_S, broken.say)
    os.kill(broken.ranks()[1], signal.SIGKILL)
    assert broken.exit_code(PATIENCE_S) == 0, broken.say()
    first, second = broken.records()
    assert (first["state"], second["state"]) == ("retried", "done")
    assert second["resume"]["step"] >= 20
    assert sorted(losses(whole)) == list(range(1, STEPS + 1))
    assert losses(broken) == losses(whole)
