"""The store of ``--standalone``: one process, one event loop, no connection that could break.

The same answers as etcd's, from ``tree.Tree``; time (leases) and history (watches) are added here.
Called through ``store.Store``; the contract suite holds it to what the real etcd does.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from .errors import Compacted, LeaseNotFound, TransientError
from .store import Range, Txn, TxnResult, WatchBatch
from .tree import Tree


@dataclass(slots=True)
class _Lease:
    ttl_s: int
    due: float
    timer: asyncio.TimerHandle | None = None


class MemoryStore:
    """A ``Store`` in this process. ``never_expire``: leases end by ``revoke`` only, for nothing can be cut off.

    Watches reach back over the last ``history`` events; older revisions are compacted.
    """

    def __init__(self, *, history: int = 10_000, never_expire: bool = False) -> None:
        self._tree = Tree()
        self._leases: dict[int, _Lease] = {}
        self._never_expire = never_expire
        self._log: deque[WatchBatch] = deque()  # one batch a revision, the revisions without a gap
        self._logged = 0  # events in _log
        self._history = history
        self._changed = asyncio.Event()  # set once, then replaced
        self._closed = False

    async def range(self, key: str, end: str | None = None) -> Range:
        """Read ``key``, or [key, end)."""
        self._check_open()
        return self._tree.range(key, end)

    async def txn(self, txn: Txn) -> TxnResult:
        """Apply ``txn`` atomically."""
        self._check_open()
        self._tree, result, batch = self._tree.apply(txn)
        self._publish(batch)
        return result

    async def grant(self, ttl_s: int, lease_id: int) -> int:
        """Create lease ``lease_id``; a lease that lives already is renewed, with the TTL it has."""
        self._check_open()
        if lease_id <= 0 or ttl_s <= 0:
            raise ValueError(f"lease {lease_id} of {ttl_s} s: both must be positive")
        if lease_id in self._leases:
            return await self.keepalive(lease_id, 0.0)
        self._tree = self._tree.grant(lease_id)
        lease = self._leases[lease_id] = _Lease(ttl_s, _now() + ttl_s)
        if not self._never_expire:
            self._arm(lease_id, lease)
        return ttl_s

    async def keepalive(self, lease_id: int, timeout_s: float) -> int:
        """Renew once; return the TTL. LeaseNotFound when it is gone."""
        self._check_open()
        lease = self._leases.get(lease_id)
        if lease is not None and not self._never_expire and _now() >= lease.due:
            self._end(lease_id)  # the timer is late: the loop was busy, or the machine slept
            lease = None
        if lease is None:
            raise LeaseNotFound(f"lease {lease_id:x} has expired or was revoked")
        lease.due = _now() + lease.ttl_s
        return lease.ttl_s

    async def revoke(self, lease_id: int) -> None:
        """Delete the lease and its keys; a lease already gone is no error."""
        self._check_open()
        self._end(lease_id)

    async def watch(self, key: str, end: str | None, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Yield every event of [key, end) from ``from_revision`` on; Compacted when that is no longer kept."""
        if from_revision <= 0:
            raise ValueError(
                f"watch of {key!r} from revision {from_revision}: read the range first, watch from its + 1"
            )
        at = from_revision
        while not self._closed:
            oldest = self._tree.revision + 1 - len(self._log)
            if at < oldest and oldest > 2:  # revision 1 is the empty tree: an untrimmed log holds all from 2 on
                raise Compacted(oldest)
            changed = self._changed
            fresh: list[WatchBatch] = []
            for batch in reversed(self._log):
                if batch.events[0].revision < at:
                    break
                fresh.append(batch)
            at = max(at, self._tree.revision + 1)
            events = tuple(
                event
                for batch in reversed(fresh)
                for event in batch.events
                if (event.key == key if end is None else key <= event.key < end)
            )
            if events:
                yield WatchBatch(events)
            else:
                await changed.wait()

    async def close(self) -> None:
        """End leases' timers and all watches; later calls fail."""
        self._closed = True
        for lease in self._leases.values():
            if lease.timer is not None:
                lease.timer.cancel()
        self._leases.clear()
        self._changed.set()

    def _check_open(self) -> None:
        if self._closed:
            raise TransientError("the in-memory store is closed")

    def _publish(self, batch: WatchBatch | None) -> None:
        if batch is None:
            return
        self._log.append(batch)
        self._logged += len(batch.events)
        while self._logged > self._history and len(self._log) > 1:
            self._logged -= len(self._log.popleft().events)
        self._changed.set()
        self._changed = asyncio.Event()

    def _arm(self, lease_id: int, lease: _Lease) -> None:
        loop = asyncio.get_running_loop()
        lease.timer = loop.call_later(max(0.0, lease.due - _now()), self._on_timer, lease_id)

    def _on_timer(self, lease_id: int) -> None:
        lease = self._leases[lease_id]
        if _now() < lease.due:  # renewed since it was armed
            self._arm(lease_id, lease)
        else:
            self._end(lease_id)

    def _end(self, lease_id: int) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None and lease.timer is not None:
            lease.timer.cancel()
        self._tree, batch = self._tree.drop_lease(lease_id)
        self._publish(batch)


def _now() -> float:
    """Seconds that count suspend, as a lease's time must."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
