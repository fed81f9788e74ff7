"""Builds one node's agent from a ``JobSpec`` and runs it to the exit code: the composition root.

Called by the launcher in the agent's process, below the keeper, with the guardian already there. gRPC is imported only
when the store is an etcd.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..rendezvous.errors import StoreError
from ..rendezvous.keys import Keys
from ..rendezvous.leader import Conclude, Concluded, Limits
from ..rendezvous.records import NO_PLACE, Incarnation, Job, Node, NodeId, Phase, Round
from ..rendezvous.store import Store
from . import node_words as words
from .chronicle import Chronicle
from .crew import Crew, Place
from .files import FileThread
from .identity import Machine, this_machine, this_process
from .leading import Counsel
from .lease import Timing
from .linux import boottime
from .loop import Agent, Surroundings
from .meeting import Met, meet
from .node_lock import NodeBusy, NodeLock, NodeLockError
from .node_state import Settings
from .notes import Notes
from .ports import AddressError, literal, meeting_point, reachable_address
from .reentry import Entrance
from .run_dir import NoRoomForLogs, RunDirectoryError, run_directory
from .seat import Seat
from .spec import Backend, JobSpec
from .strays import sweep_strays
from .terms import terms

if TYPE_CHECKING:
    from .output import Console

LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FORWARD = (signal.SIGUSR1, signal.SIGUSR2)
USAGE, REFUSED, UNHEALTHY = 2, 69, 75
NAMES = 64  # agents of one run on one host without --local-addr, told apart by a number
WARM_S = 0.25  # after the start: the first ranks run by then, or nodes are waited for
STALL_S = 1200.0  # beyond all that a leader waits for: who stands longer has no leader that can go on
SLACK_S = 2.0  # after a TTL, for the store to say that a lease has expired


def run_agent(spec: JobSpec, seat: Seat) -> int:
    """Serve the job on this node until it ends; return the exit code of the command."""
    return asyncio.run(_Host(spec, seat).serve())


class _Host:
    """What one agent is built from; owns files, console and store."""

    def __init__(self, spec: JobSpec, seat: Seat) -> None:
        self._spec = spec
        self._seat = seat
        self._files = FileThread()
        self._records = FileThread("records")
        self._shown: Console | None = None

    def _console(self) -> Console:
        if self._shown is None:
            from .output import Console

            self._shown = Console()
        return self._shown

    async def serve(self) -> int:
        """Prepare the node, run the agent, and leave nothing behind."""
        asked = _stop_waiting()
        try:
            return await self._serve()
        except asyncio.CancelledError:
            if not asked:
                raise
            return self._complain(f"{asked[0].name} before this node had joined; nothing was started", 128 + asked[0])
        finally:
            await self._console().drain()
            self._console().close()
            self._files.close()
            self._records.close()

    async def _serve(self) -> int:
        try:
            met = await meet(self._spec, self._seat, lambda words: self._console().say(_voiced(words)))
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
            address = _address(spec)
            node, tag, lock = await _take_name(spec, machine)
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
            settings = _settings(spec, node, machine, address)
            return await self._on_node(run_dir, settings, met, (tag, lock))
        finally:
            os.close(lock)

    async def _on_node(self, run_dir: Path, settings: Settings, met: Met, lock: tuple[str, int]) -> int:
        spec, node, address = self._spec, settings.node, settings.record.address
        log = Notes(lambda text: self._console().say(text), run_dir, self._records, os.environ.get("LOGLEVEL", ""))
        if not spec.new_run:  # nobody has used an id that was made just now
            strays = sweep_strays(spec.run_id, node, self._seat.keeper)
            if strays.killed:
                log.line("killed what an earlier start had left", pids=list(strays.killed))
            if strays.survivors:
                return self._complain(f"processes {strays.survivors} of an earlier start do not die; reboot", UNHEALTHY)
        if spec.master is not None and spec.place in (None, 0):
            try:
                await meeting_point(address, spec.master)
            except AddressError as error:
                return self._complain(str(error), REFUSED)
        # Ranks get theirs with their orders; this marks what the agent itself starts, a resume hook, for a later sweep.
        os.environ.update(REMUSTER_RUN_ID=spec.run_id, REMUSTER_NODE=node)
        log.line("start", run_id=spec.run_id, node=node, address=address, run_dir=str(run_dir))

        def keep(record: dict[str, object]) -> None:
            from .attempts import mirror_directory, mirror_record, write_record

            attempt = record.get("attempt")
            number = attempt if isinstance(attempt, int) else 0
            try:
                write_record(run_dir / "attempts", number, record)
            finally:  # one full disk must not cost both copies
                if spec.checkpoint_dir is not None:
                    mirror_record(mirror_directory(spec.checkpoint_dir, spec.run_id), number, record)

        chronicle = Chronicle(met.store, settings.keys, self._records, keep, log.line)
        agent = self._agent(met.store, settings, chronicle, log, run_dir)
        agent.crew.link.hold(*lock)
        _listen(agent)
        if met.door is not None:
            met.door.gone.add_done_callback(lambda gone: agent.give_up(gone.result()))
        warm = asyncio.get_running_loop().call_later(WARM_S, _warm, log)
        try:
            end = await agent.run()
            survivors = await agent.crew.link.stop()
            await agent.release(end.revoke and not survivors)
            await self._console().drain()
            await self._keep_last(agent, chronicle, log)
        finally:
            warm.cancel()
            await agent.crew.link.stop()
            log.open()
        seen = agent.state.job
        if end.code and chronicle.report:
            self._console().say(chronicle.report)
        if end.code and not (chronicle.report and seen is not None and seen.job.phase.over):
            self._console().say(_voiced(end.sentence))  # the report does not say how it ended
        elif not end.code and not agent.state.round:
            self._console().say(_voiced("this node stood by as a spare and ran nothing; the job is done"))
        log.line("exit", code=end.code, why=end.sentence)
        if survivors:
            return self._complain(f"processes {survivors} do not die from SIGKILL; reboot this node", UNHEALTHY)
        return end.code

    def _agent(self, store: Store, settings: Settings, chronicle: Chronicle, log: Notes, run_dir: Path) -> Agent:
        spec = self._spec
        crews: list[Crew] = []

        def crew(post: Callable[[words.Event], None]) -> Crew:
            crews.append(Crew(spec, self._seat, post, Place(run_dir, self._files, self._console, log.line)))
            return crews[0]

        async def judge(ask: Conclude) -> Concluded:
            from .counsel import Bench

            return await Bench(spec, self._files, log.line).judge(ask)

        def spare(pids: tuple[int, ...]) -> None:
            crews[0].link.spare(pids)

        entrance = Entrance(spec, spare, log.line)
        around = Surroundings(
            store,
            Timing(spec.lease_ttl_s, spec.kill_bound_s, forever=spec.backend is Backend.MEMORY),
            Limits(spec.last_call_timeout_s, spec.join_timeout_s, spec.lease_ttl_s + SLACK_S),
            Counsel(judge, entrance.choose, log.line),
            log.line,
            chronicle.job_seen,
        )
        return Agent(settings, around, crew)

    async def _keep_last(self, agent: Agent, chronicle: Chronicle, log: Notes) -> None:
        """Keep the record of the round that this agent leaves, if nobody else has judged it."""
        state = agent.state
        if state.round and not chronicle.has(state.round):
            from .counsel import Bench

            record = Bench(self._spec, self._files, log.line).own_record(state)
            if record is not None:
                await chronicle.keep(state.round, json.loads(record))
        await chronicle.settle()

    def _complain(self, sentence: str, code: int) -> int:
        self._console().say(_voiced(sentence))
        return code


def _voiced(sentence: str) -> str:
    from .report import one_line

    return f"remuster: {one_line(sentence)}\n"


def _warm(log: Notes) -> None:
    """Load, in a quiet moment, what the start did without: the log, and what judges a failure."""
    log.open()
    importlib.import_module(".counsel", __package__)
    gc.enable()
    gc.freeze()


def _stop_waiting() -> list[signal.Signals]:
    """Let a signal end the wait for the store and for the node's name; return where its number comes to stand."""
    asked: list[signal.Signals] = []
    work = asyncio.current_task()
    assert work is not None

    def stop(number: signal.Signals) -> None:
        asked.append(number)
        work.cancel()

    loop = asyncio.get_running_loop()
    for number in LEAVE:
        loop.add_signal_handler(number, stop, number)
    for number in FORWARD:  # there is no rank yet
        loop.add_signal_handler(number, lambda: None)
    return asked


def _listen(agent: Agent) -> None:
    def leave(number: int) -> None:
        agent.post(words.LeaveAsked(boottime(), number))

    loop = asyncio.get_running_loop()
    for number in LEAVE:
        loop.add_signal_handler(number, leave, number)
    for number in FORWARD:
        loop.add_signal_handler(number, agent.forward, number)


def _address(spec: JobSpec) -> str:
    if spec.backend is Backend.MEMORY:
        return literal(spec.local_addr) if spec.local_addr else "127.0.0.1"
    host, port = spec.endpoints[0]
    return reachable_address(host, port, spec.local_addr)


async def _take_name(spec: JobSpec, machine: Machine) -> tuple[NodeId, str, int]:
    """Return a node name that no live agent of this run holds on this machine, and its lock."""
    base = spec.local_addr or machine.host
    for i in range(1, NAMES + 1):
        node = NodeId(base if i == 1 else f"{base}#{i}")
        lock = NodeLock(spec.run_id, node)
        try:
            return node, lock.tag, await lock.acquire()
        except NodeBusy:
            if spec.local_addr is not None or spec.backend is Backend.MEMORY or i == NAMES:
                raise  # two groups of one run without a store between them would publish side by side
    raise AssertionError("unreachable")


def _settings(spec: JobSpec, node: NodeId, machine: Machine, address: str) -> Settings:
    pid, start = this_process()
    place = NO_PLACE if spec.place is None else spec.place
    return Settings(
        Keys(spec.run_id, spec.prefix),
        node,
        Node(Incarnation(0), machine.name, machine.boot, address, spec.nproc, Round(0), pid, start, place),
        Job(Phase.FORMING, Round(1), spec.min_nodes, spec.max_nodes, spec.launch_id),
        spec.fresh,
        spec.grace_s,
        spec.join_timeout_s,
        held_s=spec.lease_ttl_s + SLACK_S,
        stall_s=spec.join_timeout_s + spec.last_call_timeout_s + spec.resume_timeout_s + STALL_S,
        terms=terms(spec),
        master=spec.master,
    )
