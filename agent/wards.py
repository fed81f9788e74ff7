"""The agent's side of the quarantine: hosts are made known, offences written down, barred ones told to the leader.

An adapter over the store for the decisions of ``rendezvous/quarantine.py``. Loaded by agents that meet at an
etcd: by the leading one before its first round closes, by others once their first ranks run. Nothing here may hold up a
round for long: what the store does not answer in time is said, and the job goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from ..rendezvous import quarantine
from ..rendezvous.errors import BadRecord, Compacted, PermanentError, StoreError, TransientError
from ..rendezvous.keys import Keys
from ..rendezvous.quarantine import HOSTS, QUARANTINE, Bar, Known, Offence
from ..rendezvous.records import NodeId, decode_node
from ..rendezvous.store import KeyValue, Put, Store, Txn, prefix_end
from .node_state import Settings
from .spec import JobSpec

BOUND_S = 3.0  # for all that is asked of the store about one offence: the group waits for it
AGAIN_S = 1.0
LONG_S = 3600.0  # between looks at the clock, while nobody's bar ends
NOT_BARRED = frozenset[str]()


class Suspect(NamedTuple):
    """What a verdict holds against a node's host; ``once`` is enough for a bar."""

    node: NodeId
    by: str  # "<run id>/<round>"
    reason: str
    once: bool


class Wards:
    """The hosts of one store, as one agent sees them."""

    def __init__(
        self, store: Store, keys: Keys, say: Callable[[str], None], earlier: tuple[Bar, ...] | None = None
    ) -> None:
        """``earlier`` is what launches of this run before held against hosts, whose store has gone."""
        self._earlier = earlier or ()
        self._store = store
        self._keys = keys
        self._say = say
        self._read_up_to = 0
        start = keys.root + QUARANTINE
        self._all = (start, prefix_end(start))

    async def introduce(self, host: str, address: str) -> None:
        """Make this host known, unless it was lately."""
        key, now = self._keys.root + HOSTS + host, int(time.time())
        try:
            kv = (await self._store.range(key)).one()
            if kv is None or _seen(kv, now) >= quarantine.SEEN_EVERY_S:
                await self._store.txn(Txn((), (Put(key, quarantine.encode(Known(host, address, now))),)))
        except StoreError as error:
            self._say(f"this host is not among the known ones: {error}")

    async def attend(self, host: str, address: str) -> None:
        """Introduce this host, then say whenever it is put in quarantine or let out, until cancelled."""
        await self.introduce(host, address)
        last = ""
        key = self._keys.root + QUARANTINE + host
        while True:
            try:
                bars = await self._bars(key, None)
                held, next_s = _now(bars)
                why = _sentence(bars[host][0]) if held else ""
                if why != last:
                    self._say(why or "this host is no longer in quarantine")
                    last = why
                await self._changed(key, None, next_s)
            except Compacted:
                continue
            except TransientError:
                await asyncio.sleep(AGAIN_S)
            except PermanentError as error:
                self._say(f"nobody watches whether this host is in quarantine: {error}")
                return

    async def offend(self, suspect: Suspect, least: int) -> str:
        """Weigh what is held against a host and write it down; return the host that is barred by it, or ''.

        ``least`` is the number of nodes that the job needs.
        """
        try:
            return await asyncio.wait_for(self._offend(suspect, least), BOUND_S)
        except asyncio.TimeoutError:
            self._say(f"what was held against {suspect.node} is not in the store: no answer within {BOUND_S:g} s")
        except (StoreError, BadRecord) as error:
            self._say(f"what was held against {suspect.node} is not in the store: {error}")
        return ""

    async def _offend(self, suspect: Suspect, least: int) -> str:
        hosts = await self._hosts()
        host = hosts.get(suspect.node)
        if not host:
            return ""
        root = self._keys.root
        known = await self._known()
        offence = Offence(host, suspect.by, suspect.reason, suspect.once)
        for _ in range(2):  # somebody else may write at the same moment, once
            bars = await self._bars(*self._all)
            before, mod = bars.pop(host, (None, 0))
            others = tuple(bar for bar, _ in bars.values())
            now = int(time.time())
            out = {host} | {bar.host for bar in others if bar.holds(now)}
            enough = sum(1 for other in hosts.values() if other not in out) >= least
            weighed = quarantine.weigh(offence, before, others, known, enough, now)
            if weighed.bar is None or (await self._store.txn(quarantine.write(root, weighed.bar, mod))).succeeded:
                if weighed.sentence:
                    self._say(weighed.sentence)
                held = weighed.bar or before
                return host if held is not None and held.holds(now) else ""
        return ""

    async def _known(self) -> int:
        """Return how many hosts there are: those that agents have been on of late."""
        start, now = self._keys.root + HOSTS, int(time.time())
        found = await self._store.range(start, prefix_end(start))
        return sum(1 for kv in found.items if _seen(kv, now) < quarantine.FORGOTTEN_S)

    async def _hosts(self) -> dict[NodeId, str]:
        """Return the host of each node that has joined."""
        start = self._keys.nodes
        found = await self._store.range(start, prefix_end(start))
        return {NodeId(kv.key[len(start) :]): decode_node(kv.value).host for kv in found.items}

    async def _bars(self, key: str, end: str | None) -> dict[str, tuple[Bar, int]]:
        """Return records of the quarantine with their revisions; one that cannot be read bars nobody."""
        found = await self._store.range(key, end)
        self._read_up_to = found.revision
        bars, odd = quarantine.bars_of(found.items)
        for words in odd:
            self._say(words)
        return bars

    async def restore(self) -> None:
        """Write down what is known from before, where the store knows nothing of that host. Once; never raises."""
        earlier, self._earlier = self._earlier, ()
        now = int(time.time())
        try:
            for bar in earlier:
                if now - bar.at <= quarantine.FORGOTTEN_S:
                    await asyncio.wait_for(self._store.txn(quarantine.write(self._keys.root, bar, 0)), BOUND_S)
        except (StoreError, asyncio.TimeoutError) as error:
            self._say(f"what earlier launches held against hosts is not in the store: {error or 'no answer'}")

    async def barred(self) -> frozenset[str]:
        """Return the hosts that are barred now; nobody when the store does not say."""
        try:
            return _now(await self._bars(*self._all))[0]
        except StoreError as error:
            self._say(f"the quarantine could not be read: {error}")
            return NOT_BARRED

    async def follow(self, tell: Callable[[frozenset[str]], None]) -> None:
        """Tell which hosts are barred, after every change, until cancelled or refused."""
        while True:
            try:
                hosts, next_s = _now(await self._bars(*self._all))
                tell(hosts)
                await self._changed(*self._all, next_s)
            except Compacted:
                continue
            except TransientError:
                await asyncio.sleep(AGAIN_S)
            except PermanentError as error:
                self._say(f"nobody watches the quarantine: {error}")
                tell(NOT_BARRED)
                return

    async def _changed(self, key: str, end: str | None, within_s: float) -> None:
        """Return once a record has changed, or after ``within_s``."""
        async with contextlib.aclosing(self._store.watch(key, end, self._read_up_to + 1)) as watch:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(anext(watch), within_s)


async def distrust(
    spec: JobSpec, store: Store, settings: Settings, survivors: tuple[int, ...], say: Callable[[str], None]
) -> None:
    """Hold against this host that processes on it do not die: a device or a server that they wait for is ill."""
    pids = ", ".join(str(pid) for pid in survivors)
    reason = f"processes {pids} did not die from SIGKILL: they wait inside the kernel"
    suspect = Suspect(settings.node, f"{spec.run_id}/{int(time.time())}", reason, True)  # each time another offence
    await Wards(store, settings.keys, say).offend(suspect, spec.least_others)


def _now(bars: dict[str, tuple[Bar, int]]) -> tuple[frozenset[str], float]:
    """Return who is barred, and in how many seconds that must be looked at again."""
    now = time.time()
    held = [bar for bar, _ in bars.values() if bar.holds(int(now))]
    ends = min((bar.until - now for bar in held), default=LONG_S)
    return frozenset(bar.host for bar in held), min(max(ends, 0.0) + 1.0, LONG_S)


def _seen(kv: KeyValue, now: int) -> int:
    """Return how many seconds ago an agent was on a host."""
    try:
        return now - quarantine.decode_known(kv).at
    except BadRecord:
        return now


def _sentence(bar: Bar) -> str:
    until = "until it is lifted" if bar.until >= quarantine.NEVER_ENDS else f"until {_clock(bar.until)}"
    return (
        f"this host is in quarantine {until}: {bar.reason}; it takes part in no further round; "
        f"remuster quarantine lift {bar.host}, at this run's etcd, lets it in"
    )


def _clock(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
