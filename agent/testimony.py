"""What this node tells of a round once its ranks are dead: how each ended, in its own words, and what was kept of it.

Blocking; called through the file thread by ``crew.py``, which bounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..health import errorfile
from ..health.evidence import Fact, RankExit
from ..health.observed import Bundle, Lacked
from .bundle import make
from .outputs import last_lines


class Ends(NamedTuple):
    """What the agent knows of its ranks' ends beside their statuses; all by local rank, but ``why`` by pid."""

    directories: Mapping[int, Path]
    wall: Mapping[int, int]  # the wall clock when it ended
    why: Callable[[int], str] | None = None  # a line of the agent's own, for a rank that it killed


def describe(
    facts: tuple[Fact, ...], ends: Ends, room: tuple[Path, int] | None
) -> tuple[tuple[Fact, ...], Bundle | Lacked | None]:
    """Add last lines and error files to the ranks that did not exit 0, and make the place for a bundle.

    ``room`` is the run's directory and the attempt that failed; None: nothing is to be kept.
    """
    told = tuple(_described(fact, ends) if isinstance(fact, RankExit) and fact.status else fact for fact in facts)
    return told, None if room is None else _place(*room)


def _place(run_dir: Path, attempt: int) -> Bundle | Lacked:
    """Make a bundle's directory, or say why there is none: a full disk must cost no word of the failure itself."""
    try:
        return Bundle(str(make(run_dir, attempt)))
    except OSError as error:
        return Lacked("bundle", f"it could not be kept in {run_dir}: {error.strerror}")


def _described(fact: RankExit, ends: Ends) -> RankExit:
    fact = fact._replace(wall=ends.wall.get(fact.local_rank, 0))
    directory = ends.directories.get(fact.local_rank)
    if directory is None:
        return fact
    lines = last_lines(directory / "stderr.log") or last_lines(directory / "stdout.log")
    if ends.why and (why := ends.why(fact.pid)):
        lines = (*lines, why)
    return fact._replace(tail=lines, error=errorfile.read(directory / "error.json"), logs=str(directory))
