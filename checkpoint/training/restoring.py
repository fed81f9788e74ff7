"""Set a script's objects from a step that ``save`` or ``async_save`` has published. Collective: every rank calls it.

The launcher has chosen and verified the step for all ranks alike. All read first and tell each other whether they
could; only then anything is changed. An error on any rank is a ``RestoreError`` on every rank.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import RestoreError
from ..identity import identity, resume_from
from ..patience import Patience
from ..ranks import Ranks, ranks
from ..verify import Refused, read_manifest
from . import sharded
from .collect import (
    COMMON,
    SHARDS,
    apply_common,
    apply_own,
    check_fit,
    own_name,
    set_sharded_state,
    sharded_state,
)
from .state import TrainState, is_sharded

_log = logging.getLogger("remuster.checkpoint")


@dataclass(slots=True)
class _Found:
    """What one rank has read of a step, before anything is set."""

    step: int = 0
    common: dict[str, Any] = field(default_factory=dict[str, Any])
    own: dict[str, Any] = field(default_factory=dict[str, Any])
    shards: dict[str, Any] | None = None


def restore(state: TrainState, path: str | os.PathLike[str] | None = None, *, allow_world_change: bool = False) -> int:
    """Set everything in ``state`` and the random states; return the step that is done, 0 to start from nothing.

    ``path`` is a step's directory and defaults to the launcher's choice. Call it last, right before the training loop:
    what draws random numbers after it would not have drawn them in a run without a break. With
    ``allow_world_change`` another number of ranks may go on; docs/saving.md says with what.
    """
    place = (
        os.path.abspath(given) if (given := os.fspath(path) if path is not None else resume_from(os.environ)) else ""
    )
    line = ranks(None, None, identity(os.environ))
    places = line.gather(place)
    if len(set(places)) > 1:
        raise RestoreError(f"the ranks were told different checkpoints: {sorted(set(places))}; restore the same on all")
    if not place:
        return 0
    step = Path(place)
    found = _Found()

    def read() -> None:
        _read(found, state, step, line.rank, len(places), allow_world_change)

    def apply() -> None:
        if found.shards is not None:
            set_sharded_state(state, found.shards)
        apply_common(state, found.common)
        apply_own(state, found.own)

    _together(line, step, read)
    if found.shards is not None:
        shards = found.shards
        _together(line, step, lambda: sharded.read(shards, step))
    _together(line, step, apply)
    return found.step


def _together(line: Ranks, step: Path, act: Callable[[], None]) -> None:
    """Run ``act`` on all ranks; raise on all when it failed on any. Broad on purpose: nobody may be missed."""
    problem, cause = "", None
    try:
        act()
    except Exception as e:
        problem, cause = str(e) or type(e).__name__, e
    try:
        problems = line.gather(problem)
    except Exception as e:
        raise RestoreError(f"{step} is not restored: {problem or f'the ranks could not agree: {e}'}") from (cause or e)
    for rank, said in enumerate(problems):
        if said:
            raise RestoreError(f"{step} is not restored: rank {rank}: {said}") from cause


def _read(found: _Found, state: TrainState, step: Path, rank: int, world: int, allow_world_change: bool) -> None:
    """Read the files of this rank, and look whether they fit the objects that are there. Changes nothing."""
    manifest = read_manifest(step, Patience())
    if isinstance(manifest, Refused):
        raise ValueError(manifest.reason)
    names = {entry.path for entry in manifest.files}
    if COMMON not in names:
        raise ValueError(f"it has no {COMMON}, so remuster.checkpoint.save has not written it")
    kept_sharded = f"{SHARDS}/{sharded.METADATA}" in names
    if kept_sharded != is_sharded(state.model):
        raise ValueError(
            f"the checkpoint is {'' if kept_sharded else 'not '}of a sharded model, and this one is "
            f"{'not ' if kept_sharded else ''}sharded: give the model that it was saved from"
        )
    before = manifest.world_size or 0
    if before != world and not allow_world_change:
        raise ValueError(
            f"{before} ranks wrote it, and {world} are here: random states and data positions are those of one rank "
            "each. Give allow_world_change=True to go on, but not to the last bit"
        )
    own = _load(step / own_name(rank if rank < before else 0))
    if before != world:
        own = _reshared(state, own, before, world, is_new=rank >= before)
    found.step, found.common, found.own = manifest.step, _load(step / COMMON), own
    check_fit(state, found.common, own, before == world)
    found.shards = sharded_state(state) if kept_sharded else None


def _load(path: Path) -> dict[str, Any]:
    torch: Any = import_module("torch")
    loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return loaded


def _reshared(state: TrainState, own: dict[str, Any], before: int, now: int, is_new: bool) -> dict[str, Any]:
    """Return what a rank of another world goes on with: its number's own state, and none for a number that is new."""
    if own["accumulated"]:
        raise ValueError(
            f"it was saved with {own['accumulated']} micro-batches accumulated: their gradients are those of one rank "
            f"each, and cannot be shared out among {now}. Save after an optimizer step"
        )
    kept = {name: value for name, value in own.items() if not (is_new and name in ("rng", "per_rank"))}
    if "data" not in kept:
        return kept
    reshared = getattr(state.data, "reshared", None)
    if reshared is not None:
        return {**kept, "data": reshared(kept["data"], before, now)}
    _log.warning(
        "%s cannot be shared out among %d ranks instead of %d: the data begin anew",
        type(state.data).__name__,
        now,
        before,
    )
    return {name: value for name, value in kept.items() if name != "data"}
