"""(j) Verifying a checkpoint beside the same hash in as many processes, and choosing among many beside one listing.

Both hash the same files from the same disk, after one reading of each that is not counted. The choice is among 1000
steps that were found whole before, as at every round but an agent's first.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from rows import Found, Row, medians
from stage import CannotMeasure, Stage

from remuster import checkpoint
from remuster.checkpoint.examine import Asked, Seen
from remuster.checkpoint.patience import Patience
from remuster.checkpoint.resume import search
from remuster.checkpoint.side_by_side import THREADS
from remuster.checkpoint.verify import Verified, verify

FILES, FILE_MB = 8, 64
STEPS = 1000
OURS, BARE = "verify", f"sha256 in {THREADS} processes"
CHOOSE, SCANDIR = "choose", "one os.scandir"


def measure(stage: Stage, runs: int) -> Found:
    """Compare both."""
    samples: dict[str, list[float]] = {OURS: [], BARE: [], CHOOSE: [], SCANDIR: []}
    large = _large(stage.folder / "large")
    for counted in (False, *(True for _ in range(runs))):
        taken = {OURS: _verify(large), BARE: _bare([large / f"part-{n}" for n in range(FILES)])}
        for name, took_s in taken.items():
            samples[name] += [took_s] if counted else []
    many, seen = _many(stage.folder / "many"), Seen()
    _choose(many, seen)
    for _ in range(3 * runs):
        samples[CHOOSE].append(_choose(many, seen))
        samples[SCANDIR].append(_scandir(many))
    found = medians(samples)
    rows = [
        Row("j", f"verifying {FILES * FILE_MB} MiB", found[OURS], BARE, found[BARE], "s", at_least=0.8),
        Row("j", f"choosing among {STEPS}", found[CHOOSE] * 1e3, SCANDIR, found[SCANDIR] * 1e3, "ms", at_most=10),
    ]
    return Found(rows, samples, (f"(j) verifying: {FILES * FILE_MB / found[OURS]:.0f} MiB/s",))


def _large(directory: Path) -> Path:
    with checkpoint.publish(1, directory=directory, gather=lambda text: [text], rank=0) as p:
        for n in range(FILES):
            p.path(f"part-{n}").write_bytes(os.urandom(1 << 20) * FILE_MB)
    return directory / "step-000000000001"


def _verify(step: Path) -> float:
    began = time.perf_counter()
    if not isinstance(verify(step), Verified):
        raise CannotMeasure("a whole step is refused")
    return time.perf_counter() - began


def _bare(files: list[Path]) -> float:
    """Hash the files in processes of their own, each its share; they begin together."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(THREADS + 1)
    children = [context.Process(target=_hash, args=(files[n::THREADS], barrier)) for n in range(THREADS)]
    for child in children:
        child.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    took_s = time.perf_counter() - began
    for child in children:
        child.join()
    return took_s


def _hash(files: list[Path], barrier: Barrier) -> None:
    barrier.wait()
    for path in files:
        hasher = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while block := file.read(1 << 20):
                hasher.update(block)
        hasher.hexdigest()
    barrier.wait()


def _many(directory: Path) -> Path:
    for step in range(STEPS):
        folder = directory / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "whole.pt").write_bytes(b"")
    with checkpoint.publish(STEPS, directory=directory, gather=lambda text: [text], rank=0) as p:
        p.path("state").write_bytes(bytes(1 << 20))
    return directory


def _choose(directory: Path, seen: Seen) -> float:
    began = time.perf_counter()
    choice = search(directory, Asked(), Patience(()), seen)
    took_s = time.perf_counter() - began
    if choice.step != STEPS:
        raise CannotMeasure(f"the newest whole step is not found: {choice}")
    return took_s


def _scandir(directory: Path) -> float:
    began = time.perf_counter()
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries]
    took_s = time.perf_counter() - began
    if len(names) <= STEPS:
        raise CannotMeasure("the steps are not there")
    return took_s
