"""Which connection to etcd is used: at any time one, to one endpoint, dropped as soon as it is suspect.

Whoever misses an answer drops the link; everything on it moves to the next endpoint, and it never comes back. Logs in,
and keeps what is known of each endpoint. What to do with an answer is ``etcd.EtcdStore``'s; ``etcd_contact`` asks why.
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import grpc

from . import etcd_wire as wire
from .errors import PermanentError, TransientError
from .etcd_aside import aside
from .etcd_config import Endpoint, EtcdConfig
from .etcd_link import CallFailed, Link, credentials
from .etcd_status import Remedy
from .etcd_version import refusal

PATIENCE = 3  # time of a repeatable call, in deadlines of one try: two silent members of three are outlived
_TRIPS = 4  # deadlines until a new link must have answered: two for TLS, one for HTTP/2, one for the answer
_PAUSE_S = 0.02
_PAUSE_CAP_S = 1.0


class Trouble(NamedTuple):
    """Why an endpoint is not in use. ``final``: waiting does not help; ``foreign``: it is of another cluster."""

    words: str
    final: bool
    foreign: bool = False


class Links:
    """The link in use, its successors, and the token they share."""

    def __init__(self, config: EtcdConfig) -> None:
        self.config = config
        self.closed = False
        self.token = ""
        self.troubles: dict[Endpoint, Trouble] = {}  # of the endpoints whose last try failed
        self.versions: dict[Endpoint, str] = {}
        self.link: Link | None = None
        self._credentials = None if config.tls is None else credentials(config.tls)
        self._next = 0  # endpoint of the next link
        self._preparing: asyncio.Task[None] | None = None
        self._failures = 0  # in a row, without an answer in between
        self._home: tuple[int, Endpoint] | None = None  # the cluster that serves us, and by whom it is known
        self._settled = False
        self._why = "not tried yet"
        self._open: dict[Link, asyncio.Task[None] | None] = {}  # with the task that closes it, if it was dropped

    async def get(self, deadline: float) -> Link:
        """Return a connected, logged-in link; TransientError when there is none by ``deadline`` (loop time)."""
        loop = asyncio.get_running_loop()
        while not self.closed:
            if self.link is not None and not self.link.connected:
                self.drop(self.link, f"{self.link.endpoint}: connection lost")
            if self.link is not None and (self.token or not self.config.username):
                return self.link
            if self._preparing is None:
                self._preparing = loop.create_task(self._prepare())
                self._preparing.add_done_callback(self._prepared)
            preparing = self._preparing
            await asyncio.wait({preparing}, timeout=max(0.0, min(deadline - loop.time(), 3600.0)))
            if preparing.done() and not preparing.cancelled():
                preparing.result()
            if loop.time() >= deadline:
                raise TransientError(f"no answer from etcd at {self._names()} in time; last: {self._why}")
        raise TransientError("the etcd client is closed")

    def answered(self) -> None:
        """Note that the link in use works: the next loss is answered without a pause."""
        self._failures = 0

    def drop(self, link: Link, why: str) -> None:
        """Give ``link`` up for all its users. Its unary calls run out by their own deadlines, its streams end now."""
        if link.gone.done():
            return
        self._why = why
        self._failures += 1
        self._shut(link)
        if self.link is link:
            self.link = None

    def settle(self) -> None:
        """Stay with the cluster that serves now: what a run has, it has there. Until then the next one does as well."""
        self._settled = True

    async def survey(self, timeout_s: float) -> None:
        """Try the endpoints that are not in use, once, so that ``troubles`` and ``versions`` speak of all of them."""
        used = None if self.link is None else self.link.endpoint
        others = [endpoint for endpoint in self.config.endpoints if endpoint != used]
        tries = {asyncio.ensure_future(self._try(endpoint)): endpoint for endpoint in others}
        if not tries:
            return
        done, late = await asyncio.wait(tries, timeout=timeout_s)
        for task in late:
            self.troubles[tries[task]] = Trouble("no answer yet", False)
        await self._spare(done | late)

    async def close(self) -> None:
        """Drop everything and wait until it is gone."""
        self.closed = True
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait({self._preparing})
        for link in tuple(self._open):
            link.cancel_calls()
            self.drop(link, "client closed")
        closing = [task for task in self._open.values() if task is not None]
        if closing:
            await asyncio.wait(closing)

    async def _prepare(self) -> None:
        """Try each endpoint once, if there is no link, and log in if there is no token."""
        if self._failures > 1:  # the first loss is answered at once
            await asyncio.sleep(min(_PAUSE_CAP_S, _PAUSE_S * 2 ** min(self._failures, 8)) * random.uniform(0.5, 1.0))
        if self.link is None:
            await self._read_again()
            self.link = await self._connect()
        if self.link is None:
            self._failures += 1
            self._why = "; ".join(trouble.words for trouble in self.troubles.values())
            # once one has served, a refusal is that member's trouble, and may pass
            if all(trouble.final and (trouble.foreign or self._home is None) for trouble in self.troubles.values()):
                raise PermanentError(self._why)
            return
        if not self._settled:
            self._home = (self.link.status.cluster, self.link.endpoint)
        if self.config.username and not self.token:
            await self._log_in(self.link)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if not task.cancelled():
            task.exception()  # marks it as seen: a caller that still waits raises it

    async def _read_again(self) -> None:
        """Take up certificates that were renewed since; those that cannot be read leave the old ones in use."""
        tls = self.config.tls
        if tls is None or self._home is None:
            return

        def read() -> grpc.ChannelCredentials | None:
            try:
                return credentials(tls)
            except PermanentError:
                return None

        self._credentials = await aside(read, self.config.call_timeout_s) or self._credentials

    async def _connect(self) -> Link | None:
        """Try each endpoint once; the next one as soon as one fails, or is silent for the deadline of a call."""
        endpoints = self.config.endpoints
        left = [endpoints[(self._next + i) % len(endpoints)] for i in range(len(endpoints))]
        tries: set[asyncio.Task[Link | None]] = set()
        try:
            while left or tries:
                if left:
                    tries.add(asyncio.ensure_future(self._try(left.pop(0))))
                timeout_s = self.config.call_timeout_s if left else None
                done, _ = await asyncio.wait(tries, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tries.discard(task)
                    if (link := task.result()) is not None:
                        tries |= done - {task}
                        self._next = endpoints.index(link.endpoint) + 1
                        return link
            return None
        finally:
            await self._spare(tries)

    async def _try(self, endpoint: Endpoint) -> Link | None:
        """Return a link to ``endpoint``, or note its trouble. Status is the probe: it says that this is an etcd."""
        link = Link(endpoint, self._credentials)
        self._open[link] = None
        kept = False
        try:
            raw = await link.call(wire.STATUS, b"", _TRIPS * self.config.call_timeout_s)
            link.status = wire.status_reply(raw)
            trouble = self._objection(endpoint, link.status)
            kept = trouble is None
        except CallFailed as failed:
            refused = failed.remedy is Remedy.REFUSE
            trouble = Trouble(failed.refusal if refused else str(failed), refused)
        except PermanentError as error:
            trouble = Trouble(f"{endpoint}: {error}", True)
        finally:
            if not kept:
                self._shut(link)
        if trouble is not None:
            self.troubles[endpoint] = trouble
            return None
        self.troubles.pop(endpoint, None)
        self.versions[endpoint] = link.status.version
        return link

    def _objection(self, endpoint: Endpoint, status: wire.MemberStatus) -> Trouble | None:
        if (words := refusal(status.version)) is not None:
            return Trouble(f"{endpoint} {words}", True)
        if self._home is None or not self._settled:
            return None
        cluster, first = self._home
        if status.cluster == cluster:
            return None
        who = "was set up anew" if first == endpoint else f"is of another cluster than {first}"
        return Trouble(f"etcd at {endpoint} {who}: a run can live in one cluster only; check the endpoints", True, True)

    async def _spare(self, tries: set[asyncio.Task[Link | None]]) -> None:
        """End tries that are not needed, and shut what they opened."""
        for task in tries:
            task.cancel()
        if tries:
            await asyncio.wait(tries)
        for task in tries:
            if not task.cancelled() and (link := task.result()) is not None:
                self._shut(link)

    async def _log_in(self, link: Link) -> None:
        request = wire.authenticate_request(self.config.username, self.config.password)
        try:  # a server hashes for some 60 ms each, and all agents may come at once
            reply = await link.call(wire.AUTHENTICATE, request, PATIENCE * self.config.call_timeout_s)
            self.token = wire.authenticate_reply(reply)
        except CallFailed as failed:
            self.drop(link, str(failed))
            if failed.remedy is Remedy.REFUSE:
                raise PermanentError(failed.refusal) from failed

    def _shut(self, link: Link) -> None:
        if not link.gone.done():
            link.gone.set_result(None)
            closing = asyncio.get_running_loop().create_task(link.close(self.config.call_timeout_s))
            self._open[link] = closing
            closing.add_done_callback(lambda _: self._open.pop(link, None))

    def _names(self) -> str:
        return ", ".join(str(endpoint) for endpoint in self.config.endpoints)
