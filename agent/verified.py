"""What the next launch will find: the newest checkpoint is verified once the ranks have left for a stop notice.

Asked by the agent that led, as its last words, within what the scheduler has left. Loaded then.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..rendezvous.errors import BadRecord, StoreError
from ..rendezvous.history import History, sized, steps
from ..rendezvous.keys import Keys
from ..rendezvous.records import Job
from ..rendezvous.snapshot import Snapshot
from ..rendezvous.store import Store, prefix_end
from ..rendezvous.suspects import below, none_older, objections
from .files import FileThread
from .spec import JobSpec

if TYPE_CHECKING:
    from ..checkpoint.examine import Asked
    from ..checkpoint.resume import Choice

UNLIMITED_S = 20.0  # where nobody says how much time is left
LAST_S = 2.0  # that stay for the end of the process


def bound_s(now: float, ends_at: float) -> float:
    """Return how long the search may take when all is over at ``ends_at``, 0 = not known."""
    return min(UNLIMITED_S, ends_at - now - LAST_S) if ends_at else UNLIMITED_S


async def what_is_there(spec: JobSpec, store: Store, keys: Keys, job: Job | None, within_s: float) -> str:
    """Return the sentence about the newest checkpoint, '' where the choice is a hook's or there are none. Bounded.

    ``job`` is its record as it ended: what is suspect is passed over by the next launch, too.
    """
    if spec.checkpoint_dir is None or spec.resume_hook is not None:
        return ""
    left = f"{max(0.0, within_s):.0f} s"
    late = f"the newest checkpoint was not verified: {left} were left for that; the next launch does it first"
    if within_s <= 0:
        return late
    history, world = await _rounds(store, keys, job)
    files, enough = FileThread("verify"), threading.Event()
    try:
        asked = _asked(spec, history, world, job, enough)
        choice = await files.run(_search, spec.checkpoint_dir, asked, timeout_s=within_s)
        return said(choice, none_older(job) if job is not None else "")
    except TimeoutError:
        return late
    except OSError as error:
        return f"the newest checkpoint could not be verified: {error.strerror or error}; the next launch tries again"
    finally:
        enough.set()
        files.close()


def said(choice: Choice, not_anew: str = "") -> str:
    """Return the sentence for what was chosen; ``not_anew``: why the next launch must not begin from nothing. Pure."""
    passed = "; ".join(f"{name} is passed over: {why}" for name, why in choice.refused[:3])
    if not choice.path and not_anew:
        return f"nothing is there to go on from, and the next launch ends with that: {not_anew}"
    if not choice.path:
        why = passed or "there is no checkpoint"
        return f"nothing is there to go on from: the next launch begins anew ({why})"
    over = f"; {passed}" if passed else ""
    if choice.ranks:
        what = f"step {choice.step} ({Path(choice.path).name}): what this node has of it is verified"
        return f"{what}, and the next launch goes on from there if the other nodes have the rest{over}"
    return f"step {choice.step} verified ({Path(choice.path).name}): the next launch goes on from there{over}"


async def _rounds(store: Store, keys: Keys, job: Job | None) -> tuple[History, int | None]:
    """Return where the rounds had resumed, and how many ranks the last one had, as far as the store still says so."""
    history: History = ()
    try:
        found = await store.range(keys.histories, prefix_end(keys.histories))
        history = Snapshot.read(keys, found).history()
        if job is None:
            return history, None
        found = await store.range(keys.rosters, prefix_end(keys.rosters))
        roster = Snapshot.read(keys, found).roster(job)
    except (StoreError, BadRecord):
        return history, None
    return history, None if roster is None else roster.world_size


def _asked(
    spec: JobSpec,
    history: History,
    world: int | None,
    job: Job | None,
    enough: threading.Event,
) -> Asked:
    from ..checkpoint.examine import Asked

    against = {} if job is None else dict(objections(job))
    return Asked(
        spec.run_id,
        steps(history),
        spec.checkpoint_format,
        world,
        give_up=enough.is_set,
        objection=lambda name: against.get(name, ""),
        below=None if job is None else below(job),
        worlds=sized(history),
        part=spec.max_nodes > 1,
    )


def _search(directory: Path, asked: Asked) -> Choice:
    """Choose as the next launch will, and read the files. Blocks."""
    from ..checkpoint.errors import CheckpointError
    from ..checkpoint.resume import search

    try:
        return search(directory, asked)
    except CheckpointError as error:
        raise OSError(str(error)) from error
