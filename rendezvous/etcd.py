"""The store on etcd v3, through grpc.aio: every call has a deadline, every watch survives its connection.

What may be repeated is repeated on the next endpoint inside a bounded time; a transaction that writes is sent once.
Bound calls with the time-outs given here, not with a cancellation from outside: only a deadline missed in here marks
the connection as suspect. Called through ``store.Store``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from typing import NoReturn

from . import etcd_wire as wire
from .errors import Compacted, LeaseNotFound, OutcomeUnknown, PermanentError, TransientError
from .etcd_channel import PATIENCE, Links
from .etcd_config import EtcdConfig
from .etcd_link import CallFailed
from .etcd_status import Remedy
from .store import Get, Range, Txn, TxnResult, WatchBatch

_WAIT_S = 0.1
_WAIT_CAP_S = 1.0
_WHOLE = 0.9  # of a call's deadline: who is silent for so long is suspect


class EtcdStore:
    """A ``Store`` on an etcd cluster. Connects with the first call; ``close`` leaves nothing running."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self.links = Links(config)

    async def status(self) -> tuple[str, str]:
        """Return the version of the member in use, and its endpoint."""
        link = await self.links.get(self._deadline())
        return link.status.version, str(link.endpoint)

    async def range(self, key: str, end: str | None = None) -> Range:
        """Read ``key``, or [key, end), linearizably."""
        return wire.range_reply(await self._ask(wire.RANGE, wire.range_request(key, end)))

    async def txn(self, txn: Txn) -> TxnResult:
        """Apply ``txn`` atomically. TransientError: it was not sent; OutcomeUnknown: it was, and no answer came."""
        request = wire.txn_request(txn)
        reads_only = all(isinstance(op, Get) for op in txn.then)
        return wire.txn_reply(await self._ask(wire.TXN, request, once=not reads_only))

    async def grant(self, ttl_s: int, lease_id: int) -> int:
        """Create lease ``lease_id``; a lease that lives already is renewed, with the TTL it has."""
        if lease_id <= 0 or ttl_s <= 0:
            raise ValueError(f"lease {lease_id} of {ttl_s} s: both must be positive")
        try:
            granted_s = wire.grant_reply(await self._ask(wire.GRANT, wire.grant_request(ttl_s, lease_id)))
            self.links.settle()
            return granted_s
        except _LeaseExists:
            return await self.keepalive(lease_id, PATIENCE * self._config.call_timeout_s)

    async def keepalive(self, lease_id: int, timeout_s: float) -> int:
        """Renew once within ``timeout_s``; return the TTL. LeaseNotFound when it is gone.

        The answer belongs to a request sent after this was called: a lease's time counts from before the call.
        """
        # One request on a stream of its own is, on the wire, a unary call: no answer can belong to another request.
        reply = await self._ask(wire.KEEPALIVE, wire.keepalive_request(lease_id), timeout_s)
        ttl_s = wire.keepalive_reply(reply)
        if ttl_s <= 0:
            raise LeaseNotFound(f"lease {lease_id:x} has expired or was revoked")
        return ttl_s

    async def revoke(self, lease_id: int) -> None:
        """Delete the lease and its keys; a lease already gone is no error."""
        try:
            await self._ask(wire.REVOKE, wire.revoke_request(lease_id))
        except LeaseNotFound:
            return

    async def watch(self, key: str, end: str | None, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Yield every event of [key, end) from ``from_revision`` on, across reconnects, none lost or doubled."""
        if from_revision <= 0:
            raise ValueError(
                f"watch of {key!r} from revision {from_revision}: read the range first, watch from its + 1"
            )
        at = from_revision  # moves past delivered events only: a header's revision may be ahead of events still to come
        denied = False
        while True:
            try:
                link = await self.links.get(math.inf)
            except TransientError:
                return  # closed
            token = self.links.token
            stream = link.open(wire.WATCH, wire.watch_request(key, end, at), token)
            try:
                reply = wire.watch_reply(await stream.read(self._config.call_timeout_s))
                if reply.canceled and "permission denied" in reply.reason and token and not denied:
                    denied = True  # old servers say so of a token that has run out, too
                    self._forget(token)
                    continue
                if reply.canceled and not reply.compact_revision:
                    raise CallFailed("FAILED_PRECONDITION", reply.reason, link.endpoint, token)
                self.links.answered()
                denied = False
                while not reply.canceled:
                    events = tuple(event for event in reply.events if event.revision >= at)
                    if events:
                        at = events[-1].revision + 1
                        yield WatchBatch(events)
                    reply = wire.watch_reply(await stream.read())
                if reply.compact_revision:
                    raise Compacted(reply.compact_revision)
                self._forget(token)
                self.links.drop(link, f"{link.endpoint}: watch cancelled: {reply.reason}")
            except CallFailed as failed:
                if failed.remedy is Remedy.REFUSE:
                    raise PermanentError(failed.refusal) from failed
                if failed.remedy is Remedy.LOGIN:
                    self._forget(token)
                if failed.remedy is Remedy.MOVE:
                    self.links.drop(link, str(failed))
                else:
                    await asyncio.sleep(_WAIT_S)
            finally:
                stream.cancel()

    async def close(self) -> None:
        """Close the connections; calls under way fail, watches end."""
        await self.links.close()

    async def _ask(self, method: str, request: bytes, budget_s: float | None = None, *, once: bool = False) -> bytes:
        """Return the answer, repeating the request as far as it is safe to."""
        loop = asyncio.get_running_loop()
        deadline = self._deadline(budget_s)
        logins = 0
        while True:
            link = await self.links.get(deadline)
            token = self.links.token
            timeout_s = self._config.call_timeout_s
            if not once:
                timeout_s = max(0.0, min(timeout_s, deadline - loop.time()))
            try:
                reply = await link.call(method, request, timeout_s, token)
            except CallFailed as failed:
                if failed.remedy is Remedy.MOVE:
                    # a slow connect leaves little of the time: to miss that says nothing against the link
                    if not failed.late or timeout_s > _WHOLE * self._config.call_timeout_s:
                        self.links.drop(link, str(failed))
                    if once:
                        raise OutcomeUnknown(
                            f"a write was sent to etcd, and no answer came; last: {failed}"
                        ) from failed
                elif failed.remedy is Remedy.LOGIN:
                    self._forget(token)
                    if logins:  # a token just given is refused: by a member that lags behind, or for ever
                        await asyncio.sleep(min(_WAIT_CAP_S, _WAIT_S * 2**logins))
                    logins += 1
                elif failed.remedy is Remedy.WAIT:
                    await asyncio.sleep(_WAIT_S)
                else:
                    _give_up(failed)
                if loop.time() >= deadline:
                    raise TransientError(f"no answer from etcd in time; last: {failed}") from failed
            else:
                self.links.answered()
                return reply

    def _deadline(self, budget_s: float | None = None) -> float:
        budget_s = PATIENCE * self._config.call_timeout_s if budget_s is None else budget_s
        return asyncio.get_running_loop().time() + budget_s

    def _forget(self, token: str) -> None:
        if token and self.links.token == token:
            self.links.token = ""


class _LeaseExists(PermanentError):
    """The lease id asked for is in use."""


def _give_up(failed: CallFailed) -> NoReturn:
    if failed.remedy is Remedy.LEASE_GONE:
        raise LeaseNotFound("the lease has expired or was revoked") from failed
    if failed.remedy is Remedy.LEASE_EXISTS:
        raise _LeaseExists(failed.refusal) from failed
    raise PermanentError(failed.refusal) from failed
