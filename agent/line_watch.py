"""Reads what living ranks write, as it comes: the first line of each sign, and the alarm for those that mean an end.

A source of ``crew.py`` (``sources.py``). The ranks' own files are followed by a thread of the round's own, woken when
they grow and then a few times a second: it may hang on a disk or read late, and nobody waits for it. torch waits one to
ten minutes between the first such line and the end of the rank; here the node machine ends the round after a window.
An alarm is withdrawn when its rank goes on: it writes two more lines of progress, or says two more steps
(``remuster.heartbeat``), before the window is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..health.evidence import Beat, Fact
from ..health.observed import Early, Lacked, Sighting
from ..rendezvous.records import Round
from . import node_words as words
from .follow import Bell, Drain, Follow, Follower, Request, Source, Stop, settled
from .inotify import OneShot
from .linux import boottime
from .notes import LATER_S
from .showing import STREAMS
from .sources import Begun, RankHere

if TYPE_CHECKING:
    from ..health.going_on import GoingOn
    from ..health.own_signatures import OwnSignatures
    from ..health.scan import Scanner, Seen

TICK_S = 0.25  # while ranks write: an alarm may well be so late, and few large blocks cost less than many small ones
SETTLE_S = 0.5  # for the last bytes of ranks that are dead, while a file moves
MOST_OF_RANK, MOST = 16, 32  # sightings of a rank, of all: last lines need the room in a node's evidence more
LINE = 300  # characters of a line in a fact
ENOUGH = 2  # lines of progress, as for an error that a program has handled; or steps
LOOK = 0.9  # of the window is over when it is looked whether the rank has said steps

Post = Callable[[words.Event], None]
Beats = Callable[[], Mapping[int, Beat]]  # of the present round, by local rank


@dataclass(slots=True)
class _Rank:
    """What is known of one rank. The thread's own, but for ``steps_on``, which the loop sets."""

    rank: int
    local_rank: int
    lanes: list[_Lane] = field(default_factory=list["_Lane"])
    signs: set[str] = field(default_factory=set[str])
    alarm: Early | None = None
    progress: int = 0  # lines since the alarm
    steps_on: Early | None = None  # an alarm that was withdrawn because the rank has said steps since


class LineWatch:
    """The watch over the ranks of one node. ``window_s`` None: no alarm is raised, signs are evidence only.

    The site's ``own`` signs never raise one.
    """

    name = "output"

    def __init__(self, post: Post, window_s: float | None, beats: Beats, own: OwnSignatures | None = None) -> None:
        self._own = own
        self._post = post
        self._window_s = window_s
        self._beats = beats
        self._starting: asyncio.TimerHandle | None = None
        self._watch: _Watch | None = None

    def begin(self, begun: Begun) -> None:
        """Watch these ranks' files from their beginning on, a moment later: their start has the cores to itself."""
        self._stop()
        self._starting = asyncio.get_running_loop().call_later(LATER_S, self._start, begun)

    async def inspect(self) -> None:
        """Nothing: whatever a rank writes is read anyway."""

    async def facts(self) -> tuple[Fact, ...]:
        """Return the first sighting of each sign and rank, those that raised an alarm first."""
        if self._starting is not None:  # the ranks were dead at once; their last lines are read without this
            self._stop()
        if self._watch is None:
            return ()
        watch, self._watch = self._watch, None
        return await watch.facts()

    async def close(self) -> None:
        """End the thread."""
        self._stop()

    def _start(self, begun: Begun) -> None:
        self._starting = None
        self._watch = _Watch(begun, self._post, self._window_s, self._beats, self._own)

    def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Watch:
    """The ranks of one round. ``saw`` and ``missed`` are called by the thread, the rest by the loop."""

    def __init__(
        self, begun: Begun, post: Post, window_s: float | None, beats: Beats, own: OwnSignatures | None
    ) -> None:
        self.own = own
        self._round: Round = begun.round
        self._started_s = begun.at_s
        self._post = post
        self._window_s = window_s
        self._beats = beats
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._found: list[tuple[bool, Sighting]] = []
        self._missed = ""
        self._bell = Bell()
        lanes = dict(enumerate(self._lanes(begun.ranks)))
        self._follower = Follower(self._bell, lanes, OneShot, TICK_S)
        self._ask(Follow(tuple(Source(lane.path, number) for number, lane in lanes.items())))

    def _lanes(self, ranks: tuple[RankHere, ...]) -> list[_Lane]:
        found: list[_Lane] = []
        for here in ranks:
            rank = _Rank(here.rank, here.local_rank)
            rank.lanes = [_Lane(str(here.directory / name), rank, self) for name, _ in STREAMS]
            found += rank.lanes
        return found

    async def facts(self) -> tuple[Fact, ...]:
        drain = Drain(self._loop, self._loop.create_future())
        self._ask(drain)
        whole = await settled(drain, lambda: self._follower.moved, SETTLE_S)
        self.stop()
        missed = self._missed or ("" if whole else "the ranks' files do not answer: some of their lines were not read")
        found = [sighting for _, sighting in sorted(self._found, key=lambda one: (not one[0], one[1].at_s))]
        lacked = (Lacked(LineWatch.name, missed),) if missed else ()
        return (*lacked, *found[:MOST])

    def stop(self) -> None:
        self._over = True
        self._ask(Stop())

    def saw(self, rank: _Rank, seen: Seen) -> None:
        """Take a sign in."""
        at_s, line = boottime() - self._started_s, _short(seen.line)
        if seen.sign not in rank.signs and len(rank.signs) < MOST_OF_RANK:
            rank.signs.add(seen.sign)
            self._found.append((seen.alarm, Sighting(rank.rank, at_s, seen.sign, line)))
        if seen.alarm and rank.alarm is None and self._window_s is not None:
            rank.alarm, rank.progress = Early(rank.rank, at_s, f"rank {rank.rank} wrote: {line}", seen.sign), 0
            for lane in rank.lanes:
                lane.mark()
            self._tell(self._raise, rank, rank.alarm, self._window_s)

    def went_on(self, rank: _Rank) -> None:
        """Withdraw the alarm of a rank that goes on, so that a later one can be raised."""
        if rank.alarm is not None:
            self._tell(self._post, words.Withdrawn(boottime(), self._round, rank.alarm))
            self.arm(rank)

    def arm(self, rank: _Rank) -> None:
        """Let the rank raise an alarm again."""
        rank.alarm = None
        for lane in rank.lanes:
            lane.again()

    def _raise(self, rank: _Rank, why: Early, window_s: float) -> None:
        self._post(words.Alarmed(boottime(), self._round, why, window_s))
        self._loop.call_later(LOOK * window_s, self._look, rank, why, self._beats().get(rank.local_rank))

    def _look(self, rank: _Rank, why: Early, before: Beat | None) -> None:
        """Withdraw an alarm when the rank has said steps since: a healthy one may have shown an old log."""
        now = self._beats().get(rank.local_rank)
        if self._over or now is None:
            return
        said, step = (before.times, before.step) if before is not None else (0, -1)
        if now.times - said >= ENOUGH and now.step > step:
            rank.steps_on = why
            self._post(words.Withdrawn(boottime(), self._round, why))

    def missed(self, what: str) -> None:
        """Note that something could not be read."""
        self._missed = self._missed or what

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(call, *args)

    def _ask(self, request: Request) -> None:
        self._follower.requests.put(request)
        self._bell.ring()


class _Lane:
    """One file, as the follower's thread feeds it."""

    def __init__(self, path: str, rank: _Rank, watch: _Watch) -> None:
        self.path = path
        self._rank = rank
        self._watch = watch
        self._scanner: Scanner | None = None
        self._going_on: GoingOn | None = None  # since the alarm
        self._at = 0  # bytes that were read, or are gone
        self._mark = 0  # bytes that were there at the alarm

    def add(self, key: str, label: bytes, live: bool = False) -> None:
        # by the thread, while the ranks load what they need
        from ..health.own_signatures import NONE
        from ..health.scan import Scanner

        self._scanner = Scanner(self._watch.own or NONE)

    def feed(self, key: str, data: bytes) -> None:
        assert self._scanner is not None
        before, self._at = self._at, self._at + len(data)
        if self._rank.alarm is not None and self._rank.alarm is self._rank.steps_on:
            self._watch.arm(self._rank)
        if self._rank.alarm is not None:
            self._count(data[max(0, self._mark - before) :])
        for seen in self._scanner.feed(data):
            self._watch.saw(self._rank, seen)

    def mark(self) -> None:
        """Let only what is written from now on count as progress."""
        self._going_on = None
        with contextlib.suppress(OSError):
            self._mark = max(self._at, os.stat(self.path).st_size)

    def again(self) -> None:
        if self._scanner is not None:
            self._scanner.again()

    def _count(self, data: bytes) -> None:
        from ..health.going_on import GoingOn

        self._going_on = self._going_on or GoingOn()
        self._rank.progress += self._going_on.count(data)
        if self._rank.progress >= ENOUGH:
            self._watch.went_on(self._rank)

    def silent(self, key: str) -> None:
        pass

    def end(self, key: str) -> None:
        assert self._scanner is not None
        for seen in self._scanner.end():
            self._watch.saw(self._rank, seen._replace(alarm=False))

    def say(self, data: bytes) -> None:
        self._watch.missed(data.decode(errors="replace").strip().removeprefix("[remuster: ").removesuffix("]"))

    def skip(self, count: int) -> None:
        pass

    def lose(self, count: int) -> None:
        assert self._scanner is not None
        self._at += count
        for seen in self._scanner.lose(count):
            self._watch.saw(self._rank, seen)

    def has_room(self, limit: int = 0) -> bool:
        return True

    def stall_over(self) -> bool:
        return False


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= LINE else line[: LINE - 1] + "…"
