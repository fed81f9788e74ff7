"""Breadth-first search over all worlds of a setting: safety with a shortest trace, and liveness.

Liveness is meant as in the protocol's model: from every world a good one can be reached by fair steps alone.
"""

from __future__ import annotations

import gc
import time
from array import array
from dataclasses import dataclass
from itertools import pairwise

from .moves import FAIR, Move, beginning, good, moves_of, taken
from .play import Scene
from .rules import Rules
from .setting import Setting
from .telling import tell
from .values import Violation, World


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found. ``complete``: every world within the setting's bounds was looked at."""

    setting: Setting
    worlds: int
    steps: int
    seconds: float
    complete: bool
    fault: str = ""  # name of the invariant that does not hold; "9 liveness" when a world is stuck
    what: str = ""
    trace: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()  # of moves that were taken

    @property
    def told(self) -> str:
        """Say it in a line, and the shortest way to it."""
        end = f"[{self.fault}] {self.what}" if self.fault else "holds" if self.complete else "holds as far as it went"
        line = f"{self.setting.name}: {end}; {self.worlds} worlds, {self.steps} steps, {self.seconds:.1f} s"
        return "\n".join([line, *(f"  {k:3} {step}" for k, step in enumerate(self.trace, 1))])


def search(setting: Setting, rules: Rules | None = None, most: int | None = None) -> Found:
    """Look at all worlds of ``setting``, nearest first, until an invariant breaks or ``most`` were seen."""
    gc.disable()  # millions of tuples, and not one cycle
    try:
        return Search(setting, rules or Rules()).run(setting.most_states if most is None else most)
    finally:
        gc.enable()


class Search:
    """One search: the worlds seen, and from where each was first reached."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self.setting = setting
        self.scene = Scene(setting, rules)
        self.began = time.process_time()
        self.first = beginning(self.scene)
        self.worlds: list[World] = [self.first]
        self.numbers: dict[World, int] = {self.first: 0}
        self.parents = array("l", [-1])
        self.edges_from, self.edges_to = array("l"), array("l")  # of fair steps
        self.steps = 0
        self.kinds: set[str] = set()

    def run(self, most: int) -> Found:
        scene, worlds, numbers, parents = self.scene, self.worlds, self.numbers, self.parents
        live, k, complete = self.setting.live, 0, True
        while k < len(worlds):
            world = worlds[k]
            for kind, move in moves_of(scene, world):
                self.steps += 1
                self.kinds.add(move[0])
                try:
                    after = taken(scene, world, move)
                except Violation as violation:
                    return self._found(violation.name, violation.args[0], self._way(k, move), complete=False)
                m = numbers.get(after)
                if m is None:
                    if len(worlds) >= most:
                        complete = False
                        continue
                    m = numbers[after] = len(worlds)
                    worlds.append(after)
                    parents.append(k)
                if live and kind is FAIR:
                    self.edges_from.append(k)
                    self.edges_to.append(m)
            k += 1
        if complete and live:
            stuck = self._stuck()
            if stuck is not None:
                what = "[9 liveness] no fair steps lead to a good world from here"
                return self._found("9 liveness", what, self._way(stuck, None), complete=True)
        return self._found("", "", (), complete=complete)

    def _found(self, fault: str, what: str, trace: tuple[str, ...], *, complete: bool) -> Found:
        seconds = time.process_time() - self.began
        what = what.partition("] ")[2]
        kinds = frozenset(self.kinds)
        return Found(self.setting, len(self.worlds), self.steps, seconds, complete, fault, what, trace, kinds)

    def _stuck(self) -> int | None:
        """Return the first world from which no good one can be reached by fair steps."""
        count = len(self.worlds)
        heads, following = array("l", [-1]) * count, array("l", [-1]) * len(self.edges_to)
        for e, m in enumerate(self.edges_to):
            following[e], heads[m] = heads[m], e
        fine = bytearray(count)
        todo = [k for k, world in enumerate(self.worlds) if good(self.scene, world)]
        for k in todo:
            fine[k] = 1
        while todo:
            e = heads[todo.pop()]
            while e >= 0:
                k = self.edges_from[e]
                if not fine[k]:
                    fine[k] = 1
                    todo.append(k)
                e = following[e]
        stuck = fine.find(0)
        return None if stuck < 0 else stuck

    def _way(self, k: int, last: Move | None) -> tuple[str, ...]:
        """Tell the shortest way to world ``k``, and the step that followed."""
        path = [k]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        path.reverse()
        said: list[str] = []
        for here, there in pairwise(path):
            move = next(m for m in self._moves(self.worlds[here]) if self._leads(self.worlds[here], m, there))
            said.append(self._said(self.worlds[here], move))
        if last is not None:
            said.append(self._said(self.worlds[k], last))
        return tuple(said)

    def _moves(self, world: World) -> list[Move]:
        return [move for _, move in moves_of(self.scene, world)]

    def _leads(self, world: World, move: Move, there: int) -> bool:
        return taken(self.scene, world, move) == self.worlds[there]

    def _said(self, world: World, move: Move) -> str:
        notes: list[str] = []
        try:
            taken(self.scene, world, move, notes)
        except Violation as violation:
            notes.append(str(violation))
        return "; ".join([tell(self.scene, world, move), *notes])
