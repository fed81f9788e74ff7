"""The shell around the job machine, on the agent that holds the leader key: watches the run, carries out decisions.

Everything that it must judge goes out as a coroutine (``judge``, ``resume``) and comes back as an event. It ends when
the machine deposes itself or when its task is cancelled because the agent's lease is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, NamedTuple

from ..rendezvous import leader as machine
from ..rendezvous import leader_words as words
from ..rendezvous.errors import Compacted, PermanentError, TransientError
from ..rendezvous.keys import Keys
from ..rendezvous.leader_state import Leader
from ..rendezvous.snapshot import Snapshot
from ..rendezvous.store import Store
from ..rendezvous.writes import Own, Write
from .alarms import Alarm
from .linux import boottime
from .refusals import BORNE_S, Refusals

if TYPE_CHECKING:
    from .wards import Wards

LOOK_EVERY_S = 5.0  # at the checkpoints, while a newcomer waits for the next one
PROOF_LEAST_S, PROOF_MOST_S = 1.0, 60.0  # between looks for the first checkpoint after a re-entry


class Counsel(NamedTuple):
    """Who judges and who chooses: coroutines that never raise."""

    judge: Callable[[words.Conclude], Awaitable[words.Concluded]]
    resume: Callable[[words.SelectResume], Awaitable[words.Resumed]]
    say: Callable[[str], None]  # the reason of a decision or a wait; called when it changes
    newest: Callable[[], Awaitable[int | None]]  # step of the newest committed checkpoint; None = not to be seen
    prove: Callable[[words.Prove], Awaitable[words.ProofSeen | None]] | None = None  # None: nobody verifies
    wards: Callable[[], Wards] | None = None  # who knows the hosts in quarantine; None where there is one host alone


class Leading:
    """Lead under ``token`` until deposed or cancelled."""

    refused_s = BORNE_S

    def __init__(self, store: Store, keys: Keys, own: Own, limits: words.Limits, counsel: Counsel) -> None:
        self._store = store
        self._keys = keys
        self._counsel = counsel
        self._state = Leader(own, limits, Snapshot(keys))
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm = Alarm(lambda: self._take(words.Tick(boottime())))
        self._deposed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._said = ""
        self._refusals = Refusals(counsel.say, self.refused_s)

    async def run(self, token: int) -> str:
        """Lead until deposed; return why this agent must end, if it must. Raises what a task of it raised.

        On the way out all that is under way is cancelled.
        """
        self._spawn(self._follow(token))
        try:
            return await self._deposed
        finally:
            self._alarm.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, token: int) -> None:
        if self._counsel.wards is not None:
            wards = self._counsel.wards()
            await wards.restore()
            self._bar(await wards.barred())  # before the first round can close
            self._spawn(wards.follow(self._bar))
        while True:
            try:
                found = await self._store.range(self._keys.prefix, self._keys.end)
                self._take(words.Elected(boottime(), token, found))
                async with contextlib.aclosing(
                    self._store.watch(self._keys.prefix, self._keys.end, found.revision + 1)
                ) as watch:
                    async for batch in watch:
                        self._take(words.Changed(boottime(), batch))
            except Compacted:
                continue
            except TransientError:
                await asyncio.sleep(machine.AGAIN_S)

    def _bar(self, hosts: frozenset[str]) -> None:
        self._take(words.Barred(boottime(), hosts))

    def _take(self, event: words.Event) -> None:
        self._state, actions = machine.step(self._state, event)
        for action in actions:
            self._do(action)

    def _do(self, action: words.Action) -> None:
        match action:
            case words.Submit(write=write):
                self._speak(write.reason)
                self._spawn(self._submit(write))
            case words.Conclude():
                self._speak(action.reason)
                self._spawn(self._judge(action))
            case words.SelectResume():
                self._speak(action.reason)
                self._spawn(self._resume(action))
            case words.AwaitCheckpoint():
                self._speak(action.reason)
                self._spawn(self._look(action))
            case words.Prove():
                self._speak(action.reason)
                self._spawn(self._prove(action))
            case words.Wake(at=at, reason=reason):
                self._speak(reason)
                self._alarm.set(at)
            case words.Depose(reason=reason):
                self._speak(reason)
                self._end("")
            case words.Abandon(reason=reason):
                self._end(reason)

    def _speak(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self._counsel.say(reason)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error)

    def _end(self, how: str | BaseException) -> None:
        if self._deposed.done():
            return
        if isinstance(how, str):
            self._deposed.set_result(how)
        else:
            self._deposed.set_exception(how)

    async def _submit(self, write: Write) -> None:
        try:
            result = await self._store.txn(write.txn)
            self._refusals.taken()
        except TransientError:
            result = None
        except PermanentError as error:
            result = None
            await self._refusals.bear(error, write.reason)
        self._take(words.Wrote(boottime(), write.kind, result))

    async def _judge(self, action: words.Conclude) -> None:
        self._take(await self._counsel.judge(action))

    async def _look(self, action: words.AwaitCheckpoint) -> None:
        if action.again:
            await asyncio.sleep(LOOK_EVERY_S)
        step = await self._counsel.newest()
        self._take(words.CheckpointSeen(boottime(), action.round, step))

    async def _prove(self, action: words.Prove) -> None:
        if self._counsel.prove is None:
            return
        if action.before:
            await asyncio.sleep(min(PROOF_MOST_S, PROOF_LEAST_S * 1.5**action.before))
        seen = await self._counsel.prove(action)
        if seen is not None:
            self._take(seen)

    async def _resume(self, action: words.SelectResume) -> None:
        self._take(await self._counsel.resume(action))
