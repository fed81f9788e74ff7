"""Ray Train: folders beside ``checkpoint_manager_snapshot.json``, which names those that count.

A worker uploads ``checkpoint_<time>``, then the controller rewrites the snapshot (Ray 2.60, Train V2). A folder that is
not named there was never committed: Ray neither resumes from it nor removes it. What lies in the folders is the
script's; nothing says which files, so only their own wholeness is seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import cast

from . import torch_zip
from .finding import Finding, Question, Torn, Unknown, Whole
from .folder import Folder
from .whole_file import TORCH, wrong_with

SNAPSHOT = "checkpoint_manager_snapshot.json"
LARGEST = 64 << 20
NAME = re.compile(r"checkpoint_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d+")
METRICS = ("step", "global_step", "training_iteration", "iteration")


class Ray:
    """A folder of an experiment of Ray Train."""

    name = "ray"
    unseen = "files of the script's that are gone: nothing says which there were; files of kinds that carry no checksum"

    def claims(self, name: str, files: Collection[str]) -> bool:
        """See Format."""
        return NAME.fullmatch(name) is not None

    def judge(self, folder: Folder, question: Question) -> Finding:
        """See Format."""
        raw = folder.beside(SNAPSHOT, LARGEST)
        if raw is None:
            return Unknown(f"{SNAPSHOT} is not beside it: give the experiment's folder, in which Ray keeps it")
        try:
            results = _results(raw)
        except ValueError as error:
            return Unknown(f"{SNAPSHOT} {error}")
        names = [name for name, _ in results]
        if folder.name not in names:
            return Torn(f"{SNAPSHOT} does not name it: it was uploaded, but never committed")
        if not folder.files:
            return Torn(f"{SNAPSHOT} names it, but nothing is in it")
        if wrong := next((words for path in sorted(folder.files) if (words := wrong_with(folder, path, question))), ""):
            return Torn(wrong)
        place = names.index(folder.name)
        step, whence = _step(folder, results[place][1], question)
        how = f"{SNAPSHOT} names it, and each of its files ({len(folder.files)}) is whole by itself"
        if gone := [name for name in names if not (folder.directory / name).is_dir()]:
            how += f"; it also names {gone[0]!a}, which is gone"
        if step is None:
            return Whole(f"{how}; no step is recorded, it is number {place + 1} of {len(names)} there", step=place + 1)
        return Whole(f"{how}; its step is from {whence}", step=step)


def _results(raw: bytes) -> list[tuple[str, Mapping[str, object]]]:
    """Return the folders that the snapshot names, oldest first, with the metrics reported with each."""
    try:
        snapshot = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("is cut short or no JSON") from None
    held = cast("dict[str, object]", snapshot).get("checkpoint_results") if isinstance(snapshot, dict) else None
    if not isinstance(held, list):
        raise ValueError("is of a form that is not known here: it has no checkpoint_results")
    results: list[tuple[str, Mapping[str, object]]] = []
    for result in cast("list[object]", held):
        fields = cast("dict[str, object]", result) if isinstance(result, dict) else {}
        name, metrics = fields.get("checkpoint_dir_name"), fields.get("metrics")
        if isinstance(name, str):
            results.append((name, cast("dict[str, object]", metrics) if isinstance(metrics, dict) else {}))
    return results


def _step(folder: Folder, metrics: Mapping[str, object], question: Question) -> tuple[int | None, str]:
    if (step := torch_zip.step_of(metrics, METRICS)) is not None:
        return step, "the metrics reported with it"
    found: set[int] = set()
    for path in folder.files:
        if path.endswith(TORCH):
            try:
                step = torch_zip.step_of(torch_zip.contents(folder, path, question.give_up))
            except ValueError:
                continue
            found |= set() if step is None else {step}
    return (found.pop(), "its files") if len(found) == 1 else (None, "")
