"""What of a checkpoint lies on this node, where each node may hold the files of its own ranks alone. An adapter.

The node that chooses has verified its own part; each other one reads and judges what it has, by the same format's
rules. Whether the parts are all of it, and lie where they are needed, is not decided here. Blocks: called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .digest import never
from .errors import GaveUp
from .examine import Asked, examine
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
    sign: str,
    patience: Patience,
    give_up: Callable[[], bool] = never,
) -> Part:
    """Judge what stands under ``name`` in a checkpoint directory, for a round of ``world`` ranks.

    ``sign``: of the folder whose files the node that chooses has read; if it is this very one, they are not read again.
    """
    if not inside(directory, directory / name):
        return Part(View.DIFFERS, f"{name!a} is no name of a checkpoint")
    while not present(directory / name):  # NFS hides for a while what another node has written
        if not patience.again():
            return Part(View.LACKS, "it is not there")
    candidate = next((one for one in scan(directory, Patience(())).candidates if one.name == name), None)
    if candidate is None:
        return Part(View.DIFFERS, "it is no checkpoint here")
    try:
        deep = sign_of(directory / name) != sign
        asked = Asked(format=format_, world=world, deep=deep, give_up=give_up, part=True)
        found = examine(directory, candidate, asked, patience, {})
    except GaveUp as error:
        return Part(View.UNKNOWN, str(error))
    if not found.whole:
        return Part(View.UNKNOWN if found.whole is None else View.DIFFERS, found.words)
    if found.step is not None and found.step != step:
        return Part(View.DIFFERS, f"it is of step {found.step} here")
    return Part(View.CAN, "", found.ranks or tuple(range(found.world or world)))


def newest_part(directory: Path, world: int) -> tuple[tuple[str, int], ...]:
    """Return name and step of the newest checkpoint of which a part lies here, as names and sizes show; () of none."""
    asked, patience = Asked(world=world, deep=False, part=True), Patience(())
    for one in scan(directory, patience).candidates:
        found = examine(directory, one, asked, patience, {}) if one.step is not None else None
        if found is not None and found.ranks and found.step is not None:
            return ((one.name, found.step),)
    return ()
