"""Builds one node's agent from a ``JobSpec`` and runs it to the exit code: the composition root.

Called by the launcher in the agent's process, below the keeper, with the guardian already there. gRPC is imported only
when the store is an etcd.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..rendezvous.errors import StoreError
from . import gpu_start
from .aside import Aside, Spared
from .assembly import Parts, assemble, settings_of
from .chronicle import Chronicle
from .crew import Place
from .earlier import earlier
from .files import FileThread
from .identity import this_machine
from .linux import boottime
from .meeting import Met, meet
from .node_limit import noticed
from .node_lock import NodeLock, NodeLockError
from .node_name import Address, own_address, take_name
from .node_state import Settings
from .notes import Notes
from .outputs import Shown
from .ports import AddressError, is_loopback, meeting_point
from .proc import start_ticks
from .run_dir import NoRoomForLogs, RunDirectoryError, run_directory
from .seat import Seat
from .signals import LEAVE_SIGNAL, Signals
from .spec import FABRIC, Backend, JobSpec
from .strays import sweep_strays
from .worker_env import scrubbed

if TYPE_CHECKING:
    from ..rendezvous.store import Store
    from .file_timer import TimerPipe
    from .gloo_interface import Choice
    from .ledger import Ledger
    from .loop import Agent
    from .node_words import Exit
    from .output import Console

USAGE, REFUSED, UNHEALTHY = 2, 69, 75
OPEN_FILES = 48  # of an agent without ranks: 15 were seen on one node, 25 with an etcd (41 with 8 ranks)
OPEN_FILES_A_RANK = 12  # two are followed, and watched; while a round ends and the next begins those of both; two pipes
SEE_TO_IT = (1, 2, 3)  # nodes of a Slurm step that look whether its first node was lost; not all of a thousand
WARM_S = 0.25  # after the start: the first ranks run by then, or nodes are waited for


def run_agent(spec: JobSpec, seat: Seat) -> int:
    """Serve the job on this node until it ends; return the exit code of the command."""
    needed = OPEN_FILES + OPEN_FILES_A_RANK * spec.nproc
    if os.sysconf("SC_OPEN_MAX") < needed:
        from . import limits

        short = limits.room_for_files(needed, f"a node of {spec.nproc} rank{'s' * (spec.nproc > 1)}")
        if short is not None:
            print(f"remuster: {short}", file=sys.stderr)
            return UNHEALTHY
    return asyncio.run(_Host(spec, seat).serve())


class _Host:
    """What one agent is built from; owns files, console and store."""

    def __init__(self, spec: JobSpec, seat: Seat) -> None:
        self._spec = spec
        self._seat = seat
        self._files = FileThread()
        self._records = FileThread("records")
        self._shown: Console | None = None
        self._short: set[str] = set()
        self._gloo: asyncio.Task[Choice] | None = None

    def _console(self) -> Console:
        if self._shown is None:
            from .output import Console

            self._shown = Console()
        return self._shown

    async def serve(self) -> int:
        """Prepare the node, run the agent, and leave nothing behind."""
        asyncio.get_running_loop().set_exception_handler(self._stray_error)
        self._signals = Signals(self._spec.stop_signals, self._spec.notice_signals)
        asked = self._signals.asked
        try:
            return await self._serve()
        except asyncio.CancelledError:
            if not asked:
                raise
            if asked[0] == LEAVE_SIGNAL:
                return self._complain("asked to leave before this node had joined; nothing was started", 0)
            name = signal.Signals(asked[0]).name
            return self._complain(f"{name} before this node had joined; nothing was started", 128 + asked[0])
        finally:
            await self._console().drain()
            self._console().close()
            self._files.close()
            self._records.close()
            self._signals.close()

    async def _serve(self) -> int:
        try:
            met = await meet(self._spec, self._seat, self._tell)
        except (StoreError, AddressError) as error:
            return self._complain(str(error), REFUSED)
        self._spec = met.spec
        try:
            return await self._in_job(met)
        finally:
            await met.part()

    async def _in_job(self, met: Met) -> int:
        spec, machine = self._spec, this_machine()
        try:
            run_dir = await self._files.run(run_directory, spec.log_dir, spec.run_id)
            address = own_address(spec)
            node, tag, lock = await take_name(spec, machine, address.name)
        except RunDirectoryError as error:
            return self._complain(str(error), UNHEALTHY if isinstance(error, NoRoomForLogs) else USAGE)
        except TimeoutError:
            where = spec.log_dir or "the temporary directory"
            return self._complain(f"no answer from the file system of {where}; give another --log-dir", UNHEALTHY)
        except AddressError as error:
            return self._complain(str(error), REFUSED)
        except NodeLockError as error:
            return self._complain(str(error), UNHEALTHY)
        try:
            self._gloo = self._interface_for_gloo(address)
            settings = settings_of(spec, node, machine, address.text)._replace(kept=await earlier(spec, self._files))
            return await self._on_node(run_dir, settings, met, (tag, lock))
        finally:
            os.close(lock)

    def _interface_for_gloo(self, address: Address) -> asyncio.Task[Choice] | None:
        """Begin to look, where ranks of several machines may meet, which interface their gloo should use."""
        if self._spec.max_nodes == 1 or is_loopback(address.text):
            return None
        from .gloo_interface import interface_for_gloo

        return asyncio.ensure_future(interface_for_gloo(address.text, address.interface, self._seat.environ))

    async def _on_node(self, run_dir: Path, settings: Settings, met: Met, lock: tuple[str, int]) -> int:
        spec, node, address = self._spec, settings.node, settings.record.address
        level = os.environ.get("LOGLEVEL", "")
        log = Notes(lambda text: self._console().say(text), run_dir, self._records, level, spec.output.events)
        refused = await self._unfit(settings, run_dir, log)
        if refused is not None:
            return refused
        # Ranks get theirs with their orders; this marks what the agent itself starts, a resume hook, for a later sweep.
        os.environ.update(REMUSTER_RUN_ID=spec.run_id, REMUSTER_NODE=node)
        if taken := scrubbed(spec, self._seat.environ):
            log.detail("taken out of the ranks' environment", names=list(taken))
        log.line("start", run_id=spec.run_id, node=node, address=address, run_dir=str(run_dir))
        timers: TimerPipe | None = None
        if spec.timer_file is not None:
            from . import file_timer

            page = self._seat.page
            timers = await file_timer.serve(spec.timer_file, run_dir, self._files, lambda: page.guardian, log.line)
        gpus = gpu_start.start(os.environ)
        place = Place(Shown(run_dir, self._files, self._console, log.line), self._gloo, timers, gpus)
        agent, parts = self._made(settings, met.store, place, log)
        agent.crew.link.hold(*lock)
        if spec.backend is Backend.ETCD:
            from . import letter

            self._seat.page.set_letter(letter.write(spec, node))
        self._signals.go_to(agent)
        if met.door is not None:
            met.door.gone.add_done_callback(lambda gone: agent.give_up(gone.result()))
        try:
            end, survivors = await self._run(agent, parts)
        finally:
            if timers is not None:
                timers.close()
                with contextlib.suppress(OSError, TimeoutError):
                    await self._files.run(timers.path.unlink)
            log.write()
        from . import last_words

        if said := last_words.closing(end, agent.state, parts.chronicle.report):
            self._console().say(said)
        if end.code:
            failed = parts.chronicle.failed if last_words.over(agent.state) else {}
            await last_words.hand_up(failed, end.sentence, node, self._records, log)
        await parts.aside.settle()
        log.line("exit", code=end.code, **last_words.reason(end, agent.state))
        log.write()
        if not survivors:
            with contextlib.suppress(OSError, NodeLockError):  # it lies in a folder of small files
                NodeLock(spec.run_id, node).remove(lock[1])
        if survivors:
            return self._complain(f"processes {survivors} do not die from SIGKILL; reboot this node", UNHEALTHY)
        if end.code and agent.state.leading:
            await self._hand_on(end.code, agent, parts)
        if spec.slurm is not None and spec.slurm.node in SEE_TO_IT and (last_words.over(agent.state) or not end.revoke):
            from . import bereft

            await bereft.end_job(spec.slurm, end.code, parts.spared.by("slurm"), self._tell)
        return end.code

    async def _hand_on(self, code: int, agent: Agent, parts: Parts) -> None:
        """Say what the next launch will find, and have Slurm queue the job again: the agent that led does."""
        spec, state, step = parts.spec, agent.state, parts.spec.slurm
        if code == UNHEALTHY and noticed(state):
            from . import verified

            within_s = verified.bound_s(boottime(), state.ends_at)
            job = state.job.job if state.job is not None else None
            if found := await verified.what_is_there(spec, parts.store, parts.settings.keys, job, within_s):
                self._tell(found)
        if not spec.requeue or step is None:
            return
        from . import requeue

        if requeue.due(requeue.ended(code, state, step, boottime() - agent.begun_s)):
            await requeue.others_left(parts.store, parts.settings.keys)
            await requeue.requeue(step, parts.aside.bad(), parts.spared.by("scontrol"), self._tell)

    async def _sick(self, run_dir: Path) -> str:
        """Return why this node had better not take part, '' where nothing says so."""
        check, environ = self._spec.node_check, self._seat.environ
        if not check.on or not (_has_devices() or check.installed or check.command):
            return ""
        from .fitness import Here, before_joining
        from .node_check import unspared

        return await before_joining(Here(self._spec, run_dir, environ, unspared, self._tell))

    async def _unfit(self, settings: Settings, run_dir: Path, log: Notes) -> int | None:
        """Clear away what an earlier start has left, and look at the port that is given; return why not to begin."""
        spec = self._spec
        if not spec.new_run:  # nobody has used an id that was made just now
            strays = sweep_strays(spec.run_id, settings.node, self._seat.keeper)
            if strays.killed:
                log.line("killed what an earlier start had left", pids=list(strays.killed))
            if strays.survivors:
                return self._complain(f"processes {strays.survivors} of an earlier start do not die; reboot", UNHEALTHY)
        if why := await self._sick(run_dir):
            return self._complain(f"this node cannot take part: {why} (--node-check=off lets it)", UNHEALTHY)
        if spec.master is not None and spec.place in (None, 0):
            try:
                await meeting_point(settings.record.address, spec.master)
            except AddressError as error:
                return self._complain(str(error), REFUSED)
        return None

    def _made(self, settings: Settings, store: Store, place: Place, log: Notes) -> tuple[Agent, Parts]:
        """Make the agent, and return what it is made from."""
        spec = self._spec

        def keep(record: dict[str, object]) -> None:
            from .attempts import keep_record

            keep_record(place.shown.run_dir, spec.checkpoint_dir, spec.run_id, record)

        chronicle = Chronicle(store, settings.keys, self._records, keep, log.line)
        spared = Spared(lambda pids: agent.crew.link.spare(pids))

        def ledger() -> Ledger:
            from . import ledger

            begun_s = float(start_ticks(self._seat.keeper) or "nan") / os.sysconf("SC_CLK_TCK")
            where = ledger.Place(
                *(
                    settings.node,
                    place.shown.run_dir,
                    store,
                    settings.keys,
                    self._records,
                    spared.by,
                    log.line,
                ),
                agent.give_up,
            )
            return ledger.Ledger(spec, where, settings.kept.run, begun_s)

        aside = Aside(ledger)
        chronicle.told = aside.record
        parts = Parts(spec, self._seat, store, settings, log, place, chronicle, aside, spared)
        agent = assemble(parts)
        return agent, parts

    async def _run(self, agent: Agent, parts: Parts) -> tuple[Exit, tuple[int, ...]]:
        """Run the agent to its end, let go of lease and ranks; return the end, and the ranks that would not die."""
        spec, settings, store, log = self._spec, parts.settings, parts.store, parts.log
        attending: list[asyncio.Task[None]] = []

        def warmed() -> None:
            _warm(log)
            if spec.backend is Backend.ETCD:
                from .wards import Wards

                wards = Wards(store, settings.keys, log.line)
                attending.append(asyncio.ensure_future(wards.attend(settings.record.host, settings.record.address)))

        warm = asyncio.get_running_loop().call_later(WARM_S, warmed)
        try:
            end = await agent.run()
            from . import last_words

            survivors = await agent.crew.stop()
            if survivors and spec.backend is Backend.ETCD:
                from .wards import distrust

                await distrust(spec, store, settings, survivors, log.line)
            await agent.release(end.revoke and not survivors)
            self._seat.page.set_lease(0)
            await self._console().drain()
            await agent.crew.copied()
            await last_words.keep_last(spec, agent, parts.chronicle, self._files, log)
            return end, survivors
        finally:
            warm.cancel()
            for task in attending:
                task.cancel()
            await asyncio.gather(*attending, return_exceptions=True)
            await agent.crew.stop()

    def _stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Say a shortage that some task in the background has met once, in words; the ranks run on."""
        from . import limits

        error = context.get("exception")
        short = limits.shortage(error) if isinstance(error, BaseException) else None
        if short is None:
            loop.default_exception_handler(context)
        elif short not in self._short:
            self._short.add(short)
            print(_voiced(short), end="", file=sys.stderr, flush=True)

    def _complain(self, sentence: str, code: int) -> int:
        self._tell(sentence)
        return code

    def _tell(self, sentence: str) -> None:
        self._console().say(_voiced(sentence))


def _has_devices() -> bool:
    """Tell whether this node has something that can be bad although it starts programs."""
    return gpu_start.driver_here(os.environ) or os.path.exists(FABRIC)


def _voiced(sentence: str) -> str:
    from .last_words import voiced

    return voiced(sentence)


def _warm(log: Notes) -> None:
    """Load, in a quiet moment, what the start did without: the log, and what judges a failure."""
    log.write()
    from . import counsel

    counsel.prepare()
    gc.enable()
    gc.freeze()
