"""Raises the alarm when this node's ranks hang, and says at a round's end how long each had been silent.

``health/hang.py`` judges and names the time of the next look; here are the clock, the page of beats, a thread for looks
from outside, and what was learnt in earlier rounds. Between two looks nothing runs. Called by ``crew.py`` as a source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import NamedTuple

from ..health import hang
from ..health.evidence import Beat, Fact
from ..health.observed import SILENCE, Early, Silence, Slow
from . import node_words as words
from .files import FileThread
from .linux import boottime
from .sources import MOST_FACTS, Begun
from .traces import sample, without_output

WINDOW_S = 0.2  # nobody leaves a dump because we have lost patience; stacks are taken in the look that follows
SAMPLE_S = 5.0  # for one look from outside
ASLEEP_S = 0.5  # by which the clock that counts sleep runs ahead of the other, more than it takes to read both


class Means(NamedTuple):
    """What the watch reads and whom it tells."""

    beats: Callable[[], Mapping[int, Beat]]  # of the present round, by local rank
    post: Callable[[words.Event], None]
    gpus: Callable[[], Awaitable[Mapping[int, bool]]]  # which ranks' GPUs compute, as far as is known within a second


class HangWatch:
    """The source. ``given_s``: --hang-timeout; None when it is computed, 0 when nobody wants to know."""

    name = "hang watch"

    def __init__(self, given_s: float | None, means: Means) -> None:
        self._off = given_s == 0
        self._terms = hang.Terms(given_s or None)
        self._means = means
        self._thread = FileThread("hang-watch")
        self._begun: Begun | None = None
        self._since_s = 0.0  # nothing is held against ranks from before
        self._trail: hang.Trail | None = None
        self._task: asyncio.Task[None] | None = None
        self._found: tuple[Fact, ...] = ()

    def begin(self, begun: Begun) -> None:
        """Watch the ranks of a new round."""
        self._stop()
        self._begun, self._since_s, self._trail, self._found = begun, begun.at_s, None, ()
        self._terms = self._terms._replace(out_s=0.0, before_s=0.0)
        if not self._off:
            self._task = asyncio.create_task(self._watch(begun))

    async def inspect(self) -> None:
        """Note how long each rank has been silent, when that is half of what it may be, or more."""
        self._stop()
        if self._begun is None or self._off:
            return
        beats, now = self._beats(self._begun), boottime()
        may = hang.allowed(beats.values(), self._terms)
        found = [self._silence(rank, beat, now, may.s) for rank, beat in beats.items()]
        if not beats and self._trail is not None:
            found = [
                Silence(rank, -1, now - max(at, self._trail.worked_s), may.s, "output")
                for rank, at in self._trail.busy_s.items()
            ]
        found = [one for one in found if one.silent_s >= one.allowed_s / 2]
        found.sort(key=lambda one: (one.step, -one.silent_s))
        self._found = tuple(found[: MOST_FACTS // 2])
        if found and self._terms.given_s is None:
            self._terms = hang.raised(self._terms, max(one.silent_s for one in found))

    async def facts(self) -> tuple[Fact, ...]:
        """Return the silence that was noted, and stragglers; learn the longest pause."""
        self._stop()
        beats = self._beats(self._begun) if self._begun is not None else {}
        self._terms = self._terms._replace(seen_s=hang.longest_s(beats.values(), self._terms))
        slow = (Slow(rank, round(ratio, 3)) for rank, ratio in hang.stragglers(beats).items())
        return (*self._found, *slow)

    async def close(self) -> None:
        """Stop watching."""
        self._stop()
        self._thread.close()

    def _beats(self, begun: Begun) -> dict[int, Beat]:
        said, now = self._means.beats(), boottime()
        said = {local: beat for local, beat in said.items() if hang.ours(beat, begun.at_s, now)}
        return {here.rank: said[here.local_rank] for here in begun.ranks if here.local_rank in said}

    def _silence(self, rank: int, beat: Beat, now: float, allowed_s: float) -> Silence:
        return Silence(rank, beat.step, round(hang.silent_s(beat, now, self._since_s), 3), allowed_s, "heartbeat")

    async def _watch(self, begun: Begun) -> None:
        while True:
            now, beats, asleep_s = boottime(), self._beats(begun), boottime() - monotonic()
            found = hang.look(beats, now, self._since_s, self._terms, self._trail)
            if found.alarm:
                why = Early(found.rank, now - begun.at_s, found.alarm, SILENCE)
                self._means.post(words.Alarmed(now, begun.round, why, WINDOW_S))
                return
            await self._sample(begun, found)
            if found.next_s == float("inf"):
                return
            wanted_s = max(found.next_s, boottime())
            await asyncio.sleep(max(0.0, found.next_s - boottime()))
            if boottime() > found.next_s + hang.LATE_S:  # more than a sample takes
                wanted_s = found.next_s
            self._woken(begun, wanted_s, boottime() - monotonic() - asleep_s, beats)

    def _woken(self, begun: Begun, wanted_s: float, slept_s: float, before: Mapping[int, Beat]) -> None:
        """Take in how late a look comes: this node was busy, or stood still with its ranks, or slept."""
        now = boottime()
        self._terms = hang.stopped(self._terms, now - wanted_s - slept_s, before.values())
        if slept_s > ASLEEP_S:
            self._since_s = now
        else:
            self._since_s = hang.woken(self._since_s, self._beats(begun).values(), self._trail, wanted_s, now)
        if self._since_s == now:
            self._trail = None

    async def _sample(self, begun: Begun, wanted: hang.Look) -> None:
        if not wanted.sample:
            self._trail = None
            return
        if not hang.stale(self._trail, boottime()):
            return
        # Before the rest: what comes late would make a sample too old to judge by.
        gpu: Mapping[int, bool] = await self._means.gpus() if wanted.gpus else {}
        try:
            taken = await self._thread.run(sample, begun.ranks, timeout_s=SAMPLE_S)
        except (OSError, TimeoutError):  # a file server hangs; that the ranks do so, too, can still be seen
            taken = without_output(begun.ranks, self._trail.last.written if self._trail else 0)
        self._trail = hang.follow(self._trail, taken._replace(gpu=gpu))

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
