"""Run a script that saves as its framework has it undisturbed, and with a rank killed in mid-run and in mid-save.

The command sees the framework's own checkpoints; the script sees an argument. Not a test module.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from command.cluster import Node, Place

HERE = Path(__file__).parent
WORLD, STEPS, SAVE_EVERY = 2, 20, 5
LOST_AT = 13  # the step that rank 1 begins in the first attempt and does not end: 5 is saved, 10 is, or is being saved
TORN = 15  # the step whose save the second attempt does not end
PATIENCE_S = 240.0  # three attempts of two ranks that import torch and a framework; many times that on a busy machine


class Kill(NamedTuple):
    """At which operation on a file a rank is killed; see kill_at.c."""

    rank: int
    operation: str
    nth: int
    part: str


@dataclass(frozen=True, slots=True)
class Case:
    """A script, what its command line says for it, and how one of its saves is torn."""

    name: str
    script: str
    argument: str  # of --checkpoint-arg
    format: str  # that the record names
    torn: Kill
    refused: str = ""  # the entry's name; empty: its name alone says that it is none, and nothing is said of it
    reason: str = ""  # a part of it
    env: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    behind: bool = False  # it saves while it trains: the first kill may lose a save, and the second comes later

    @property
    def resumed_at(self) -> tuple[int, ...]:
        """After the first kill."""
        return (5, 10) if self.behind else (10,)


class Line(NamedTuple):
    """One step as a rank saw it."""

    attempt: int
    step: int
    loss: str


@dataclass(frozen=True, slots=True)
class Bench:
    """Where cases are played: the shim, the ranks' interpreter, and a folder."""

    place: Place
    folder: Path
    shim: Path
    python: Path

    def start(self, case: Case, name: str, *flags: str | Path, kills: tuple[Kill, ...] = ()) -> tuple[Node, Path]:
        """Start the real command; return it and its script's folder."""
        out = self.folder / name
        out.mkdir()
        env = {"PYTHON_EXEC": str(self.python), "HF_HUB_OFFLINE": "1", **case.env}
        if kills:
            orders = (f"{out / f'kill-{n}'}|{'|'.join(map(str, kill))}" for n, kill in enumerate(kills))
            env |= {"LD_PRELOAD": str(self.shim), "KILL_AT": "\n".join(orders)}
        script = HERE / "scripts" / case.script
        return self.place.command(
            "--nproc-per-node", str(WORLD), *case.flags, *flags, script, out, name=name, env=env
        ), out


def built_shim(folder: Path) -> Path:
    """Compile kill_at.c; skip without a compiler."""
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("kills inside a save need a C compiler; install gcc and libc6-dev")
    made = folder / "kill_at.so"
    line = [cc, "-shared", "-fPIC", "-O1", "-o", made, HERE / "kill_at.c", "-ldl"]
    subprocess.run(line, check=True, timeout=60)
    return made


def lines(out: Path, rank: int) -> list[Line]:
    """Return the steps that a rank has ended, in their order."""
    rows = (row.split() for row in (out / f"losses-{rank}").read_text().splitlines())
    return [Line(int(attempt), int(step), loss) for attempt, step, loss in rows]


def play(bench: Bench, case: Case) -> Node:
    """Run a case undisturbed and disturbed, compare, and return the disturbed command."""
    whole, calm = bench.start(case, "calm")
    assert whole.exit_code(PATIENCE_S) == 0, whole.say()
    want = [{line.step: line.loss for line in lines(calm, rank)} for rank in range(WORLD)]
    for losses in want:
        assert sorted(losses) == list(range(1, STEPS + 1)), whole.say()
    kills = (Kill(1, "write", LOST_AT, "losses-1"), case.torn)
    kept = bench.folder / "lost" / "checkpoints"
    flags = ("--max-restarts", "2", "--checkpoint-dir", kept, f"--checkpoint-arg={case.argument}")
    node, out = bench.start(case, "lost", *flags, kills=kills)
    assert node.exit_code(PATIENCE_S) == 0, node.say()  # it also sees that no process is left
    assert [path.name for path in sorted(out.glob("kill-*"))] == ["kill-0", "kill-1"], node.say()

    first, second, third = node.records()
    assert [record["state"] for record in (first, second, third)] == ["retried", "retried", "done"], node.say()
    assert first["exit_codes"]["1"] == second["exit_codes"][str(case.torn.rank)] == -9
    assert first["resume"] is None
    assert second["resume"]["step"] in case.resumed_at, node.say()
    assert (third["resume"]["step"], third["resume"]["format"]) == (10, case.format), node.say()
    reasons = {entry["name"]: entry["reason"] for entry in third["refused"]}
    assert list(reasons) == [case.refused] * bool(case.refused), node.say()
    assert case.reason in reasons.get(case.refused, ""), f"refused: {reasons}\n{node.say()}"

    at = second["resume"]["step"]
    last = max(line.step for line in lines(out, 1) if line.attempt == 1)
    assert last >= TORN if case.behind else last == TORN, node.say()
    spans = [(0, 1, LOST_AT - 1), (1, at + 1, last), (2, 11, STEPS)]
    steps = [(attempt, step) for attempt, begin, end in spans for step in range(begin, end + 1)]
    assert [(line.attempt, line.step) for line in lines(out, 1)] == steps, node.say()
    for rank, losses in enumerate(want):
        other = [line for line in lines(out, rank) if line.loss != losses[line.step]]
        assert not other, f"rank {rank} does not repeat {losses} to the last bit: {other}"
    return node
