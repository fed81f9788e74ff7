"""A second look at an address where no etcd answers: who is there instead, in words. Blocking, and short.

gRPC reports a refused certificate, a silent host and a stranger in nearly the same words, and in others with each of
its versions. So this asks again, with a plain socket and the standard library's TLS, which is in ``etcd_probe_tls``.
Only after a failure; called by ``etcd_contact``, beside the loop.
"""

from __future__ import annotations

import json
import socket
import time
from typing import NamedTuple, cast

from .etcd_config import Endpoint

REQUEST = b"GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n"
CONNECT_S = 2.0
ANSWER_S = 0.7
BANNER_S = 0.3  # who speaks first does so by then
_MOST = 16_384
_SHOWN = 40  # bytes of a stranger's words
# what torch's TCPStore is greeted with: validate, its magic number; ping, a number that comes back
_NUMBER = b"what"
_GREETING = b"\x00" + (0x3C85F7CE).to_bytes(4, "little") + b"\x0d" + _NUMBER


class Seen(NamedTuple):
    """What is there, to be read after the address. ``final``: waiting will not make an etcd of it."""

    words: str
    final: bool


SILENT = Seen("accepts connections and stays silent: it hangs, or is no etcd", False)
CLOSES = Seen("accepts connections and closes them at once: no etcd is there yet, or it is something else", False)
SPEAKS_TLS = Seen("speaks TLS: turn it on with cacert=FILE in --rdzv-conf", True)
TCPSTORE = Seen("is the store of a torchrun job (torch's TCPStore) and no etcd: choose another address or port", True)


class Site:
    """An address, and until when it may be asked."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self.endpoint = endpoint
        self._until = time.monotonic() + timeout_s

    def connect(self) -> socket.socket:
        """Return a new connection; OSError when there is none."""
        return socket.create_connection((self.endpoint.host, self.endpoint.port), self.left_s(CONNECT_S))

    def left_s(self, wish_s: float) -> float:
        """Return ``wish_s``, or what is left of the time."""
        return max(0.01, min(wish_s, self._until - time.monotonic()))

    def read(self, conn: socket.socket, wish_s: float) -> bytes | None:
        """Return what comes until the other side closes or pauses; b"" when it only closed, None when nothing came."""
        raw = None
        while raw is None or len(raw) < _MOST:
            conn.settimeout(self.left_s(wish_s))
            try:
                more = conn.recv(4096)
            except TimeoutError:
                return raw
            raw = (raw or b"") + more
            if not more:
                break
        return raw


def look(endpoint: Endpoint, timeout_s: float) -> Seen:
    """Return what answers at ``endpoint``. Takes at most ``timeout_s``, and as long as the name server takes."""
    try:
        return look_plainly(Site(endpoint, timeout_s))
    except (OSError, ValueError) as error:
        return unreachable(error)


def unreachable(error: OSError | ValueError) -> Seen:
    """Say why there is no connection."""
    match error:
        case ValueError():  # no name server takes it
            return Seen("is not an address: check how it is written", True)
        case socket.gaierror():
            return Seen(f"is not a known name ({error.strerror})", False)
        case ConnectionRefusedError():
            return Seen("refuses connections: nothing listens on that port", False)
        case TimeoutError():
            return Seen("does not answer: the host is down, or a firewall drops what is sent to it", False)
        case _:
            return Seen(f"cannot be reached: {error.strerror or error}", False)


def look_plainly(site: Site, without: Seen | None = None) -> Seen:
    """Look without TLS; ``without`` is what to say of an etcd that answers so. OSError: there is no connection."""
    with site.connect() as conn:
        answer = _asked(site, conn, b"", BANNER_S)
        if answer:
            return _stranger(answer)
        if answer is None:
            answer = _asked(site, conn, REQUEST, ANSWER_S)
    if answer and answer.startswith(b"HTTP/"):
        return http(answer, without)
    with site.connect() as conn:
        if _asked(site, conn, _GREETING, ANSWER_S) == _NUMBER:
            return TCPSTORE
    if without is None:
        from .etcd_probe_tls import speaks_tls

        if speaks_tls(site):
            return SPEAKS_TLS
    if answer is None:
        return SILENT
    return _stranger(answer) if answer else CLOSES


def http(answer: bytes, without: Seen | None = None) -> Seen:
    """Say which HTTP server answers so to ``REQUEST``."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ")[1:2]
    version = _etcd_version(body)
    if version:
        return without or Seen(
            f"answers as etcd {version} over HTTP/1, but not over gRPC: it has only just started,"
            " or a proxy in between does not pass HTTP/2 on",
            False,
        )
    if b"https" in body.lower() and status == [b"400"]:
        return SPEAKS_TLS
    if status and status[0].startswith(b"5"):
        return Seen("is an HTTP server that is no etcd, and has nobody behind it now", False)
    return Seen("is an HTTP server that is no etcd: check the address and port", True)


# An etcd with --listen-client-http-urls begins so, and may only be slow.
SPEAKS_HTTP2 = Seen("speaks gRPC or HTTP/2, and has not answered as an etcd: check the address and port", False)


def _asked(site: Site, conn: socket.socket, question: bytes, wish_s: float) -> bytes | None:
    try:
        conn.sendall(question)
        return site.read(conn, wish_s)
    except OSError:
        return b""


def _stranger(words: bytes) -> Seen:
    if words.startswith(b"SSH-"):
        return Seen("is an ssh server: check the port", True)
    if words.startswith(b"\x15\x03"):  # a TLS alert
        return SPEAKS_TLS
    if words[3:4] == b"\x04":  # a frame of HTTP/2: settings
        return SPEAKS_HTTP2
    return Seen(f"is no etcd, it says {ascii(words[:_SHOWN])[1:]}: check the address and port", True)


def _etcd_version(body: bytes) -> str:
    try:
        said: object = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    version = cast(dict[str, object], said).get("etcdserver") if isinstance(said, dict) else None
    return version[:_SHOWN] if isinstance(version, str) and version.isprintable() else ""
