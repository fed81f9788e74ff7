"""The agent: one asyncio loop that joins the node machine with store, guardian, files and console.

Events go in one at a time; the machine's actions are carried out in order, those that take time as tasks whose answers
are events again. Nothing is decided here. Made and run by ``agent/main.py``. It is as long as there are actions: each
has its few lines here, in one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple

from ..rendezvous.errors import Compacted, LeaseNotFound, OutcomeUnknown, PermanentError, StoreError, TransientError
from ..rendezvous.leader_words import Limits
from ..rendezvous.records import Incarnation, Job, Round
from ..rendezvous.store import Get, KeyValue, Store, Txn, TxnResult
from ..rendezvous.writes import Own, Write
from . import node, proc
from . import node_words as words
from .alarms import Alarm
from .crew import Crew
from .leading import Counsel, Leading
from .lease import Hearing, Lease, Timing
from .linux import boottime
from .node_enter import AGAIN_S, NO_STORE, UNKNOWN
from .node_state import NodeState, Ranks, Settings
from .ports import AddressError, meeting_point
from .refusals import Refusals

ASK_APART_S, ASK_LATEST_S = 0.004, 1.0  # between the questions of a large job's nodes to its one scheduler


class Surroundings(NamedTuple):
    """What the loop joins, made by ``main``."""

    store: Store
    timing: Timing
    limits: Limits
    counsel: Counsel
    say: Callable[[str], None]  # one line for people
    job_seen: Callable[[Job], None]  # each job record once, in order
    vet: Callable[[Round], Awaitable[words.Checked]]  # check this node, which is blamed; never raises
    look: Callable[[words.Look], Awaitable[words.Looked]]  # at a checkpoint that the leader asks about; never raises
    ask: Callable[[words.AskLimit], Awaitable[words.Limited]]  # the scheduler about a signal of its own; never raises


class Agent:
    """One agent's loop, from its first join to its last word."""

    def __init__(self, settings: Settings, around: Surroundings, crew: Callable[[Callable[[words.Event], None]], Crew]):
        self._settings = settings
        self._around = around
        self._store = around.store
        self._keys = settings.keys
        self.crew = crew(self.post)
        self._lease = Lease(around.store, around.timing, Hearing(self._renewed, self._grumble, self._away))
        self._state: NodeState | None = None
        self._events: deque[words.Event] = deque()
        self._taking = False
        self._alarm = Alarm(lambda: self.post(words.Tick(boottime())))
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._leading: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None  # the check of this node, which is blamed
        self._exit: asyncio.Future[words.Exit] = asyncio.get_running_loop().create_future()
        self.begun_s = 0.0
        self._shown = 0  # revision of the job record last shown
        self._grumbled: set[str] = set()
        self._refusals = Refusals(around.say)

    async def run(self) -> words.Exit:
        """Join, serve rounds, and return how this agent ends. ``release`` follows, once its ranks are proven dead."""
        self.begun_s = boottime()
        self._state, actions = node.begin(self._settings, self.begun_s)
        for action in actions:
            self._do(action)
        try:
            end = await self._exit
        finally:
            self._alarm.stop()
            self._stop_following()
            await self._stop_tasks([*self._tasks])
        return end

    async def release(self, revoke: bool) -> None:
        """Give the lease up; ``revoke`` it only when no rank of ours is alive: others may go on at once then."""
        inc = self._lease.inc
        self._lease.stop()
        if revoke and inc:
            try:
                await self._store.revoke(inc)
            except StoreError as error:
                self._around.say(f"the lease could not be revoked and will expire by itself: {error}")

    def post(self, event: words.Event) -> None:
        """Take an event; those that come while one is being taken wait for their turn."""
        self._events.append(event)
        if self._taking or self._state is None:
            return
        self._taking = True
        try:
            while self._events and not self._exit.done():
                self._state, actions = node.step(self._state, self._events.popleft())
                seen = self._state.job
                if seen is not None and seen.mod != self._shown:
                    self._shown = seen.mod
                    self._around.job_seen(seen.job)
                for action in actions:
                    self._do(action)
        except Exception as error:  # a defect: it ends the agent, for an event that is lost here is lost for good
            if not self._exit.done():
                self._exit.set_exception(error)
        finally:
            self._taking = False

    @property
    def state(self) -> NodeState:
        """The machine's state: at the end, what this node did last."""
        assert self._state is not None
        return self._state

    def forward(self, signum: int) -> None:
        """Pass a signal of the user's on to the ranks of the round that is running here."""
        if self._state is not None and self._state.ranks is Ranks.LIVE:
            self.crew.forward(self._state.round, signum)

    def give_up(self, sentence: str) -> None:
        """End: the store is gone for good, and no lease with it."""
        if not self._exit.done():
            self._exit.set_result(words.Exit(UNKNOWN if self.state.round else NO_STORE, sentence, False))

    # --- actions ------------------------------------------------------------------------------------------------------
    def _do(self, action: words.Action) -> None:
        match action:
            case words.Grant():
                self._stop_following()
                self._spawn(self._grant())
            case words.Reread():
                self._spawn(self._reread())
            case words.Watch(revision=revision):
                self._watch(revision)
            case words.Submit(write=write):
                self._spawn(self._submit(write, self.state.inc))
            case words.RevokeOld():
                self._revoke_old(action)
            case words.ReadRoster(round=n):
                self._spawn(self._read_roster(n))
            case words.ReservePort(round=n):
                self._spawn(self._reserve_port(n))
            case words.Start():
                self._spawn(self._start(action))
            case words.Terminate():
                self.crew.terminate(action)
            case words.Notify():
                self.crew.notify(action)
            case words.AskLimit():
                self._spawn(self._ask(action))
            case words.Inspect():
                self._spawn(self.crew.inspect(action))
            case words.Kill():
                self.crew.kill(action)
            case words.AcknowledgeFence(inc=inc):
                self.crew.acknowledge(inc)
                self._lease.hurry()
            case words.Collect():
                self._spawn(self.crew.collect(action))
            case words.Check(round=n):
                self._check(n)
            case words.Look():
                self._spawn(self._look(action))
            case words.Lead(token=token):
                self._lead(token)
            case words.Wake(at=at, reason=reason):
                if not self.state.joined:
                    self._grumble(reason)
                self._alarm.set(at)
            case words.Tell(sentence=sentence):
                self._around.say(sentence)
            case words.Exit():
                if not self._exit.done():
                    self._exit.set_result(action)

    def _check(self, n: Round) -> None:
        self._end_check()
        self._checking = self._spawn(self._vet(n))

    async def _vet(self, n: Round) -> None:
        self.post(await self._around.vet(n))

    async def _look(self, action: words.Look) -> None:
        self.post(await self._around.look(action))

    async def _ask(self, action: words.AskLimit) -> None:
        await asyncio.sleep(min(ASK_LATEST_S, ASK_APART_S * self.state.index))  # all nodes get a signal at once
        self.post(await self._around.ask(action))

    def _end_check(self) -> asyncio.Task[None] | None:
        """End the check that is under way, if one is, and return it: what it has started is gone when it is done."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
        return checking

    async def _start(self, action: words.Start) -> None:
        checking = self._end_check()
        if checking is not None:  # no rank starts beside a test of its GPU
            await asyncio.wait({checking})
        await self.crew.start(action)

    async def _grant(self) -> None:
        if self._lease.inc:  # lost: so have others, most likely, and not all need ask at the same instant
            await asyncio.sleep(self._around.timing.keepalive_s * os.urandom(1)[0] / 255)
        try:
            inc = await self._lease.grant(self._lost, self._guarded)
        except TransientError as error:
            self._grumble(f"no lease from the store: {error}")
            inc = Incarnation(0)
        except PermanentError as error:
            if not self.state.launch:  # it was never let in
                raise
            await self._refusals.bear(error, "a new lease")
            inc = Incarnation(0)
        self.post(words.Granted(boottime(), inc))

    def _renewed(self, inc: Incarnation, deadline_s: float) -> None:
        self._grumbled.clear()
        self.crew.renewed(inc, deadline_s)

    def _away(self, since_s: float, silent: bool) -> None:
        """Say once that the store is away, and that it is back: ranks are held meanwhile."""
        lasted = f"{boottime() - since_s:.0f} s"
        if silent:
            self._around.say(f"the store has been silent for {lasted}: ranks are held (--on-store-loss=hold)")
            self.post(words.StoreAway(boottime()))
        else:
            self._around.say(f"the store answers again, after {lasted}")
            self.post(words.StoreBack(boottime()))

    def _lost(self, inc: Incarnation) -> None:
        if self._state is None or self._state.inc != inc:
            return
        self._around.say(f"the lease {inc:x} is gone: this node was cut off; its ranks are stopped and it joins again")
        self.post(words.LeaseLost(boottime()))

    async def _reread(self) -> None:
        keys = self._keys
        gets = (Get(keys.job), Get(keys.node(self._settings.node)), Get(keys.leader), Get(keys.terms))
        try:
            result = await self._store.txn(Txn((), gets))
        except TransientError:
            self.post(words.Rereading(boottime(), False))
            return
        except PermanentError as error:  # a full etcd may refuse transactions that write nothing, too
            await self._bear(error, "reading the job")
            self.post(words.Rereading(boottime(), False))
            return
        self.post(words.Rereading(boottime(), True, result.revision, *(r.one() for r in result.ranges)))

    async def _submit(self, write: Write, inc: Incarnation) -> None:
        result: TxnResult | None = None
        try:
            result = await self._store.txn(write.txn)
        except OutcomeUnknown as error:
            self._grumble(f"no answer to a write ({write.reason}): {error}; reading what became of it")
        except TransientError as error:
            self._grumble(f"a write did not reach the store ({write.reason}): {error}; trying again")
        except LeaseNotFound:
            self._lost(inc)
            return
        except PermanentError as error:
            await self._bear(error, write.reason)
        else:
            self._refusals.taken()
        self.post(words.Wrote(boottime(), write.kind, write.round, inc, result))

    async def _bear(self, error: PermanentError, what: str) -> None:
        if not self.state.joined:  # nothing of it runs yet
            raise error
        await self._refusals.bear(error, what)

    def _revoke_old(self, old: words.RevokeOld) -> None:
        """Revoke the lease of an earlier agent of this machine, unless that agent is alive after all.

        It may be this very agent's: an etcd that was away for longer than a lease gives all leases their time again.
        """
        if old.pid != os.getpid() and proc.alive(old.pid) and proc.start_ticks(old.pid) == old.start:
            self._fail(f"another agent (pid {old.pid}) of this run is on this node under this name; stop it first")
            return
        self._grumble(f"revoking the old lease {old.inc:x}: {old.reason}")
        self._spawn(self._revoke(old.inc))

    async def _revoke(self, inc: Incarnation) -> None:
        try:
            await self._store.revoke(inc)
        except TransientError as error:
            self._grumble(f"the old lease {inc:x} was not revoked: {error}; trying again")

    async def _read_roster(self, n: Round) -> None:
        try:
            result = await self._store.txn(Txn((), (Get(self._keys.roster(n)), Get(self._keys.job))))
        except TransientError:
            self.post(words.RosterRead(boottime(), n, False))
            return
        except PermanentError as error:
            await self._bear(error, f"reading the roster of round {n}")
            self.post(words.RosterRead(boottime(), n, False))
            return
        roster, job = (r.one() for r in result.ranges)
        self.post(words.RosterRead(boottime(), n, True, roster, job.mod_revision if job else 0))

    async def _reserve_port(self, n: Round) -> None:
        try:
            where = await meeting_point(self._settings.record.address, self._settings.master)
        except AddressError as error:
            self.post(words.PortFailed(boottime(), n, str(error)))
            return
        self.post(words.PortReserved(boottime(), n, where))

    def _grumble(self, trouble: str) -> None:
        """Say what is wrong once, not with every retry."""
        if trouble not in self._grumbled:
            self._grumbled.add(trouble)
            self._around.say(trouble)

    # --- watches and leading ------------------------------------------------------------------------------------------
    def _watch(self, revision: int) -> None:
        self._stop_watching()
        self._watching = [
            asyncio.ensure_future(self._guarded(self._follow(key, revision)))
            for key in (self._keys.job, self._keys.leader)
        ]

    async def _follow(self, key: str, revision: int) -> None:
        while True:
            try:
                if not revision:
                    found = await self._store.range(key)
                    revision = found.revision + 1
                    self._seen(key, found.one(), found.revision)
                async with contextlib.aclosing(self._store.watch(key, None, revision)) as watch:
                    async for batch in watch:
                        for event in batch.events:
                            revision = event.revision + 1
                            self._seen(key, event.kv, event.revision)
            except Compacted:
                revision = 0
            except TransientError:
                await asyncio.sleep(AGAIN_S)

    def _seen(self, key: str, kv: KeyValue | None, revision: int) -> None:
        if key == self._keys.job:
            self.post(words.JobSeen(boottime(), kv))
        else:
            self.post(words.LeaderSeen(boottime(), kv, revision))

    def _lead(self, token: int) -> None:
        assert self._state is not None
        own = Own(self._state.own.node, self._state.inc)
        leading = Leading(self._store, self._keys, own, self._around.limits, self._around.counsel)
        if self._leading is not None:
            self._leading.cancel()
        self._leading = asyncio.ensure_future(self._guarded(self._led(leading, token)))

    async def _led(self, leading: Leading, token: int) -> None:
        why = await leading.run(token)
        if why:
            self._fail(why)

    # --- tasks --------------------------------------------------------------------------------------------------------
    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[object, object, None]) -> None:
        """Turn what a task cannot handle into the end of the agent, in words; a defect keeps its traceback."""
        try:
            await work
        except PermanentError as error:
            self._fail(f"the store refuses: {error}")
        except Exception as error:
            if not self._exit.done():
                self._exit.set_exception(error)

    def _fail(self, sentence: str) -> None:
        """End in words. An agent that had ranks cannot know the job's outcome; one that had none could not join."""
        if not self._exit.done():
            self._exit.set_result(words.Exit(UNKNOWN if self.state.round else NO_STORE, sentence, True))

    def _stop_watching(self) -> None:
        for task in self._watching:
            task.cancel()
        self._watching = []

    def _stop_following(self) -> None:
        """Let go of what belongs to a lost lease: watches must not feed an old view to a new incarnation."""
        self._stop_watching()
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None

    async def _stop_tasks(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
