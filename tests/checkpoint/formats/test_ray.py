"""Ray Train's folders: those that the snapshot names, and the one that it does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from checkpoint_samples import SAMPLES, format_name, judged
from made_files import torch_file

from remuster.checkpoint.formats.finding import Torn, Unknown, Whole

KILLED = SAMPLES / "ray" / "after-worker-kill" / "case"
ORPHAN = "checkpoint_2026-11-29_11-44-48.169556"
NEWEST = "checkpoint_2026-11-29_11-45-29.404045"
SNAPSHOT = "checkpoint_manager_snapshot.json"


def test_after_a_worker_was_killed() -> None:
    orphan, newest = judged(KILLED / ORPHAN), judged(KILLED / NEWEST)
    assert format_name(KILLED / ORPHAN) == format_name(KILLED / NEWEST) == "ray"
    assert orphan == Torn(f"{SNAPSHOT} does not name it: it was uploaded, but never committed")
    assert isinstance(newest, Whole)
    assert newest.step == 40
    assert "it also names 'checkpoint_2026-11-29_11-45-25.220222', which is gone" in newest.how


def experiment(path: Path, metrics: list[dict[str, object]], held: object = None) -> list[Path]:
    """Make an experiment with one checkpoint for each report's metrics."""
    names = [f"checkpoint_2026-11-29_11-45-0{n}.000000" for n in range(len(metrics))]
    results = [{"checkpoint_dir_name": n, "metrics": m} for n, m in zip(names, metrics, strict=True)]
    (path / SNAPSHOT).write_text(json.dumps({"checkpoint_results": results}))
    return [torch_file(path / name / "state.pt", held or {}).parent for name in names]


@pytest.mark.parametrize(
    ("metrics", "held", "step", "words"),
    [
        ({"step": 12, "loss": 0.5}, {"step": 99}, 12, "its step is from the metrics"),
        ({"training_iteration": 3}, {}, 3, "its step is from the metrics"),
        ({"loss": 0.5}, {"step": 99}, 99, "its step is from its files"),
        ({"step": 1.5}, {"epoch": 4}, 2, "no step is recorded, it is number 2 of 2"),
    ],
)
def test_where_its_step_is_from(
    tmp_path: Path, metrics: dict[str, object], held: object, step: int, words: str
) -> None:
    finding = judged(experiment(tmp_path, [{}, metrics], held)[1])
    assert isinstance(finding, Whole)
    assert finding.step == step
    assert words in finding.how


def test_what_is_wrong_with_one(tmp_path: Path) -> None:
    (path,) = experiment(tmp_path, [{"step": 1}])
    (path / "state.pt").write_bytes((path / "state.pt").read_bytes()[:-1])
    assert judged(path) == Torn("'state.pt' is no whole file of torch.save: its end is missing")
    (path / "state.pt").unlink()
    assert judged(path) == Torn(f"{SNAPSHOT} names it, but nothing is in it")


@pytest.mark.parametrize("text", ["", '{"checkpoint_results": [', "[]", "{}"])
def test_a_snapshot_that_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (path,) = experiment(tmp_path, [{"step": 1}])
    (tmp_path / SNAPSHOT).write_text(text)
    assert isinstance(judged(path), Unknown)


def test_without_the_snapshot_it_is_unknown(tmp_path: Path) -> None:
    shutil.copytree(KILLED / NEWEST, tmp_path / NEWEST)
    finding = judged(tmp_path / NEWEST)
    assert isinstance(finding, Unknown)
    assert "give the experiment's folder" in finding.reason
