"""This node's ranks, as the loop deals with them: prepare a round's directories, start, stop, show, and describe.

Carries the node machine's rank actions to the guardian and the guardian's words back as events. File work goes through
the file thread; a hung log directory makes a start fail by itself and never holds up the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..health import wire
from ..health.evidence import Fact, Pace, RankExit
from ..rendezvous.records import Incarnation, Job, Phase, Round
from . import guardian_events as said
from . import node_words as words
from .beats import Beats
from .files import FileThread
from .guardian_link import GuardianLink, OrderTooLarge, RankOrder
from .linux import boottime
from .notes import LATER_S
from .notice import NoticePage
from .run_dir import attempt_directory
from .seat import Seat
from .spec import JobSpec, Writer
from .worker_env import RankPlace, rank_argv, rank_env

if TYPE_CHECKING:
    from .duplicates import Duplicates
    from .file_timer import TimerPipe
    from .gloo_interface import Choice
    from .output import Console
    from .relay import Relay
    from .room import Room
    from .showing import View

COLLECT_S = 3.0  # for last lines and error files; then the facts go without them
ROOM_AT_ONCE_S = 3.0  # for a round on a disk that is full
TAIL_BYTES = 64 * 1024
TAIL_LINES = 40


class Place(NamedTuple):
    """Where the ranks' files go and who shows them."""

    run_dir: Path
    files: FileThread
    console: Callable[[], Console]  # loaded when there is something to show: ranks start sooner
    line: Callable[..., None]  # a line of the agent's own
    gloo: asyncio.Task[Choice] | None = None  # an interface for the ranks' gloo; None: its own choice is right
    timers: TimerPipe | None = None


class Crew:
    """One node's ranks. ``post`` takes the events of the node machine."""

    def __init__(self, spec: JobSpec, seat: Seat, post: Callable[[words.Event], None], place: Place) -> None:
        self._spec = spec
        self._run_dir = place.run_dir
        self._files = place.files
        self._console = place.console
        self._line = place.line
        self._gloo = place.gloo
        self._defaults: dict[str, str] = {}  # of the ranks' environment, where nobody sets them
        self._timers = place.timers
        self._post = post
        self._environ = seat.environ
        self._handed = Round(0)  # the last round whose start has reached the guardian
        self._fence_over = asyncio.Event()  # the guardian takes a start only after a renewal later than the fence
        self._fence_over.set()
        self._dropped: set[Round] = set()  # rounds that were killed before their start had reached the guardian
        self._ahead: tuple[Round, asyncio.Future[list[Path]]] | None = None  # a round's directories, under way or made
        self._directories: dict[int, Path] = {}  # of the present round, by local rank
        self._ended: dict[int, int] = {}  # wall clock, for people
        self._beats: Beats | None = None  # of the round that was handed over last
        self._started_s = 0.0  # when its ranks were started
        self._unshown: Callable[[], list[View]] | None = None  # the present round's, until the console follows them
        self._shown = False
        self._draining: asyncio.Task[bool] | None = None
        self._copying: Duplicates | None = None
        self._copied: asyncio.Task[None] | None = None  # of the round before
        self.link = GuardianLink(seat, self._heard, answer_s=spec.kill_bound_s)
        self._notice = NoticePage(spec.nproc)
        self._notified = Round(0)  # the round whose ranks are to be told of a notice, even if they have not started yet
        self._told_omp = False
        self._held = ""
        self._on_terminal = os.isatty(1) or os.isatty(2)
        self._apart = spec.output.writer is Writer.AGENT  # ranks do not write their files themselves
        self._asked_mounts = False
        self._relay: Relay | None = None
        self._room: Room | None = None
        self._survived = False
        self._making_room: asyncio.TimerHandle | None = None

    # --- the node machine's actions -----------------------------------------------------------------------------------
    async def start(self, action: words.Start) -> None:
        """Make the round's directories, hand the ranks to the guardian; what a restart prints is shown a bit later."""
        if self._relay is not None:
            await self._relay.settle(close=True)
        self._show()  # of a round that ended at once
        n, slots = action.round, self._spec.nproc
        self._listen(n, slots)
        try:
            made = await self._directories_of(n, action.job.attempt)
        except (OSError, TimeoutError) as error:
            reason = f"the log directory {self._run_dir} cannot be used: {error}; choose another --log-dir"
            self._post(words.Refused(boottime(), n, reason))
            return
        if self._gloo is not None:
            await self._take_interface(self._gloo)
        await self._fence_over.wait()
        if n in self._dropped:
            return
        if self._room is not None and self._room.full:
            await self._room_at_once(made)
        self._directories = dict(enumerate(made))
        if (self._on_terminal or self._apart) and self._relay is None:
            self._relay = self._made_relay()
        self._notice.clear()
        if n == self._notified:
            self._notice.ask()
        orders = tuple(self._order(action, local) for local in range(slots))
        try:
            self.link.start(n, action.roster.members[action.place].inc, orders)
            self._handed = n
        except OrderTooLarge as error:
            self._post(words.Refused(boottime(), n, str(error)))
            return
        self._unshown = lambda: _views(self._spec, action, made)
        self._hold_room()
        self._making_room = asyncio.get_running_loop().call_later(LATER_S, self._make_room, made)
        if self._shown:
            asyncio.get_running_loop().call_later(LATER_S, self._show)
        else:
            self._show()  # somebody waits for the first line

    def _listen(self, n: Round, slots: int) -> None:
        """Give the round's ranks a new page for their steps."""
        if self._beats is not None:
            self._beats.close()
            self._beats = None
        try:
            self._beats = Beats(n, slots)
        except OSError as error:
            self._line(f"ranks cannot say their steps: {error}")

    async def _take_interface(self, gloo: asyncio.Task[Choice]) -> None:
        choice = await asyncio.shield(gloo)  # bounded; a start that is cancelled leaves it to the next
        if self._gloo is None:
            return
        self._gloo = None
        if choice.note:
            self._line(choice.note)
        self._defaults = choice.env

    def _show(self) -> None:
        """Let go of the files of the round before, whose ranks are dead, and follow those of this one; once a round."""
        unshown, self._unshown = self._unshown, None
        if unshown is None:
            return
        from .output import Source

        console = self._console()
        if self._shown:
            self._draining = asyncio.ensure_future(console.drain())
        self._shown = True
        views = unshown()
        live = self._on_terminal and self._spec.nproc == 1
        console.follow(Source(view.path, view.stream, view.label, live) for view in views if view.shown)
        if self._spec.output.stdout_filters or self._spec.output.stderr_filters:
            self._copy([view for view in views if view.tee])

    def _make_room(self, directories: list[Path]) -> asyncio.Future[None]:
        """Look after the room that the logs of this round have; those of the round before are done."""
        from .room import Room

        if self._room is None:
            self._room = Room(self._run_dir, self._spec.output.limit, self._line)
        return self._room.keep([str(path / name) for path in directories for name in ("stdout.log", "stderr.log")])

    async def _room_at_once(self, directories: list[Path]) -> None:
        """What the round before has held is for the ranks that start now, from their first byte on."""
        self._hold_room()
        await asyncio.wait({self._make_room(directories)}, timeout=ROOM_AT_ONCE_S)

    def _hold_room(self) -> None:
        if self._making_room is not None:
            self._making_room.cancel()
            self._making_room = None

    def _copy(self, views: list[View]) -> None:
        """Copy the lines of these that were asked for; those of the round before are copied to their end."""
        from .duplicates import Duplicates

        if self._copying is not None:
            self._copied = asyncio.ensure_future(self._copying.finish())
        attempt = self._directories[0].parent
        self._copying = Duplicates(attempt, self._spec.output, lambda text: self._console().say(text))
        self._copying.follow(views)

    async def stop(self) -> tuple[int, ...]:
        """End ranks and guardian; return the pids that would not die. The console then has all files to drain."""
        self._hold_room()
        survivors = await self.link.stop()
        self._survived = bool(survivors)
        if self._relay is not None:
            await self._relay.settle(close=True)
            self._relay.close()
            self._relay = None
        self._show()
        return survivors

    async def copied(self) -> None:
        """Wait until the copies of lines are whole, or their file system stands still. Call it after ``stop``."""
        if self._copied is not None:
            await self._copied
        if self._copying is not None:
            await self._copying.finish()

    async def give_room_back(self) -> None:
        """Give back what is reserved for logs, unless somebody may write there. Call it after ``stop``."""
        if self._room is not None and not self._survived:
            await self._room.close()
            self._room = None

    def foresee(self, job: Job) -> None:
        """Make the directories of a round that was closed while its master port is found: a node that ran, runs on."""
        n = job.round
        if self._handed and job.phase is Phase.RUNNING and not job.master and n == self._handed + 1:
            self._directories_of(n, job.attempt)

    def _directories_of(self, n: Round, attempt: int) -> asyncio.Future[list[Path]]:
        if self._ahead is None or self._ahead[0] != n:
            making = asyncio.ensure_future(self._files.run(self._make_directories, attempt, self._spec.nproc))
            making.add_done_callback(lambda made: made.cancelled() or made.exception())  # no start may come for it
            self._ahead = (n, making)
        return self._ahead[1]

    def _make_directories(self, attempt: int, slots: int) -> list[Path]:
        if self._spec.log_dir is not None and self._spec.output.writer is Writer.AUTO and not self._asked_mounts:
            from . import mounts

            self._asked_mounts = True
            with contextlib.suppress(OSError):  # no table: as on a disk
                self._apart = mounts.may_hang(str(self._run_dir))
        return [attempt_directory(self._run_dir, attempt, local) for local in range(slots)]

    def _order(self, action: words.Start, local: int) -> RankOrder:
        place = RankPlace(action.job, action.roster, action.place, local)
        directory = self._directories[local]
        env = rank_env(self._spec, place, str(directory / "error.json"), self._environ)
        if env.omp_defaulted and not self._told_omp:
            self._told_omp = True
            self._line("OMP_NUM_THREADS is set to 1 for each rank; set it yourself to change that")
        changes: dict[str, str | None] = dict.fromkeys(env.unset)
        changes.update(self._defaults)
        changes.update(env.set, REMUSTER_NOTICE=self._notice.address(local))
        if self._beats is not None:
            changes["REMUSTER_BEATS"] = self._beats.address(local)
        if self._timers is not None:
            changes["TORCHELASTIC_TIMER_FILE"] = str(self._timers.path)
        return RankOrder(
            local_rank=local,
            argv=rank_argv(self._spec, local),
            env=changes,
            stdout=self._output(1, str(directory / "stdout.log")),
            stderr=self._output(2, str(directory / "stderr.log")),
            stdin="inherit" if self._spec.nproc == 1 else "null",
            cpus=self._spec.cpus[local] if self._spec.cpus else (),
            deaf_to=self._spec.notice_signal,  # Slurm sends it to every process of a step
        )

    def _output(self, stream: int, path: str) -> str:
        return path if self._relay is None else self._relay.open(stream, path)

    def _made_relay(self) -> Relay:
        from .relay import Relay

        return Relay(
            self._line,
            lambda: self.link.terminate(self._handed, signal.SIGWINCH),  # ranks that size their bars by it
            lends_stdin=self._spec.nproc == 1,
            pipes=self._apart,
        )

    def terminate(self, action: words.Terminate) -> None:
        """Ask the ranks to end; when their start has not reached the guardian yet, it never will."""
        if action.round == self._handed:
            self._notice.ask()
            spared = self._notice.looking() if action.softly else ()
            self.link.terminate(action.round, action.signal, spared)
            return
        self._dropped.add(action.round)
        self.link.kill(action.round)

    def notify(self, n: Round) -> None:
        """Tell the ranks that the job is to end soon, by the page and, those that have a handler, by the signal."""
        self._notified = n
        if n == self._handed:
            self._notice.ask()
            if self._spec.notice_signal:
                self.forward(n, self._spec.notice_signal)

    def forward(self, n: Round, signum: int) -> None:
        """Pass a signal of the user's on to the ranks that do not die of it."""
        self.link.terminate(n, signum, tuple(range(self._spec.nproc)))

    def kill(self, action: words.Kill) -> None:
        self._dropped.add(action.round)
        self.link.kill(action.round)

    def acknowledge(self, inc: Incarnation) -> None:
        self._fence_over.clear()
        self.link.acknowledge_fence(inc)

    def renewed(self, inc: Incarnation, deadline_s: float) -> None:
        """Tell keeper and guardian until when ranks may live."""
        self.link.lease(inc, deadline_s)
        self._fence_over.set()

    async def collect(self, action: words.Collect) -> None:
        """Add last lines and error files to what ended by itself, within a bound; answer with bytes for the store."""
        facts, pace = action.facts, self.pace()
        if self._relay is not None:
            await self._relay.settle()
        try:
            facts = await self._files.run(self._describe, action.facts, timeout_s=COLLECT_S)
        except (OSError, TimeoutError) as error:
            self._line(f"the ranks' last lines could not be read: {error}")
        self._post(words.Collected(boottime(), action.round, wire.encode((*facts, pace) if pace else facts)))

    def pace(self) -> Pace | None:
        """Return how far the ranks of the round that was started last had come; None when they do not say."""
        return self._beats.pace(self._started_s) if self._beats is not None and self._started_s else None

    def _describe(self, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        return tuple(self._with_words(f) if isinstance(f, RankExit) and f.status != 0 else f for f in facts)

    def _with_words(self, fact: RankExit) -> RankExit:
        fact = fact._replace(wall=self._ended.get(fact.local_rank, 0))
        directory = self._directories.get(fact.local_rank)
        if directory is None:
            return fact
        from ..health import errorfile

        lines = _last_lines(directory / "stderr.log") or _last_lines(directory / "stdout.log")
        if self._timers is not None and (why := self._timers.why(fact.pid)):
            lines = (*lines, why)
        return fact._replace(tail=lines, error=errorfile.read(directory / "error.json"), logs=str(directory))

    # --- the guardian's words -----------------------------------------------------------------------------------------
    def _heard(self, event: said.GuardianEvent) -> None:
        match event:
            case said.RanksStarted(round=n, at_s=at):
                self._started_s = at
                self._post(words.Started(at, Round(n)))
            case said.StartRefused(round=n, reason=reason):
                self._post(words.Refused(boottime(), Round(n), reason))
            case said.StartFailed(round=n, local_rank=local, errno=errno, what=what):
                self._post(words.StartFailed(boottime(), Round(n), local, errno, what))
            case said.RankExited(round=n, local_rank=local, pid=pid, status=status, at_s=at):
                self._ended[local] = int(time.time())
                self._post(words.Exited(at, Round(n), local, status, pid))
            case said.RanksEmpty(round=n, survivors=survivors, at_s=at):
                self._post(words.NothingLeft(at, Round(n), survivors))
            case said.NodeFenced(inc=inc, round=n, survivors=survivors, at_s=at):
                self._left_over(Round(n), survivors, at)
                self._post(words.FencedHere(at, Round(n), Incarnation(inc)))
            case said.GuardianGone(round=n, survivors=survivors, at_s=at):
                self._left_over(Round(n), survivors, at)
                self._post(words.GuardianLost(at, Round(n)))
            case said.KeeperGone(at_s=at):
                self._post(words.LeaveAsked(at, signal.SIGKILL))
            case said.GuardianReady(cgroup=cgroup):
                held = "a subreaper and a cgroup" if cgroup else "a subreaper (no cgroup is delegated)"
                if held != self._held:
                    self._held = held
                    self._line(f"ranks are held by {held}")

    def _left_over(self, n: Round, survivors: tuple[int, ...], at: float) -> None:
        if survivors:
            self._post(words.NothingLeft(at, n, survivors))


def _views(spec: JobSpec, action: words.Start, directories: list[Path]) -> list[View]:
    from .showing import views

    found: list[View] = []
    for local, path in enumerate(directories):
        found += views(spec, RankPlace(action.job, action.roster, action.place, local), str(path))
    return found


def _last_lines(path: Path) -> tuple[str, ...]:
    from ..health import tail

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)  # it may be anything by now
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return tail.last_lines(file.read(TAIL_BYTES), TAIL_LINES)
    except FileNotFoundError:
        return ()
