"""Whether this node's ranks go on from the checkpoint that they were given: asked while that is not proven.

``health/reentry.py`` judges; here are the memory into which ranks say their steps, what they said in the attempt
before, and pauses between looks. Their first steps stay in that memory, so a late look misses nothing. A re-entry that
is proven is told to the store (``node_words.Reentered``), one that is refuted ends the round by an alarm. Called by
``crew.py`` as a source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ..health.evidence import Fact, Said
from ..health.observed import REENTRY, Early, Reentry
from ..health.reentry import Proven, Refuted, Resumed, Unproven, judge
from ..rendezvous.records import ResumePoint
from ..rendezvous.reentered import Reentered, encode_reentered
from . import node_words as words
from .linux import boottime
from .sources import Begun

# Formats whose steps are those of the training, by what stands in the checkpoint; the number in another's name may be
# that of an epoch or of a save.
COUNTED = frozenset({"manifest", "transformers", "lightning", "deepspeed", "megatron"})
LOOK_LEAST_S, LOOK_MOST_S = 1.0, 30.0
SHARE = 0.1  # of the time since the start, between two looks: who loads for long goes on slowly
WINDOW_S = 0.2  # nobody leaves a dump for it


class ReentryWatch:
    """The source. ``said``: what a local rank has said in the present round."""

    name = "re-entry"

    def __init__(self, said: Callable[[int], Said], post: Callable[[words.Event], None]) -> None:
        self._said = said
        self._post = post
        self._begun: Begun | None = None
        self._before: Mapping[int, Said] = {}  # of the last attempt that ran as it should, by rank
        self._world = 0  # how many ranks that had
        self._task: asyncio.Task[None] | None = None
        self._found: Unproven | Proven | Refuted = Unproven(0)

    def begin(self, begun: Begun) -> None:
        """Watch the ranks of a new round, if it resumed."""
        self._stop()
        self._begun, self._found = begun, Unproven(0)
        if begun.resumed.path:
            self._task = asyncio.create_task(self._watch(begun, begun.resumed))

    async def inspect(self) -> None:
        """Nothing: what ranks have said is there afterwards, too."""

    async def facts(self) -> tuple[Fact, ...]:
        """Say how far the ranks had gone on, unless that was told; hold the next ones against what these have said."""
        self._stop()
        begun, found = self._begun, self._found
        if begun is None:
            return ()
        if begun.resumed.path and isinstance(found, Unproven):
            found = self._judge(begun)
        told = () if not begun.resumed.path or isinstance(self._found, Proven) else (self._so_far(begun, found),)
        well = not begun.resumed.path or isinstance(found, Proven)
        if well or not (self._before or isinstance(found, Refuted)):
            self._before, self._world = self._now(begun), begun.world
        return told

    def _so_far(self, begun: Begun, found: Unproven | Proven | Refuted) -> Reentry:
        said = max(len(one.first) for one in self._now(begun).values())
        silent = not said and not any(one.first for one in self._before.values())
        why = found.why if isinstance(found, (Unproven, Refuted)) else ""
        if isinstance(found, Refuted):
            why = f"rank {found.rank} {why}"
        return Reentry(found.steps, -1 if silent else said, isinstance(found, Refuted), why)

    async def close(self) -> None:
        """Stop watching."""
        self._stop()

    def _now(self, begun: Begun) -> dict[int, Said]:
        return {here.rank: self._said(here.local_rank) for here in begun.ranks}

    def _judge(self, begun: Begun) -> Unproven | Proven | Refuted:
        at = Resumed(begun.resumed.step, begun.resumed.format in COUNTED)
        # Another number of ranks shares the data out in another way.
        before: Mapping[int, Said] = self._before if self._world == begun.world else {}
        return judge(at, self._now(begun), before)

    async def _watch(self, begun: Begun, resumed: ResumePoint) -> None:
        while True:
            self._found = self._judge(begun)
            since_s = boottime() - begun.at_s
            match self._found:
                case Proven(steps=steps, by=by):
                    said = encode_reentered(Reentered(steps, by))
                    self._post(words.Reentered(boottime(), begun.round, said))
                    return
                case Refuted(rank=rank, why=why):
                    name = resumed.name or resumed.path
                    sentence = f"rank {rank} {why}: it does not go on from checkpoint {name} (step {resumed.step})"
                    early = Early(rank, since_s, sentence, REENTRY)
                    self._post(words.Alarmed(boottime(), begun.round, early, WINDOW_S))
                    return
                case Unproven():
                    await asyncio.sleep(min(LOOK_MOST_S, max(LOOK_LEAST_S, SHARE * since_s)))

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
