"""Where this node's evidence comes from beside its ranks' ends: a list of sources, all bounded, none of them needed.

``crew.py`` tells them that ranks were started and asks them once, when the ranks are dead. Each source is a module of
its own, loaded once ranks run; what one of them cannot do is a ``Lacked`` fact, said once, and never an error. A source
may raise the alarm about living ranks: the node machine then ends the round (``node_words.Alarmed``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from ..health.evidence import Fact
from ..health.observed import NO_DRIVER, Lacked
from ..rendezvous.records import ResumePoint, Round

T = TypeVar("T")

GATHER_S = 2.0  # for all sources together, once the ranks are dead
MOST_FACTS = 64  # of one source and round


class RankHere(NamedTuple):
    """A rank of this node as it was started."""

    rank: int
    local_rank: int
    pid: int
    directory: Path  # of its files
    env: dict[str, str | None]  # what was changed in its environment; None = taken out


class Begun(NamedTuple):
    """The ranks of a round were started here, at ``at_s`` of CLOCK_BOOTTIME."""

    round: Round
    at_s: float
    ranks: tuple[RankHere, ...]
    world: int = 0  # ranks of all nodes
    resumed: ResumePoint = ResumePoint()  # where they re-entered; without a path they started from nothing


class Source(Protocol):
    """One place where evidence is. No call may block the loop, and none may raise but for a defect."""

    name: str

    def begin(self, begun: Begun) -> None:
        """Take what stands now as the state from which changes count; forget the round before."""
        ...

    def inspect(self) -> Coroutine[object, object, None]:
        """Look at the living ranks, which are to be stopped after it; what is found goes into ``facts``."""
        ...

    def facts(self) -> Coroutine[object, object, tuple[Fact, ...]]:
        """Return what was seen since ``begin``; asked once, when the ranks are dead."""
        ...

    def close(self) -> Coroutine[object, object, None]:
        """End whatever the source has started."""
        ...


Maker = Callable[[], Source]


class Sources:
    """All sources of one agent. They are loaded one after the other once the first ranks run: each import holds up the
    loop for milliseconds, and all of them together would for a tenth of a second."""

    def __init__(self, makers: Callable[[], tuple[Maker, ...]], say: Callable[[str], None]) -> None:
        self._makers = makers
        self._made: list[Source] = []
        self._loading: asyncio.Task[None] | None = None
        self._begun: Begun | None = None
        self._say = say
        self._told: set[Lacked] = set()

    def begin(self, begun: Begun) -> None:
        """Say that ranks were started."""
        self._begun = begun
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        for source in self._made:
            source.begin(begun)

    async def _load(self) -> None:
        for make in self._makers():
            source = make()
            assert self._begun is not None
            source.begin(self._begun)
            self._made.append(source)
            await asyncio.sleep(0)

    async def _loaded(self) -> list[Source]:
        if self._loading is not None:
            await self._loading
        return self._made

    async def inspect(self, within_s: float) -> None:
        """Have every source look at the living ranks."""
        work = [asyncio.create_task(source.inspect()) for source in await self._loaded()]
        await _bounded(work, within_s)

    async def facts(self) -> tuple[Fact, ...]:
        """Return what all sources have seen; one that is late or broken is named among what is lacking."""
        made = tuple(await self._loaded())
        work = [asyncio.create_task(source.facts()) for source in made]
        await _bounded(work, GATHER_S)
        found: list[Fact] = []
        for source, task in zip(made, work, strict=True):
            if task.cancelled():
                found.append(Lacked(source.name, f"no answer within {GATHER_S:g} s"))
            elif error := task.exception():
                found.append(Lacked(source.name, f"{type(error).__name__}: {error}"))
            else:
                found += task.result()[:MOST_FACTS]
        for fact in found:
            if isinstance(fact, Lacked) and fact != NO_DRIVER and fact not in self._told:
                self._told.add(fact)
                self._say(f"no evidence from {fact.source}: {fact.why}")
        return tuple(found)

    async def close(self) -> None:
        """End all of them; what is not loaded yet never is."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})
        for source in self._made:
            await source.close()
        self._made.clear()


async def _bounded(work: Sequence[asyncio.Task[T]], within_s: float) -> None:
    if not work:
        return
    _, late = await asyncio.wait(work, timeout=within_s)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=0.1)
