"""Choose the step that all ranks re-enter from: the newest one that is not stale and verifies to the last bit.

Called once a round by the leading agent, in a thread, when all old ranks are dead. Walks the candidates newest first
and hashes only until one passes. A refused one is named in the answer and left where it is; nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .digest import OVERDUE, never
from .errors import GaveUp
from .layout import LATEST
from .patience import Patience
from .scan import scan
from .select import History, Origin, judge
from .verify import Refused, read_manifest, verify_files


@dataclass(frozen=True, slots=True)
class Choice:
    """Where to re-enter; ``path`` is empty and ``step`` -1 when the ranks must start from nothing."""

    path: str = ""
    step: int = -1
    format: str = ""
    verified: str = ""
    refused: tuple[tuple[str, str], ...] = ()  # (name, reason) of newer steps that were passed over


def unopposed(_name: str) -> str:
    """Object to nothing: where one node alone decides."""
    return ""


def choose(
    directory: Path,
    run_id: str,
    history: History,
    patience: Patience | None = None,
    give_up: Callable[[], bool] = never,
    objection: Callable[[str], str] = unopposed,
) -> Choice:
    """Find the resume point in ``directory``.

    ``objection`` gives the reason why a step of that name cannot be taken, '' when there is none: other nodes' words.
    Blocks while it reads. ``give_up`` is asked between blocks of 1 MiB and ends the search with ``GaveUp``;
    ``Unreadable`` means that the directory could not be listed, which is not the same as an empty one.
    """
    directory = directory.absolute()
    patience = patience or Patience()
    listing = scan(directory, patience)
    refused: list[tuple[str, str]] = []
    if listing.lacking:
        refused.append((listing.lacking, f"{LATEST} names it, but it is not there"))
    if not listing.present:
        refused.append((str(directory), "this checkpoint directory does not exist"))
    for candidate in listing.candidates:
        if give_up():
            raise GaveUp(OVERDUE)
        if reason := objection(candidate.name):
            refused.append((candidate.name, reason))
            continue
        path = directory / candidate.name
        manifest = read_manifest(path, patience)
        if isinstance(manifest, Refused):
            refused.append((candidate.name, manifest.reason))
            continue
        ruling = judge(Origin(manifest.run_id, manifest.round, manifest.step), run_id, history)
        if not ruling.accepted:
            refused.append((candidate.name, ruling.reason))
            continue
        result = verify_files(path, manifest, patience, give_up)
        if isinstance(result, Refused):
            refused.append((candidate.name, result.reason))
            continue
        return Choice(str(path), candidate.step, "manifest", f"{result.how}; {ruling.reason}", tuple(refused))
    return Choice(refused=tuple(refused))
