"""The proof of re-entry: a killed and resumed run ends bit for bit like one that was never interrupted.

Two ranks as plain processes over gloo, with the environment that an agent would give them. The baseline and the
killed attempt are made once; tests resume a copy of the killed run, whole or sabotaged.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from digits_check import EXAMPLE, check, lacking

import remuster
from remuster.checkpoint.examine import Asked
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import search

WORLD, STEPS, SAVE_EVERY = 2, 24, 5
PATIENCE_S = 100  # importing torch takes seconds, and many times that on a busy machine
SABOTAGE = {"rng": "weights 0.weight differ", "optimizer": "weights 0.weight differ", "sampler": "samples of "}

pytestmark = [pytest.mark.timeout(250), pytest.mark.skipif(bool(lacking), reason=f"needs {lacking}")]


@dataclass(frozen=True)
class Rank:
    """One process of an attempt, and the file that its output goes to."""

    process: subprocess.Popen[bytes]
    said: Path

    def ended(self) -> bool:
        """Tell whether it came to its end; one that failed fails the test at once, in its own words."""
        status = self.process.poll()
        assert status in (None, 0), self.said.read_text()
        return status == 0


def free_port() -> int:
    """Find a port outside the range from which the kernel takes ports for clients, so that it stays free."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@contextmanager
def ranks(out: Path, attempt: int, *more: str, resume: Path | None = None) -> Iterator[list[Rank]]:
    """Start both ranks of one attempt; whatever happens, none is left behind."""
    out.mkdir(exist_ok=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("REMUSTER_", "TORCHELASTIC_"))}
    environ = {
        **clean,
        "PYTHONPATH": str(Path(remuster.__file__).parent.parent),
        "PYTHONWARNINGS": "error",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(WORLD),
        "REMUSTER_RUN_ID": "digits",
        "REMUSTER_ROUND": str(attempt + 1),
        "REMUSTER_ATTEMPT": str(attempt),
        "REMUSTER_INCARNATION": "6f",
        "REMUSTER_CHECKPOINT_DIR": str(out / "checkpoints"),
        "REMUSTER_RESUME_FROM": str(resume) if resume else "",
        "REMUSTER_RESUME_STEP": resume.name.removeprefix("step-") if resume else "",
    }
    command = [sys.executable, str(EXAMPLE / "train.py"), "--out", str(out), "--steps", str(STEPS)]
    command += ["--save-every", str(SAVE_EVERY), *more]
    started: list[Rank] = []
    try:
        for r in range(WORLD):
            said = out / f"attempt-{attempt}-rank-{r}.log"
            with open(said, "wb") as log:
                process = subprocess.Popen(command, env={**environ, "RANK": str(r)}, stdout=log, stderr=log)
            started.append(Rank(process, said))
        yield started
    finally:
        for rank in started:
            rank.process.kill()
            rank.process.wait()


def until(condition: Callable[[], bool], started: list[Rank]) -> None:
    """Wait for a condition; fail with what the ranks said when one fails or it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        in_time = time.monotonic() < deadline
        assert in_time, [rank.said.read_text() for rank in started]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that nothing interrupted, and one killed -9 between two checkpoints, after step 16 had been done."""
    whole, killed = tmp_path_factory.mktemp("digits") / "whole", tmp_path_factory.mktemp("digits") / "killed"
    log = killed / "samples" / "attempt-0-rank-0.jsonl"
    with ranks(whole, 0) as ending:
        with ranks(killed, 0, "--step-ms", "100") as started:
            until(
                lambda: not any(rank.ended() for rank in started) and log.exists() and '"step": 16,' in log.read_text(),
                started,
            )
        until(lambda: all(rank.ended() for rank in ending), ending)
    assert not (killed / "final.json").exists()
    return whole, killed


@pytest.fixture(scope="module")
def base(first: tuple[Path, Path]) -> Path:
    return first[0]


@pytest.fixture(scope="module")
def killed(first: tuple[Path, Path]) -> Path:
    return first[1]


@pytest.fixture
def resumed(killed: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that resumes the killed run from the step that the launcher would choose.

    As it should be, which is the twin "none", or by one that forgets something.
    """

    def resume(twin: str) -> Path:
        out = tmp_path / twin
        shutil.copytree(killed, out)
        choice = search(out / "checkpoints", Asked("digits", ((1, None),)), Patience(()))
        assert choice.step >= 15
        more = [] if twin == "none" else ["--sabotage", twin]
        with ranks(out, 1, *more, resume=Path(choice.path)) as started:
            until(lambda: all(rank.ended() for rank in started), started)
        return out

    return resume


def prove(base: Path, out: Path) -> tuple[int, list[str]]:
    """Run check.py as a person would."""
    command = [sys.executable, str(EXAMPLE / "check.py"), str(base), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_killed_and_resumed_run_is_the_uninterrupted_one(base: Path, resumed: Callable[[str], Path]) -> None:
    status, lines = prove(base, resumed("none"))
    assert lines[-1] == "final weights identical to the uninterrupted run: yes", lines
    assert status == 0
    assert any(line.startswith("attempt 1: resumed from step ") for line in lines)
    assert f"samples that counted: {STEPS * 64} of {STEPS * 64} the same and in the same order" in lines


# Each imports torch twice; one is enough for make test.
TWINS = ["rng", *(pytest.param(twin, marks=pytest.mark.drill) for twin in SABOTAGE if twin != "rng")]


@pytest.mark.parametrize("twin", TWINS)
def test_a_sabotaged_twin_is_found_out(base: Path, resumed: Callable[[str], Path], twin: str) -> None:
    status, lines = prove(base, resumed(twin))
    assert lines[-1] == "final weights identical to the uninterrupted run: no"
    assert status == 1
    assert any(line.startswith("not the same: ") and SABOTAGE[twin] in line for line in lines), lines


def test_a_run_that_did_not_finish_is_no_proof(base: Path, killed: Path) -> None:
    status, lines = prove(base, killed)
    assert (status, lines[-1]) == (1, "final weights identical to the uninterrupted run: no")
    assert "did the run finish?" in lines[0]


def test_the_uninterrupted_run_compares_with_itself(base: Path) -> None:
    report = check.compare(base, base)
    assert report.identical
    assert "this run was not interrupted either: nothing was resumed" in report.found


def test_starting_again_from_nothing_is_no_re_entry(base: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(base, again)
    for path in sorted((again / "samples").glob("attempt-0-*")):
        text = path.read_text().replace('"attempt": 0', '"attempt": 1')
        path.with_name(path.name.replace("attempt-0", "attempt-1")).write_text(text)
    report = check.compare(base, again)
    assert report.reasons == ["no attempt resumed from a checkpoint: all of them started at step 1"]


def test_a_first_step_that_does_not_follow_the_resume_point(base: Path, tmp_path: Path) -> None:
    skipping = tmp_path / "skipping"
    shutil.copytree(base, skipping)
    for path in sorted((skipping / "samples").glob("attempt-0-*")):
        head, *steps = path.read_text().splitlines()
        later = [json.dumps({**json.loads(head), "attempt": 1, "resume_step": 10}), *steps[11:]]
        path.with_name(path.name.replace("attempt-0", "attempt-1")).write_text("\n".join(later) + "\n{torn")
    report = check.compare(base, skipping)
    assert report.reasons == [
        "attempt 1 ran step 12 first; its resume point was step 10",
        f"1 of {STEPS} steps are in no attempt's log, the first is 11",
    ]
