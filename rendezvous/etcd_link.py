"""One gRPC channel to one etcd member: bytes in, bytes out, and what it means when none come.

gRPC does not notice a peer that hangs while its kernel still acknowledges, so every call has a deadline here. What the
bytes mean is ``etcd_wire``'s; which link is used, and when it is given up, is decided in ``etcd_channel``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, cast

import grpc
import grpc.aio

from . import etcd_wire as wire
from .errors import PermanentError
from .etcd_config import Endpoint, Tls
from .etcd_status import brief, printable, remedy, sentence

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel gets the suspect TCP connection again
    ("grpc.enable_retries", 0),  # a transaction is sent once
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),  # a watch's revision comes whole, however large
    ("grpc.keepalive_time_ms", 10_000),  # etcd drops clients that ping faster than every 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
]


class CallFailed(Exception):
    """A call or stream ended without an answer: gRPC's code by name, the server's words, and whose they are."""

    def __init__(self, code: str, words: str, endpoint: Endpoint, token: str = "") -> None:
        words = printable(words)
        super().__init__(f"{endpoint}: {brief(code, words)}")
        self.late = code == "DEADLINE_EXCEEDED"
        self.remedy = remedy(code, words, bool(token))
        self.refusal = sentence(code, words, str(endpoint))


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

    def __init__(self, call: _StreamCall, link: Link, token: str) -> None:
        self._call = call
        self._link = link
        self._token = token

    async def read(self, timeout_s: float | None = None) -> bytes:
        """Return the next message; CallFailed when there is none in time, or the stream or its link is over."""
        reading: asyncio.Future[object] = asyncio.ensure_future(self._call.read())
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())  # marks it as seen
        try:
            await asyncio.wait({reading, self._link.gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                code, words = ("CANCELLED", "link dropped") if self._link.gone.done() else ("DEADLINE_EXCEEDED", "")
                raise CallFailed(code, words, self._link.endpoint)
        finally:
            reading.cancel()
        if not reading.cancelled() and reading.exception() is None and isinstance(message := reading.result(), bytes):
            return message
        # gRPC raises CancelledError for a call cancelled on our side, so the status is asked for instead
        self._call.cancel()
        code, words = (await self._call.code()).name, await self._call.details() or ""
        raise CallFailed(code, words, self._link.endpoint, self._token)

    def cancel(self) -> None:
        """Tell the server that nobody listens any more."""
        self._call.cancel()


class Link:
    """One channel to one endpoint. ``gone`` is done once it was dropped."""

    def __init__(self, endpoint: Endpoint, credentials: grpc.ChannelCredentials | None) -> None:
        self.endpoint = endpoint
        self.status = wire.MemberStatus("", 0, ())
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
            raise CallFailed("CANCELLED", "link dropped", self.endpoint)
        unary = cast(_Method, self._channel.unary_unary(method))
        call = cast(_UnaryCall, unary(request, timeout=timeout_s, metadata=_metadata(token)))
        self._calls.add(call)
        try:
            code = await call.code()
            if code is grpc.StatusCode.OK:
                return await call
            raise CallFailed(code.name, await call.details() or "", self.endpoint, token)
        finally:
            self._calls.discard(call)
            call.cancel()  # when the caller was cancelled; otherwise it is over and this does nothing

    def open(self, method: str, request: bytes, token: str = "") -> Stream:
        """Send one request whose answers are a stream, to be cut by a member that has lost its leader."""
        stream = cast(_Method, self._channel.unary_stream(method))
        call = cast(_StreamCall, stream(request, metadata=(*_metadata(token), ("hasleader", "true"))))
        return Stream(call, self, token)

    async def close(self, grace_s: float) -> None:
        """Close the channel once the calls under way are over, at the latest after ``grace_s``."""
        await self._channel.close(grace_s)

    def cancel_calls(self) -> None:
        """End the calls under way; each fails as cancelled."""
        for call in tuple(self._calls):
            call.cancel()


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()


def credentials(tls: Tls) -> grpc.ChannelCredentials:
    """Read the files; PermanentError names the one that cannot be read."""

    def read(path: str | None) -> bytes | None:
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise PermanentError(f"TLS for etcd: cannot read {path}: {error.strerror}") from error

    return grpc.ssl_channel_credentials(read(tls.ca), read(tls.key), read(tls.cert))
