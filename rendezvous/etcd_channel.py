"""Connections to etcd: at any time one gRPC channel to one endpoint, dropped as soon as it is suspect.

gRPC does not notice a peer that hangs while its kernel still acknowledges, so silence is judged here, by deadlines:
whoever misses an answer drops the link, everything on it moves to the next endpoint, and the link never comes back.
Bytes in, bytes out; what they mean is ``etcd_wire``'s, what to do next is ``etcd.EtcdStore``'s, the only caller.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Protocol, cast

import grpc
import grpc.aio

from . import etcd_wire as wire
from .errors import PermanentError, TransientError
from .etcd_config import Endpoint, EtcdConfig, Tls
from .etcd_status import Remedy, remedy, sentence

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel gets the suspect TCP connection again
    ("grpc.enable_retries", 0),  # a transaction is sent once
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),  # a watch's revision comes whole, however large
    ("grpc.keepalive_time_ms", 10_000),  # etcd drops clients that ping faster than every 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
]
_PAUSE_S = 0.02
_PAUSE_CAP_S = 1.0


class CallFailed(Exception):
    """A call or stream ended without an answer: gRPC's code by name, the server's words, and whose they are."""

    def __init__(self, code: str, words: str, endpoint: str) -> None:
        super().__init__(f"{endpoint}: {words or 'no details'} ({code})")
        self.remedy = remedy(code, words)
        self.refusal = sentence(code, words, endpoint)


class _Call(Protocol):
    """What is used of a grpc.aio call."""

    def cancel(self) -> bool: ...
    async def code(self) -> grpc.StatusCode: ...
    async def details(self) -> str | None: ...


class _UnaryCall(_Call, Awaitable[bytes], Protocol): ...


class _StreamCall(_Call, Protocol):
    async def read(self) -> object: ...


class _Method(Protocol):
    def __call__(
        self, request: bytes, *, timeout: float | None = None, metadata: tuple[tuple[str, str], ...] = ()
    ) -> object: ...


class Stream:
    """A server's stream of messages. Ends with its link."""

    def __init__(self, call: _StreamCall, link: Link) -> None:
        self._call = call
        self._link = link

    async def read(self, timeout_s: float | None = None) -> bytes:
        """Return the next message; CallFailed when there is none in time, or the stream or its link is over."""
        reading: asyncio.Future[object] = asyncio.ensure_future(self._call.read())
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())  # marks it as seen
        try:
            await asyncio.wait({reading, self._link.gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                code, words = ("CANCELLED", "link dropped") if self._link.gone.done() else ("DEADLINE_EXCEEDED", "")
                raise CallFailed(code, words, str(self._link.endpoint))
        finally:
            reading.cancel()
        if not reading.cancelled() and reading.exception() is None and isinstance(message := reading.result(), bytes):
            return message
        # gRPC raises CancelledError for a call cancelled on our side, so the status is asked for instead
        self._call.cancel()
        raise CallFailed((await self._call.code()).name, await self._call.details() or "", str(self._link.endpoint))

    def cancel(self) -> None:
        """Tell the server that nobody listens any more."""
        self._call.cancel()


class Link:
    """One channel to one endpoint. ``gone`` is done once it was dropped."""

    def __init__(self, endpoint: Endpoint, credentials: grpc.ChannelCredentials | None) -> None:
        self.endpoint = endpoint
        self.version = ""
        self.gone: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        target = str(endpoint)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
        self._calls: set[_Call] = set()

    @property
    def connected(self) -> bool:
        """Whether a request sent now would go out at once, so that a later failure is one of a sent request."""
        return not self.gone.done() and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def call(self, method: str, request: bytes, timeout_s: float, token: str = "") -> bytes:
        """Send one request and return the answer; CallFailed when there is none within ``timeout_s``."""
        if self.gone.done():
            raise CallFailed("CANCELLED", "link dropped", str(self.endpoint))
        unary = cast(_Method, self._channel.unary_unary(method))
        call = cast(_UnaryCall, unary(request, timeout=timeout_s, metadata=_metadata(token)))
        self._calls.add(call)
        try:
            code = await call.code()
            if code is grpc.StatusCode.OK:
                return await call
            raise CallFailed(code.name, await call.details() or "", str(self.endpoint))
        finally:
            self._calls.discard(call)
            call.cancel()  # when the caller was cancelled; otherwise it is over and this does nothing

    def open(self, method: str, request: bytes, token: str = "") -> Stream:
        """Send one request whose answers are a stream, to be cut by a member that has lost its leader."""
        stream = cast(_Method, self._channel.unary_stream(method))
        call = cast(_StreamCall, stream(request, metadata=(*_metadata(token), ("hasleader", "true"))))
        return Stream(call, self)

    async def close(self, grace_s: float) -> None:
        """Close the channel once the calls under way are over, at the latest after ``grace_s``."""
        await self._channel.close(grace_s)

    def cancel_calls(self) -> None:
        """End the calls under way; each fails as cancelled."""
        for call in tuple(self._calls):
            call.cancel()


class Links:
    """The link in use, its successors, and the token they share."""

    def __init__(self, config: EtcdConfig) -> None:
        self.config = config
        self.closed = False
        self.token = ""
        self._credentials = None if config.tls is None else _credentials(config.tls)
        self._next = 0  # endpoint of the next link
        self._link: Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._login = asyncio.Lock()
        self._failures = 0  # in a row, without an answer in between
        self._refusals = 0  # by members that say that they will never serve us
        self._served = False  # some member has: a refusal then is that member's trouble, not ours
        self._why = "not tried yet"
        self._open: dict[Link, asyncio.Task[None] | None] = {}  # with the task that closes it, if it was dropped

    async def get(self, deadline: float) -> Link:
        """Return a connected, logged-in link; TransientError when there is none by ``deadline`` (loop time)."""
        loop = asyncio.get_running_loop()
        while not self.closed:
            link = self._link
            if link is None:
                if self._connecting is None:
                    self._connecting = loop.create_task(self._connect())
                    self._connecting.add_done_callback(self._connected)
                connecting = self._connecting
                await asyncio.wait({connecting}, timeout=max(0.0, min(deadline - loop.time(), 3600.0)))
                if connecting.done() and not connecting.cancelled():
                    connecting.result()
            elif not link.connected:
                self.drop(link, "connection lost")
            elif not self.config.username or self.token:
                return link
            else:
                await self._log_in(link, deadline)
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
        link.gone.set_result(None)
        self._why = why
        self._failures += 1
        self._open[link] = task = asyncio.get_running_loop().create_task(link.close(self.config.call_timeout_s))
        task.add_done_callback(lambda _: self._open.pop(link, None))
        if self._link is link:
            self._link = None

    async def close(self) -> None:
        """Drop everything and wait until it is gone."""
        self.closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        for link in tuple(self._open):
            link.cancel_calls()
            self.drop(link, "client closed")
        closing = [task for task in self._open.values() if task is not None]
        if closing:
            await asyncio.wait(closing)

    async def _connect(self) -> None:
        """Make one try at the next endpoint. Status is the probe: it says why it failed, and that this is an etcd."""
        if self._failures > 1:  # the first loss is answered at once
            await asyncio.sleep(min(_PAUSE_CAP_S, _PAUSE_S * 2 ** min(self._failures, 8)) * random.uniform(0.5, 1.0))
        link = Link(self.config.endpoints[self._next % len(self.config.endpoints)], self._credentials)
        self._next += 1
        self._open[link] = None
        try:
            link.version = wire.status_reply(await link.call(wire.STATUS, b"", self.config.call_timeout_s))
        except CallFailed as failed:
            self.drop(link, str(failed))
            if failed.remedy is Remedy.REFUSE:
                self._refusals += 1
                if not self._served and self._refusals >= len(self.config.endpoints):
                    raise PermanentError(failed.refusal) from failed
            return
        except asyncio.CancelledError:
            self.drop(link, "client closed")
            raise
        self._link = link
        self._served = True

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # marks it as seen: a caller that still waits raises it

    async def _log_in(self, link: Link, deadline: float) -> None:
        async with self._login:
            if self.token:  # another call was first
                return
            left = deadline - asyncio.get_running_loop().time()
            request = wire.authenticate_request(self.config.username, self.config.password)
            timeout_s = max(0.0, min(left, self.config.call_timeout_s))
            try:
                self.token = wire.authenticate_reply(await link.call(wire.AUTHENTICATE, request, timeout_s))
            except CallFailed as failed:
                self.drop(link, str(failed))
                if failed.remedy is Remedy.REFUSE:
                    raise PermanentError(failed.refusal) from failed

    def _names(self) -> str:
        return ", ".join(str(endpoint) for endpoint in self.config.endpoints)


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    def read(path: str | None) -> bytes | None:
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise PermanentError(f"TLS for etcd: cannot read {path}: {error.strerror}") from error

    return grpc.ssl_channel_credentials(read(tls.ca), read(tls.key), read(tls.cert))
