"""What of a checkpoint lies on this node, where each node may hold the files of its own ranks alone. An adapter.

The node that chooses has verified its own part; each other one reads and judges what it has, by the same format's
rules. Whether the parts are all of it, and lie where they are needed, is not decided here. Blocks: called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .digest import never
from .errors import GaveUp, Unreadable
from .examine import Asked, Look, examine
from .look import View, inside, present, sign_of
from .patience import Patience
from .scan import scan


class Part(NamedTuple):
    """Whose files lie here, all of them whole; else why not."""

    view: View
    why: str = ""
    ranks: tuple[int, ...] = ()


def look_part(
    directory: Path,
    name: str,
    step: int,
    format_: str,
    world: int,
    sign: str = "",
    patience: Patience | None = None,
    give_up: Callable[[], bool] = never,
) -> Part:
    """Judge what stands under ``name`` in a checkpoint directory, for a round of ``world`` ranks.

    ``sign``: of the folder whose files the node that chooses has read; if it is this very one, they are not read again.
    """
    if not inside(directory, directory / name):
        return Part(View.DIFFERS, f"{name!a} is no name of a checkpoint")
    patience = patience or Patience()
    while not present(directory / name):  # NFS hides for a while what another node has written
        if not patience.again():
            break
    known = bool(sign) and present(directory / name) and sign_of(directory / name) == sign
    asked = Asked(format=format_, world=world, give_up=give_up, part=True)
    try:
        found = _examined(directory, name, replace(asked, deep=not known), patience)
    except (GaveUp, Unreadable) as error:
        return Part(View.UNKNOWN, str(error))
    if found is None:
        there = present(directory / name)
        return Part(View.DIFFERS, "it is no checkpoint here") if there else Part(View.LACKS, "it is not there")
    if not found.whole:
        return Part(View.UNKNOWN if found.whole is None else View.DIFFERS, found.words)
    if found.step is not None and found.step != step:
        return Part(View.DIFFERS, f"it is of step {found.step} here")
    if not found.counted and found.world not in (None, world):
        return Part(View.LACKS, f"{found.world} ranks wrote what is here of it, and {world} are to come")
    return Part(View.CAN, "", found.ranks or tuple(range(found.world or world)))


def is_part(directory: Path, name: str, asked: Asked) -> bool:
    """Say whether it is torn only because it is some ranks' part, as names and sizes show."""
    found = _examined(directory, name, replace(asked, deep=False, part=True), Patience(()))
    return found is not None and bool(found.ranks)


def newest_part(directory: Path, world: int) -> tuple[tuple[str, int], ...]:
    """Return name and step of the newest checkpoint of which a part lies here, as names and sizes show; () of none.

    ``Unreadable``: what the directory holds is not known.
    """
    asked, patience = Asked(world=world, deep=False, part=True), Patience(())
    for one in scan(directory, patience).candidates:
        found = examine(directory, one, asked, patience, {}) if one.step is not None else None
        if found is not None and found.ranks and found.step is not None:
            return ((one.name, found.step),)
    return ()


def _examined(directory: Path, name: str, asked: Asked, patience: Patience) -> Look | None:
    """Look at one entry of the directory; None: nothing of that name is a checkpoint's."""
    candidate = next((one for one in scan(directory, Patience(())).candidates if one.name == name), None)
    return None if candidate is None else examine(directory, candidate, asked, patience, {})
