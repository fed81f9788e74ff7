"""Prove that a run which was killed and resumed ended as the uninterrupted one did: bit for bit, sample for sample.

``python examples/digits/check.py BASELINE_DIR RUN_DIR``: both directories were written by ``train.py`` with the same
arguments and world size. Prints what it found, the reasons against, and one last line that says yes or no (exit 0 or
1). Needs neither torch nor remuster; tests call ``compare``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

VERDICT = "final weights identical to the uninterrupted run:"
FIGURES = ("loss", "grad_norm", "lr")


class Unfit(Exception):
    """A directory does not hold what train.py leaves there."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step used: the ids of the global batch in order, and rank 0's ``FIGURES``, each as hex."""

    ids: tuple[int, ...]
    figures: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """What the ranks of one attempt logged; ``resumed_from`` is 0 when it started from nothing."""

    number: int
    resumed_from: int
    steps: dict[int, Step]


@dataclass
class Report:
    """The lines found out, and the reasons why the run is not the same (none: it is)."""

    found: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        return not self.reasons

    def lines(self) -> list[str]:
        """Return everything to print, the verdict last."""
        against = [f"not the same: {reason}" for reason in self.reasons]
        return [*self.found, *against, f"{VERDICT} {'yes' if self.identical else 'no'}"]


def compare(baseline: Path, run: Path) -> Report:
    """Compare a resumed run with the uninterrupted one."""
    report = Report()
    _compare_weights(final(baseline), final(run), report)
    expected, attempts = effective(attempts_of(baseline)), attempts_of(run)
    _check_resumes(attempts, report)
    _compare_steps(expected, effective(attempts), report)
    return report


def final(directory: Path) -> dict[str, Any]:
    """Read final.json; its weights are decoded and their sha256 is checked."""
    path = directory / "final.json"
    try:
        data = json.loads(path.read_bytes())
        raw = [(t["name"], t["dtype"], t["shape"], base64.b64decode(t["base64"])) for t in data["tensors"]]
        named = data["sha256"]
        step = int(data["step"])
    except FileNotFoundError as e:
        raise Unfit(f"{path} is not there: did the run finish?") from e
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise Unfit(f"{path} cannot be read: {e}") from e
    digest = hashlib.sha256(b"".join(r[-1] for r in raw)).hexdigest()
    if digest != named:
        raise Unfit(f"{path} says sha256:{named}, but its weights have sha256:{digest}")
    return {"step": step, "sha256": digest, "tensors": raw}


def attempts_of(directory: Path) -> list[Attempt]:
    """Read the sample logs of all attempts, in order."""
    logs: dict[int, list[Path]] = {}
    for path in (directory / "samples").glob("attempt-*-rank-*.jsonl"):
        logs.setdefault(int(path.name.split("-")[1]), []).append(path)
    if not logs:
        raise Unfit(f"{directory / 'samples'} holds no sample logs of train.py")
    found = (_attempt(number, paths) for number, paths in sorted(logs.items()))
    return [attempt for attempt in found if attempt is not None]


def effective(attempts: list[Attempt]) -> dict[int, Step]:
    """Keep the steps that count: those of each attempt up to where any later one resumed."""
    kept: dict[int, Step] = {}
    for attempt in attempts:
        kept = {step: used for step, used in kept.items() if step <= attempt.resumed_from}
        kept.update(attempt.steps)
    return kept


def _attempt(number: int, paths: list[Path]) -> Attempt | None:
    ranks: dict[int, dict[int, dict[str, Any]]] = {}
    world, resumed_from = 0, 0
    for path in paths:
        lines = _lines(path)
        if not lines:
            continue  # killed before it wrote its first line
        world, resumed_from = int(lines[0]["world_size"]), int(lines[0]["resume_step"] or 0)
        steps = [line.get("step") for line in lines[1:]]
        if any(step is None for step in steps) or len(set(steps)) != len(steps):
            raise Unfit(f"{path} holds more than one attempt: was the directory used twice?")
        ranks[int(lines[0]["rank"])] = {line["step"]: line for line in lines[1:]}
    if not ranks:
        return None
    whole = set.intersection(*(set(r) for r in ranks.values())) if len(ranks) == world else set[int]()
    return Attempt(number, resumed_from, {step: _step(step, ranks, world) for step in sorted(whole)})


def _step(step: int, ranks: dict[int, dict[int, dict[str, Any]]], world: int) -> Step:
    """Put the ranks' shares together to the global batch, of which rank r took every world-th from r on."""
    ids = [0] * sum(len(ranks[r][step]["ids"]) for r in range(world))
    for rank in range(world):
        ids[rank::world] = ranks[rank][step]["ids"]
    return Step(tuple(ids), tuple(ranks[0][step].get(name, "") for name in FIGURES))


def _lines(path: Path) -> list[dict[str, Any]]:
    *whole, _ = path.read_text().split("\n")  # a kill can leave the last line without its end
    try:
        return [json.loads(line) for line in whole]
    except ValueError as e:
        raise Unfit(f"{path} holds a line that train.py did not write: {e}") from e


def _compare_weights(one: dict[str, Any], two: dict[str, Any], report: Report) -> None:
    report.found.append(f"uninterrupted: step {one['step']}, weights sha256:{one['sha256']}")
    report.found.append(f"this run:      step {two['step']}, weights sha256:{two['sha256']}")
    if one["step"] != two["step"]:
        report.reasons.append(f"it ended at step {two['step']}, the uninterrupted run at step {one['step']}")
    if [t[:3] for t in one["tensors"]] != [t[:3] for t in two["tensors"]]:
        report.reasons.append("the models have different tensors")
        return
    for (name, _, _, mine), (*_, other) in zip(one["tensors"], two["tensors"], strict=True):
        if mine != other:
            differ = sum(a != b for a, b in zip(mine, other, strict=True))
            report.reasons.append(f"weights {name} differ in {differ} of {len(mine)} bytes")


def _check_resumes(attempts: list[Attempt], report: Report) -> None:
    for attempt in attempts:
        first = min(attempt.steps, default=None)
        if first not in (None, attempt.resumed_from + 1):
            report.reasons.append(
                f"attempt {attempt.number} ran step {first} first; its resume point was step {attempt.resumed_from}"
            )
        came = f"resumed from step {attempt.resumed_from}" if attempt.resumed_from else "started from nothing"
        ran = f"ran steps {min(attempt.steps)} to {max(attempt.steps)}" if attempt.steps else "finished no step"
        report.found.append(f"attempt {attempt.number}: {came}, {ran}")
    if len(attempts) == 1 and not attempts[0].resumed_from:
        report.found.append("this run was not interrupted either: nothing was resumed")
    elif not any(attempt.resumed_from for attempt in attempts):
        report.reasons.append("no attempt resumed from a checkpoint: all of them started at step 1")
    for before, attempt in pairwise(attempts):
        if before.resumed_from and not attempt.resumed_from:
            report.reasons.append(f"attempt {attempt.number} started from nothing, though one before it had resumed")


def _compare_steps(expected: dict[int, Step], got: dict[int, Step], report: Report) -> None:
    last = max(expected, default=0)
    missing = sorted(set(range(1, last + 1)) - set(got))
    if missing:
        report.reasons.append(f"{len(missing)} of {last} steps are in no attempt's log, the first is {missing[0]}")
    if more := [step for step in got if step > last]:
        report.reasons.append(f"it ran step {min(more)}, which the uninterrupted run did not have")
    both = sorted(set(expected) & set(got))
    by_figure = {
        name: [s for s in both if expected[s].figures[i] != got[s].figures[i]] for i, name in enumerate(FIGURES)
    }
    for what, differ in {"samples": [s for s in both if expected[s].ids != got[s].ids], **by_figure}.items():
        if differ:
            report.reasons.append(f"{what} of {len(differ)} steps differ, from step {differ[0]} on")
    same = sum(len(expected[s].ids) for s in both if expected[s].ids == got[s].ids)
    total = sum(len(step.ids) for step in expected.values())
    report.found.append(f"samples that counted: {same} of {total} the same and in the same order")


def main(arguments: list[str]) -> int:
    """Compare two directories and print the verdict."""
    if len(arguments) != 2:
        print("usage: check.py BASELINE_DIR RUN_DIR", file=sys.stderr)
        return 2
    try:
        report = compare(*(Path(argument) for argument in arguments))
    except Unfit as e:
        print(e)
        print(f"{VERDICT} no")
        return 1
    print("\n".join(report.lines()))
    return 0 if report.identical else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
