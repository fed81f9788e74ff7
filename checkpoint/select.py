"""May this step be re-entered, as far as its token goes? Pure; called by ``resume`` before anything is hashed.

A worker group that had been replaced, but whose machine was only frozen, can still finish a publication when it
thaws. Nothing can stop its write, so the reader decides: the rounds of the run, and where each re-entered, show it.
"""

from __future__ import annotations

from dataclasses import dataclass

History = tuple[tuple[int, int | None], ...]
"""Every formed round of the run with the step it resumed from; None when it started from nothing."""


Worlds = tuple[tuple[int, int | None, int], ...]
"""Rounds of which that is known, each with the step it resumed from (None: nothing) and its number of ranks."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who published a step, as its manifest says."""

    run_id: str
    round: int
    step: int


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether a step's token lets it be re-entered, and why."""

    accepted: bool
    reason: str


def judge(origin: Origin, run_id: str, history: History) -> Ruling:
    """Refuse a step of a round that some later round of this run had already replaced further back."""
    if origin.run_id != run_id:
        # Who only looks into the directory is of no run.
        return Ruling(True, f"published by {'another run,' if run_id else 'run'} {origin.run_id!a}")
    for later, resumed in sorted(history, key=lambda item: item[0]):
        if later > origin.round and (resumed is None or resumed < origin.step):
            back = "nothing" if resumed is None else f"step {resumed}"
            return Ruling(
                False,
                f"stale: published by round {origin.round}, but round {later} had already resumed from {back}, "
                "so it comes from a worker group that had been replaced",
            )
    return Ruling(True, f"published by round {origin.round} of this run, which no later round went back behind")


def ranks_that_wrote(step: int | None, worlds: Worlds) -> int | None:
    """Return of how many ranks the round was that saved a step: the last one that had begun below it. None: unknown."""
    for _, resumed, world in sorted(worlds, key=lambda item: item[0], reverse=True):
        if step is not None and (resumed is None or resumed < step):
            return world
    return None
