"""This node's ranks, as the loop deals with them: start, stop, and describe how they ended.

Carries the node machine's rank actions to the guardian and the guardian's words back as events. File work goes through
the file thread; a hung log directory makes a start fail by itself and never holds up the loop.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..health import wire
from ..health.evidence import Fact, Pace, RankExit
from ..health.observed import Bundle, HookWord, Lacked
from ..rendezvous.records import Incarnation, Job, Phase, ResumePoint, Round
from . import gpu_start
from . import guardian_events as said
from . import node_words as words
from .aside import Spared
from .beats import Beats
from .files import FileThread
from .guardian_link import GuardianLink, OrderTooLarge, RankOrder
from .linux import boottime
from .notice import NoticePage
from .outputs import Outputs, Shown
from .seat import Seat
from .sources import Begun, Maker, RankHere, Sources
from .spec import JobSpec
from .worker_env import RankPlace, rank_argv, rank_env

if TYPE_CHECKING:
    from .file_timer import TimerPipe
    from .gloo_interface import Choice
    from .gpu_start import GpuChild
    from .showing import View

INSPECT_S = 1.5  # for a look at living ranks: less than the node machine waits for it
HOOKED = 8  # checkpoints that were passed over, of which a round's evidence tells
COLLECT_S = 3.0  # for last lines and error files; then the facts go without them
UNLOCK_S = 3.0  # for a look where torch compiles; a home directory may hang


class Place(NamedTuple):
    """Where the ranks of one node are: their output, and what serves them beside it."""

    shown: Shown
    gloo: asyncio.Task[Choice] | None = None  # an interface for the ranks' gloo; None: its own choice is right
    timers: TimerPipe | None = None
    gpus: GpuChild | None = None  # what reads the GPUs' driver, where there is one


class Crew:
    """One node's ranks. ``post`` takes the events of the node machine."""

    def __init__(
        self, spec: JobSpec, seat: Seat, post: Callable[[words.Event], None], place: Place, spared: Spared
    ) -> None:
        self._spec = spec
        self._spared = spared
        self._run_dir, self._files, _, self._line = place.shown
        self._gloo = place.gloo
        self._defaults: dict[str, str] = {}  # of the ranks' environment, where nobody sets them
        self._timers = place.timers
        self._gpus = place.gpus
        self._post = post
        self._environ = seat.environ
        self._handed = Round(0)  # the last round whose start has reached the guardian
        self._fence_over = asyncio.Event()  # the guardian takes a start only after a renewal later than the fence
        self._fence_over.set()
        self._dropped: set[Round] = set()  # rounds that were killed before their start had reached the guardian
        self._directories: dict[int, Path] = {}  # of the present round, by local rank
        self._ended: dict[int, int] = {}  # wall clock, for people
        self._beats: Beats | None = None  # of the round that was handed over last
        self._started_s = 0.0  # when its ranks were started
        self.link = GuardianLink(seat, self._heard, answer_s=spec.kill_bound_s)
        self._notice = NoticePage(spec.nproc, by_all=spec.slurm is not None)
        self._notified = Round(0)  # the round whose ranks are to be told of a notice, even if they have not started yet
        self._told_omp = False
        self._held = ""
        self._envs: dict[int, dict[str, str | None]] = {}  # what was changed for the ranks of the present round
        self._first = 0  # the rank of this node's first
        self._node, self._attempt = "", 0
        self._world, self._resumed = 0, ResumePoint()  # of the present round
        self._keeping: asyncio.Task[None] | None = None  # of the last failure's bundle
        self._unlocking: asyncio.Task[None] | None = None  # what the last failure's ranks left where torch compiles
        self._begun: Begun | None = None  # the ranks that were started last
        self._hooked: tuple[HookWord, ...] = ()  # what the resume hook had to say of the round, if it ran here
        self._sources = Sources(self._makers, self._line)
        # Ranks size their bars by the terminal.
        self._output = Outputs(spec, place.shown, lambda: self.link.terminate(self._handed, signal.SIGWINCH))

    # --- the node machine's actions -----------------------------------------------------------------------------------
    async def start(self, action: words.Start) -> None:
        """Make the round's directories, hand the ranks to the guardian; what a restart prints is shown a bit later."""
        await self._output.over()
        n, slots = action.round, self._spec.nproc
        self._listen(n, slots)
        try:
            made = await self._output.directories(n, action.job.attempt)
        except (OSError, TimeoutError) as error:
            reason = f"the log directory {self._run_dir} cannot be used: {error}; choose another --log-dir"
            self._post(words.Refused(boottime(), n, reason))
            return
        if self._gloo is not None:
            await self._take_interface(self._gloo)
        await self._fence_over.wait()
        if self._unlocking is not None:
            await asyncio.wait({self._unlocking})  # bounded
        if n in self._dropped:
            return
        await self._output.prepare(made)
        self._directories = dict(enumerate(made))
        self._node, self._attempt = action.roster.members[action.place].node, action.job.attempt
        self._world, self._resumed = action.roster.world_size, action.job.resume or ResumePoint()
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
        self._output.started(made, lambda: _views(self._spec, action, made))

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

    async def stop(self) -> tuple[int, ...]:
        """End ranks and guardian; return the pids that would not die. The console then has all files to drain."""
        self._output.ending()
        closing = asyncio.ensure_future(self._sources.close())  # their processes end while the guardian does
        if self._gpus is not None:
            gpu_start.end(self._gpus)
            self._gpus = None
        survivors = await self.link.stop()
        await closing
        if self._keeping is not None:
            await asyncio.wait({self._keeping})
        await self._output.end(bool(survivors))
        return survivors

    async def copied(self) -> None:
        """Wait until copies of lines are whole and what was reserved for logs is given back. Call it after ``stop``."""
        await self._output.copied()
        await self._output.give_room_back()

    def foresee(self, job: Job) -> None:
        """Make the directories of a round that was closed while its master port is found: a node that ran, runs on."""
        n = job.round
        if self._handed and job.phase is Phase.RUNNING and not job.master and n == self._handed + 1:
            self._output.directories(n, job.attempt)

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
        self._envs[local] = changes
        self._first = action.roster.first_rank(action.place)
        return RankOrder(
            local_rank=local,
            argv=rank_argv(self._spec, local, action.job.resume),
            env=changes,
            stdout=self._output.open(1, str(directory / "stdout.log")),
            stderr=self._output.open(2, str(directory / "stderr.log")),
            stdin="inherit" if self._spec.nproc == 1 else "null",
            cpus=self._spec.cpus[local] if self._spec.cpus else (),
            deaf_to=self._spec.notice_signals,  # Slurm sends it to every process of a step
        )

    def terminate(self, action: words.Terminate) -> None:
        """Ask the ranks to end; when their start has not reached the guardian yet, it never will."""
        if action.round == self._handed:
            self._notice.ask()
            spared = self._notice.looking() if action.softly else ()
            self.link.terminate(action.round, action.signal, spared)
            if not action.softly and (stay := self._notice.staying()):  # there is nobody left to save with
                self.link.terminate(action.round, signal.SIGKILL, tuple({*range(self._spec.nproc)} - {*stay}))
            return
        self._dropped.add(action.round)
        self.link.kill(action.round)

    def notify(self, action: words.Notify) -> None:
        """Tell the ranks that the job is to end soon, by the page and, those that have a handler, by the signal."""
        n, first = action.round, self._spec.notice_signals[:1]
        self._notified = n
        if n == self._handed:
            self._notice.ask()
            for signum in (action.signal,) if action.signal else first:
                self.forward(n, signum)

    def forward(self, n: Round, signum: int) -> None:
        """Pass a signal of the user's on to the ranks that do not die of it."""
        self.link.terminate(n, signum, tuple(range(self._spec.nproc)))

    async def inspect(self, action: words.Inspect) -> None:
        """Look where the living ranks are, within a bound."""
        await self._sources.inspect(INSPECT_S)
        self._post(words.Inspected(boottime(), action.round))

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
        """Add last lines, error files and what the sources saw; answer with bytes for the store; then keep it all."""
        from . import testimony

        ends = testimony.Ends(self._directories, self._ended, self._timers.why if self._timers is not None else None)
        facts, pace, place = action.facts, self.pace(), None
        asked = asyncio.ensure_future(self._sources.facts())
        await self._output.settle()
        room = (self._run_dir, self._attempt) if action.failed else None
        try:
            facts, place = await self._files.run(testimony.describe, action.facts, ends, room, timeout_s=COLLECT_S)
        except (OSError, TimeoutError) as error:
            self._line(f"the ranks' last lines could not be read: {error}")
            place = Lacked("bundle", f"{self._run_dir} gave no answer: {error}") if room else None
        told = (*facts, *((pace,) if pace else ()), *self._hooked, *await asked, *((place,) if place else ()))
        self._hooked = ()
        self._post(words.Collected(boottime(), action.round, wire.encode(told)))
        if any(isinstance(fact, RankExit) and fact.status for fact in action.facts):
            self._unlocking = asyncio.create_task(self._unlock())
        if isinstance(place, Bundle):
            self._keeping = asyncio.create_task(self._keep(Path(place.path), action.round, told))

    async def _keep(self, place: Path, n: Round, told: tuple[Fact, ...]) -> None:
        """Fill a failure's bundle while its round is judged.

        No rank starts before: the next round's directories are made behind it, by the same thread. A disk that hangs
        is not waited for.
        """
        from . import bundle
        from .dumps import paths

        directories = {self._first + local: path for local, path in self._directories.items()}
        dumps = [path for rank in (self._begun.ranks if self._begun else ()) for path in paths(rank, self._environ)]
        since = time.time() - (boottime() - self._started_s)
        case = bundle.Case(self._node, self._spec.run_id, n, self._attempt, directories, tuple(map(Path, dumps)), since)
        try:
            await self._files.run(bundle.fill, place, case, told, timeout_s=COLLECT_S)
        except (OSError, TimeoutError) as error:
            self._line(f"not all of the failure could be kept in {place}: {error}")

    async def _unlock(self) -> None:
        """Remove the dead ranks' locks where torch compiles extensions: the next ones would wait for them for ever."""
        from . import build_locks

        environ: dict[str, str | None] = {**self._environ}
        for changes in self._envs.values():  # they differ in what makes a rank itself
            environ |= changes
        root = build_locks.directory({name: value for name, value in environ.items() if value is not None})
        if root is None:
            return
        since = time.time() - (boottime() - self._started_s)
        files = FileThread("build-locks")
        try:
            for line in await files.run(build_locks.clear, root, since, timeout_s=UNLOCK_S):
                self._line(line)
        except (OSError, TimeoutError) as error:
            self._line(f"it could not be seen whether ranks left locks in {root}: {error}")
        finally:
            files.close()

    def hooked(self, refused: tuple[tuple[str, str], ...]) -> None:
        """Note which checkpoints were passed over when the coming round was formed, and why: evidence of that round."""
        self._hooked = tuple(HookWord(f"checkpoint {name} is passed over: {why}") for name, why in refused[:HOOKED])

    def pace(self) -> Pace | None:
        """Return how far the ranks of the round that was started last had come; None when they do not say."""
        return self._beats.pace(self._started_s) if self._beats is not None and self._started_s else None

    # --- the guardian's words -----------------------------------------------------------------------------------------
    def _heard(self, event: said.GuardianEvent) -> None:
        match event:
            case said.RanksStarted(round=n, pids=pids, at_s=at):
                self._started_s = at
                self._post(words.Started(at, Round(n)))
                ranks = tuple(self._here(local, pid) for local, pid in pids if local in self._directories)
                self._begun = Begun(Round(n), at, ranks, self._world, self._resumed)
                self._sources.begin(self._begun)
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

    def _here(self, local: int, pid: int) -> RankHere:
        return RankHere(self._first + local, local, pid, self._directories[local], self._envs.get(local, {}))

    def _makers(self) -> tuple[Maker, ...]:
        from .source_list import Around, makers

        gpus, self._gpus = self._gpus, None
        spare = self._spared.by("sources")
        return makers(Around(self._spec, self._environ, self._post, lambda: self._beats, gpus, spare))

    def _left_over(self, n: Round, survivors: tuple[int, ...], at: float) -> None:
        if survivors:
            self._post(words.NothingLeft(at, n, survivors))


def _views(spec: JobSpec, action: words.Start, directories: list[Path]) -> list[View]:
    from .showing import views

    found: list[View] = []
    for local, path in enumerate(directories):
        found += views(spec, RankPlace(action.job, action.roster, action.place, local), str(path))
    return found
