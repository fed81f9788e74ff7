"""Whether ranks go on from a checkpoint as they should: by the steps that they say, and how these went. Pure.

``agent/reentry_watch.py`` asks on every node for its own ranks, while a round that resumed is not proven. A rank is
compared with itself in the attempt before: in data-parallel training each has a loss of its own. What this node has not
seen itself (another node's rank, an earlier launch, another number of ranks) is not compared. docs/checkpoints.md
explains the numbers.

A wrong refusal ends a healthy attempt and gives up a good checkpoint. So only what is clear refutes; all that is
doubtful merely proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from .evidence import Entry, Said

ENOUGH = 5  # steps in a row that agree, where their loss is compared
MOST = 20  # … where nothing is: steps alone
ASTRAY = 3  # losses in a row that are no numbers: one may be skipped by a script that knows of it
COMPARED = 10  # losses of which each is too high; also steps by which a schedule may lag
SHARE = 0.5  # of the larger of two losses or norms, by which they may differ besides the spread of the earlier ones
RATE = 1e-6  # by which two learning rates of the same step may differ, relatively
VALUES = ("loss", "grad_norm", "lr")


class Resumed(NamedTuple):
    """Where a round re-entered; ``counted``: the checkpoint's own content counts steps, not saves or epochs."""

    step: int
    counted: bool = True


class Unproven(NamedTuple):
    """Nothing can be said yet; ``steps`` agree so far, and ``why`` no more can be said of it."""

    steps: int
    why: str = ""


class Proven(NamedTuple):
    """``steps`` agree; ``by`` names what was compared: steps, and those of loss, grad_norm, lr that could be."""

    steps: int
    by: str


class Refuted(NamedTuple):
    """The ranks do not go on from there: ``rank`` shows it, ``why`` says how, in words that follow its name."""

    rank: int
    steps: int
    why: str


class _Rank(NamedTuple):
    """One rank's steps since it re-entered, and what it had said before that."""

    rank: int
    entries: tuple[Entry, ...]
    last: Sequence[Entry]  # of the attempt before
    then: Mapping[int, Entry]  # … and by step
    same: Mapping[int, Entry]  # … where a step of that number is the same one; else empty


def judge(at: Resumed, now: Mapping[int, Said], before: Mapping[int, Said]) -> Unproven | Proven | Refuted:
    """Judge the ranks of one node by what each has said since it re-entered, and in the attempt before."""
    ranks = [
        _rank(rank, _since(said.first, at.step), before.get(rank, Said()), at.step)
        for rank, said in sorted(now.items())
        if said.first
    ]
    if not ranks:
        return Unproven(0, "no rank says its steps")
    for one in ranks:
        if why := _astray(one):
            return Refuted(one.rank, len(one.entries), why)
    steps = min(len(one.entries) for one in ranks)
    for one in ranks:
        if why := _uneven(one, ranks[0]):
            return Unproven(0, why)
        if why := _elsewhere(one, at.step):
            clear = _replays(one) if _counts_anew(one) else _alike(one, at)
            return Refuted(one.rank, steps, why) if clear else Unproven(0, f"rank {one.rank} {why}")
    if steps < ENOUGH or (len(ranks) < len(now) and steps < MOST):
        return Unproven(steps)
    for one in ranks:
        for entry in one.entries[steps - ENOUGH : steps]:
            if why := _doubt(one, entry):
                return Unproven(steps, why)
    compared = [name for name in VALUES if all(_compared(one, name) for one in ranks)]
    if "loss" not in compared and steps < MOST:
        return Unproven(steps)
    return Proven(min(steps, MOST), ", ".join(("steps", *compared)))


def _rank(rank: int, entries: tuple[Entry, ...], past: Said, step: int) -> _Rank:
    one = _Rank(rank, entries, past.last, {entry.step: entry for entry in (*past.first, *past.last)}, {})
    right = bool(entries) and step > _stride(one) and not _elsewhere(one, step)
    return one._replace(same=one.then) if right and _orderly(Said(entries, ())) and _orderly(past) else one


def _orderly(past: Said) -> bool:
    """Tell whether no number was said of two steps, as by a script that counts each epoch's."""
    by_step = {entry.step: entry for entry in past.first}
    rises = all(a.step < b.step for some in past for a, b in pairwise(some))
    return rises and all(by_step.get(entry.step, entry) == entry for entry in past.last)


def _since(entries: Sequence[Entry], step: int) -> tuple[Entry, ...]:
    """Return the steps behind the resume point; a script may say that one, too, and so begin."""
    return tuple(entries[1:] if entries[0].step == step else entries)


def _uneven(one: _Rank, other: _Rank) -> str:
    """Say why a rank's steps tell nothing; '' when they go up evenly, and as another's do."""
    steps = [entry.step for entry in one.entries]
    if len({b - a for a, b in pairwise(steps)}) > 1 or steps != sorted(set(steps)):
        return f"the steps of rank {one.rank} do not go up evenly"
    if any(mine.step != entry.step for mine, entry in zip(one.entries, other.entries, strict=False)):
        return f"rank {one.rank} says other steps than rank {other.rank}"
    return ""


def _elsewhere(one: _Rank, step: int) -> str:
    """Say that a rank has begun at a wrong step; '' when it has not, or it is too early to tell."""
    if len(one.entries) < ENOUGH:
        return ""
    first, stride = one.entries[0].step, one.entries[1].step - one.entries[0].step
    if step < first <= step + stride:
        return ""
    right = step + 1 if stride == 1 else f"one of {step + 1} to {step + stride}"
    return f"said step {first} first, and the steps behind it, where step {right} comes after the checkpoint's"


def _alike(one: _Rank, at: Resumed) -> bool:
    """Tell whether the rank's steps and the checkpoint's seem to count the same.

    Not so: batches here and updates there, or samples; or the steps of one process, where no other is known.
    """
    first, reached = one.entries[0].step, max((entry.step for entry in one.last), default=at.step)
    near = any(at.step / 2 + _stride(one) < begun < 2 * at.step for begun in (first, min(one.then, default=first)))
    return at.counted and near and first < 2 * at.step and reached >= at.step - 1


def _counts_anew(one: _Rank) -> bool:
    """Tell whether the rank's count began where it had in the attempt before: perhaps it does in each process."""
    return bool(one.then) and one.entries[0].step == min(one.then)


def _replays(one: _Rank) -> bool:
    """Tell whether its losses are those of the same steps, every one: it has begun anew, and not its count alone."""
    one = one._replace(same=one.then)
    again = [(entry.loss, then) for entry in one.entries if (then := _replayed(one, entry, "loss")) is not None]
    return len({loss for loss, _ in again}) >= ENOUGH and all(_same_rate(loss, then) for loss, then in again)


def _astray(one: _Rank) -> str:
    """Say how a rank's values are clearly others than they were; '' when they are not."""
    for name, least in (("loss", ASTRAY), ("grad_norm", MOST)):  # scaled gradients overflow for some steps
        given = [(entry.step, value) for entry in one.entries if (value := _value(entry, name)) is not None]
        last = list(takewhile(lambda pair: not math.isfinite(pair[1]), reversed(given)))
        if len(last) >= least and (len(last) < len(given) or _finite(one.last, name)):
            step, value = last[-1]
            return f"has a {name} of {value} since step {step}"
    off = [(entry, rate) for entry in one.entries if (rate := _replayed(one, entry, "lr")) is not None]
    if len(off) >= ENOUGH and not any(_near_rate(one, entry) for entry, _ in off):
        entry, rate = off[0]
        return f"has a learning rate of {entry.lr:.6g} at step {entry.step}, where it was {rate:.6g}"
    high = [(entry, most) for entry in one.entries if (most := _band(one, entry, "loss")[1]) < math.inf]
    if len(high) >= COMPARED and all(entry.loss is not None and entry.loss > most for entry, most in high):
        entry, most = high[-1]
        return (
            f"has a loss of {entry.loss:.6g} at step {entry.step}, where more than {most:.6g} is not as it was before"
        )
    return ""


def _doubt(one: _Rank, entry: Entry) -> str:
    """Say why a step proves nothing; '' when all that it gives is as it was."""
    for name in VALUES:
        value = _value(entry, name)
        if value is None:
            continue
        low, high = _band(one, entry, name)
        if not (math.isfinite(value) and low <= value <= high):
            expected = f", not within {low:.6g} to {high:.6g}" if math.isfinite(low) else ""
            return f"rank {one.rank} has a {name} of {value:.6g} at step {entry.step}{expected}"
    return ""


def _compared(one: _Rank, name: str) -> bool:
    """Tell whether the last steps have that value, and there is something to hold it against."""
    last = one.entries[-ENOUGH:]
    if name == "lr":  # it may rise or fall at any step: only that of the same step says anything
        return all(_replayed(one, entry, name) is not None for entry in last)
    return all(_value(entry, name) is not None and _near(one, entry, name) for entry in last)


def _band(one: _Rank, entry: Entry, name: str) -> tuple[float, float]:
    """Return between what a value is as it was: at the same step, where that was said, else at the last ones."""
    value, then = _value(entry, name), _replayed(one, entry, name)
    if name == "lr":
        return (-math.inf, math.inf) if then is None else (then - RATE * abs(then), then + RATE * abs(then))
    past = _near(one, entry, name)
    if not past or value is None or not math.isfinite(value):
        return -math.inf, math.inf
    spread = max(past) - min(past)
    low, high = (min(past), max(past)) if then is None else (then, then)
    return low - SHARE * max(abs(low), abs(value)) - spread, high + SHARE * max(abs(high), abs(value)) + spread


def _near(one: _Rank, entry: Entry, name: str) -> list[float]:
    """Return the values that one may be held against: the last ones, and those before where it comes between them.

    None where too few are known, or it comes before them all: it may well be a higher one.
    """
    if not one.same or entry.step < min(one.same):
        return []
    past = _finite(one.last if entry.step >= one.last[0].step else one.same.values(), name)
    return past if len(past) >= ENOUGH else []


def _near_rate(one: _Rank, entry: Entry) -> bool:
    """Tell whether its learning rate is one of about that time: a schedule that waits for a scaler may lag."""
    there = _finite((was for step, was in one.same.items() if abs(step - entry.step) <= COMPARED * _stride(one)), "lr")
    return entry.lr is not None and min(there) - RATE * abs(min(there)) <= entry.lr <= max(there) + RATE * abs(
        max(there)
    )


def _stride(one: _Rank) -> int:
    return max(1, one.entries[1].step - one.entries[0].step) if len(one.entries) > 1 else 1


def _same_rate(rate: float | None, then: float) -> bool:
    return rate is not None and math.isclose(rate, then, rel_tol=RATE)


def _replayed(one: _Rank, entry: Entry, name: str) -> float | None:
    """Return what the rank had given at the same step of the attempt before; None without a number now or then."""
    past, value = one.same.get(entry.step), _value(entry, name)
    then = _value(past, name) if past is not None else None
    return then if then is not None and value is not None and math.isfinite(then) and math.isfinite(value) else None


def _finite(entries: Iterable[Entry], name: str) -> list[float]:
    return [value for value in _values(entries, name) if math.isfinite(value)]


def _values(entries: Iterable[Entry], name: str) -> list[float]:
    return [value for entry in entries if (value := _value(entry, name)) is not None]


def _value(entry: Entry, name: str) -> float | None:
    found: float | None = getattr(entry, name)
    return found
