"""Checkpoints that a round has re-entered from and did not go on from as it should: kept in ``job``, passed over. Pure.

A suspect is whole, so nothing that reads it finds fault with it; only the ranks have shown it. What they saved since is
no better, and is passed over with it until a round has recovered. The next older one is tried once in a launch: a
second refutation in a row says that the fault lies elsewhere. ``--fresh`` forgets all of it.
"""

from __future__ import annotations

from dataclasses import replace

from .records import MAX_SUSPECT, MAX_SUSPECTS, SETTLED, Job, ResumePoint, Round, Suspect

Suspects = tuple[Suspect, ...]


def counting(suspects: Suspects) -> Suspects:
    """Return those after which an older one has been tried, or is to be, and no round has recovered since."""
    return tuple(one for one in suspects if one.round != SETTLED)


def of_another_launch(suspects: Suspects) -> Suspects:
    """Return them as a new launch takes them over: passed over all the same, and an older one is tried again."""
    return tuple(one._replace(round=SETTLED) for one in suspects)


def after_round(job: Job, n: Round, suspect: ResumePoint, recovered: bool) -> Job:
    """Return the record when round ``n`` is over, which had re-entered from ``suspect``, if that has a path."""
    kept = job.suspects
    if recovered:  # what is newer now is its own
        kept = tuple(one._replace(round=SETTLED, step=-1) for one in kept)
    if suspect.path:
        name = (suspect.name or suspect.path)[:MAX_SUSPECT]
        others = (one for one in kept if one.name != name)
        kept = (*others, Suspect(name, suspect.step, int(n)))[-MAX_SUSPECTS:]
    return job if kept == job.suspects else replace(job, suspects=kept)


def objections(job: Job) -> tuple[tuple[str, str], ...]:
    """Return why each of them is passed over."""
    return tuple(
        (one.name, f"suspect: {_when(one)} re-entered from it and did not go on as before") for one in job.suspects
    )


def below(job: Job) -> tuple[int, str] | None:
    """Return which step a checkpoint must be below, and why; None where nothing bounds it."""
    oldest = _oldest(job)
    if oldest is None:
        return None
    return (
        oldest.step,
        f"suspect: not older than {oldest.name[:64]}, from which {_when(oldest)} did not go on as before",
    )


def none_older(job: Job) -> str:
    """Say why a round must not begin from nothing; '' when it may."""
    oldest = _oldest(job)
    if oldest is None:
        return ""
    return (
        f"no checkpoint older than {oldest.name[:64]} is left to re-enter from, and that one is suspect: "
        f"{_when(oldest)} did not go on from it as before; with --fresh a launch forgets that"
    )


def _oldest(job: Job) -> Suspect | None:
    """Return the oldest of those with which what is newer is passed over, too."""
    return min((one for one in job.suspects if one.step >= 0), key=lambda one: one.step, default=None)


def _when(one: Suspect) -> str:
    return f"round {one.round}" if one.round != SETTLED else "an earlier round"
