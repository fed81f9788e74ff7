"""What this node sees of the checkpoints: asked by the leading agent before a round begins, with a time limit.

The leading agent describes what it has chosen (``Asking``), every other node looks for itself (``answer``), each on a
thread that is left behind if a dead mount holds it. Loaded where there is something to ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ..checkpoint.errors import Unreadable
from ..checkpoint.look import Print, View, awaited, look, print_of, sign_of, steps
from ..checkpoint.look_part import look_part, newest_part
from ..checkpoint.patience import Patience
from ..rendezvous.agreement import NOT_FOR_ALL
from ..rendezvous.asked import HOOKS, MOST_STEPS, Asked, Found, Held, Sight, ranges
from ..rendezvous.leader_words import SelectResume
from ..rendezvous.records import ResumePoint
from .files import FileThread
from .reentry import Others

FOUND = {View.CAN: Found.CAN, View.LACKS: Found.LACKS, View.DIFFERS: Found.DIFFERS, View.UNKNOWN: Found.UNKNOWN}


class Asking(Others):
    """What the leading agent's search knows of the other nodes, and asks them."""

    def __init__(self, ask: SelectResume, directory: Path | None) -> None:
        self._against, self._within = dict(ask.against), ask.within
        self._hints = [name for name, *_ in ask.hints]
        self._directory, self._world = directory, ask.roster.world_size

    def objection(self, name: str) -> str:
        if name in self._against:
            return self._against[name]
        return "" if self._within is None or name in self._within or name in self._hints else NOT_FOR_ALL

    def await_hints(self) -> None:
        if self._hints and self._directory is not None:
            awaited(self._directory, self._hints, Patience())

    def question(self, point: ResumePoint, held: Held) -> Asked:
        if not point.path:
            return Asked(part=self._world)
        if not point.name or self._directory is None:
            return Asked(name=point.path, step=point.step, format=HOOKS)
        if held.ranks:
            sign = sign_of(self._directory / point.name)
            return Asked(name=point.name, step=point.step, format=point.format, sign=sign, part=self._world)
        found = print_of(self._directory / point.name)
        return Asked(0, 0, point.name, point.step, point.format, found.files, found.bytes, found.digest, found.sign)


async def answer(asked: Asked, directory: Path | None, timeout_s: float) -> Sight:
    """Look at what is asked about; never raises."""
    files, enough = FileThread("look"), threading.Event()
    try:
        return await files.run(_answer, asked, directory, enough.is_set, timeout_s=timeout_s)
    except TimeoutError:
        return Sight(asked.mark, Found.UNKNOWN, f"its file system gave no answer within {timeout_s:g} s")
    except OSError as error:
        return Sight(asked.mark, Found.UNKNOWN, f"its file system answers: {error.strerror or error}")
    finally:
        enough.set()
        files.close()


def _answer(asked: Asked, directory: Path | None, give_up: Callable[[], bool]) -> Sight:
    if asked.format == HOOKS:
        if Path(asked.name).exists():
            return Sight(asked.mark, Found.CAN)
        return Sight(asked.mark, Found.LACKS, f"there is no {asked.name!a}")
    if directory is None:
        found = Found.LACKS if asked.name else Found.CAN
        return Sight(asked.mark, found, "it was given no --checkpoint-dir")
    try:
        have = steps(directory, asked.step, MOST_STEPS, asked.part or None)
        parts = newest_part(directory, asked.part) if asked.part and not asked.name else ()
    except Unreadable as error:  # what it holds is not known; that it holds nothing is not either
        return Sight(asked.mark, Found.UNKNOWN, str(error))
    if not asked.name:
        return Sight(asked.mark, Found.CAN, steps=have, parts=parts)
    if asked.part:
        patience = Patience()
        part = look_part(directory, asked.name, asked.step, asked.format, asked.part, asked.sign, patience, give_up)
        return Sight(asked.mark, FOUND[part.view], part.why, have, ranges(part.ranks))
    there = Print(asked.files, asked.bytes, asked.digest, asked.sign)
    looked = look(directory, asked.name, there, Patience(), give_up)
    return Sight(asked.mark, FOUND[looked.view], looked.why, have)
