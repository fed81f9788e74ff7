"""What lies in a checkpoint directory, newest step first. An adapter: lists, decides nothing, opens no step.

Names that no publication finishes with (``.tmp-``, ``.superseded-``, anything foreign) are passed over in silence.
``latest.json`` is only a hint: the one thing it is good for is to doubt a listing that lacks the step it names.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from .digest import opened_directory, opened_file
from .errors import Unreadable
from .layout import LATEST, step_of
from .patience import Patience

_MAX_HINT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Candidate:
    """A directory that has the name of a published step."""

    name: str
    step: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The candidates, newest first, and the name in ``latest.json`` if it is newer and the directory lacks it."""

    candidates: tuple[Candidate, ...] = ()
    lacking: str = ""
    present: bool = True  # False: there is no such directory


def scan(directory: Path, patience: Patience) -> Listing:
    """List a checkpoint directory; raise ``Unreadable`` if it cannot be read. One that is absent holds nothing."""
    while True:
        try:
            found = _list(directory)
        except FileNotFoundError:
            return Listing(present=False)
        named = _hint(directory)
        newest = found[0].step if found else -1
        if (step_of(named) or 0) <= newest:  # an older step that is gone was tidied away by somebody: no loss
            return Listing(found)
        if not named or not patience.again():
            return Listing(found, named)


def _list(directory: Path) -> tuple[Candidate, ...]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise Unreadable(
            f"the checkpoint directory {str(directory)!a} cannot be listed: {e.strerror}; "
            "mount or repair it: starting without it could throw the job's progress away"
        ) from e
    steps = ((name, step_of(name)) for name in names)
    return tuple(sorted((Candidate(n, s) for n, s in steps if s is not None), key=lambda c: c.step, reverse=True))


def _hint(directory: Path) -> str:
    """Return the step name in ``latest.json``, or an empty string for anything that is not one."""
    try:
        with opened_directory(directory) as root, opened_file(root, LATEST) as (fd, _):
            value: object = json.loads(os.read(fd, _MAX_HINT_BYTES))
    except (OSError, ValueError, RecursionError):
        return ""
    name = cast("dict[str, object]", value).get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) and step_of(name) is not None else ""
