"""Keeping one lease alive, and knowing until when this node's ranks may live. An adapter; runs in the agent's loop.

Keepalives are sent by the very loop that handles ``job`` events, on purpose: a loop that hangs must lose its lease.
The deadline counts from when the request that was acknowledged was *sent* (etcd renews after that), on CLOCK_BOOTTIME,
which goes on while the machine is suspended. Where ranks are held there is no deadline, and no silence of the store
ends a lease: only its word does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import NamedTuple

from ..rendezvous.errors import LeaseNotFound, StoreError
from ..rendezvous.records import Incarnation, StoreLoss
from ..rendezvous.store import Store
from .linux import boottime
from .spec import DRIFT, KEEPALIVES_PER_TTL, MARGIN_S, Backend, JobSpec


class Timing(NamedTuple):
    """Derived times of one lease, in seconds; checked against each other in ``spec.JobSpec``."""

    ttl_s: int
    kill_bound_s: float
    forever: bool = False  # the store is in this process: nothing can be cut off, so nothing is renewed or fenced
    hold: bool = False  # ranks outlive the lease while the store is silent: ``--on-store-loss=hold``

    @classmethod
    def of(cls, spec: JobSpec) -> Timing:
        """Return the times of a job's leases."""
        forever, hold = spec.backend is Backend.MEMORY, spec.store_loss is StoreLoss.HOLD
        return cls(spec.lease_ttl_s, spec.kill_bound_s, forever, hold)

    @property
    def keepalive_s(self) -> float:
        return self.ttl_s / KEEPALIVES_PER_TTL

    @property
    def try_s(self) -> float:
        """Deadline of one keepalive: 2 s of a TTL of 15 s."""
        return self.ttl_s * 2 / 15

    @property
    def gone_s(self) -> float:
        """After so long without a renewal the lease counts as lost, even if nobody can be asked: our ranks are dead."""
        return self.ttl_s * (1 + DRIFT) + GRACE_S

    @property
    def fence_s(self) -> float:
        """From the sending of the last acknowledged renewal until SIGKILL must begin, or until the store is away."""
        return self.ttl_s * (1 - DRIFT) - self.kill_bound_s - MARGIN_S

    def deadline(self, sent_s: float) -> float:
        """Return when SIGKILL must begin, given when the last acknowledged renewal was sent."""
        return float("inf") if self.forever or self.hold else sent_s + self.fence_s


GRACE_S = 1.0  # a store that answers at once again may have kept the lease

Renewal = Coroutine[object, object, None]


class Hearing(NamedTuple):
    """Who is told what becomes of a lease."""

    renewed: Callable[[Incarnation, float], None]  # with the new deadline
    trouble: Callable[[str], None]
    away: Callable[[float, bool], None]  # under hold: since when the store is silent, and whether it still is


class Lease:
    """One incarnation's lease: granted once, renewed until it is lost or given up."""

    def __init__(self, store: Store, timing: Timing, hearing: Hearing) -> None:
        self._store = store
        self._timing = timing
        self._tell = hearing
        self._task: asyncio.Task[None] | None = None
        self._nap: asyncio.Future[None] | None = None  # until the next renewal
        self.inc = Incarnation(0)

    async def grant(
        self, lost: Callable[[Incarnation], None], guarded: Callable[[Renewal], Coroutine[object, object, None]]
    ) -> Incarnation:
        """Get a new lease under an id of our own, report its deadline and begin to renew it; TransientError if not.

        ``guarded`` wraps the renewing task: should it fail, the agent must end and not live on without renewals.
        """
        self.stop()
        inc = Incarnation((int.from_bytes(os.urandom(8), "big") >> 2) + 1)  # 62 bits: etcd takes a positive int64
        sent = boottime()
        await self._store.grant(self._timing.ttl_s, inc)
        self.inc = inc
        self._tell.renewed(inc, self._timing.deadline(sent))
        if not self._timing.forever:
            self._task = asyncio.get_running_loop().create_task(guarded(self._renew(inc, sent, lost)))
        return inc

    async def _renew(self, inc: Incarnation, sent: float, lost: Callable[[Incarnation], None]) -> None:
        away = False
        while True:
            await self._pause(max(self._timing.try_s / 4, sent + self._timing.keepalive_s - boottime()))
            trying = boottime()
            try:
                await self._store.keepalive(inc, self._timing.try_s)
            except LeaseNotFound:
                if away:
                    self._tell.away(sent, False)
                lost(inc)
                return
            except StoreError as error:  # refused or unanswered: while it lasts the fence comes nearer
                if boottime() > sent + self._timing.gone_s and not self._timing.hold:
                    lost(inc)
                    return
                self._tell.trouble(f"the lease was not renewed: {error}")
                if self._timing.hold and not away and boottime() > sent + self._timing.fence_s:
                    away = True
                    self._tell.away(sent, True)
                continue
            if away:
                away = False
                self._tell.away(sent, False)
            sent = trying
            self._tell.renewed(inc, self._timing.deadline(sent))

    async def _pause(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._nap = loop.create_future()
        timer = loop.call_later(pause_s, self.hurry)
        try:
            await self._nap
        finally:
            timer.cancel()

    def hurry(self) -> None:
        """Renew now, unless a renewal is under way: the guardian starts nothing after a fence until there was one."""
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    def stop(self) -> None:
        """Send no more keepalives; the lease expires by itself unless it is revoked."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.inc = Incarnation(0)
