"""Stores that one cannot meet in: silent, slow, full, locked, expired, or no etcd at all. Not a test module.

``Stores`` starts each kind when a row first asks for it, once for all rows, and ends them all; it may be asked from
several threads. Real etcds but for the ones that no etcd will play: an old one, and other people's servers.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import TypeVar

import grpc
from etcd_server import EtcdServer, free_ports

T = TypeVar("T")
Answer = Callable[[bytes], bytes]
PASSWORD = f"secret-{secrets.token_hex(8)}"  # must not be found in anything that any row's command wrote
OLD = b"\x0a\x00\x12\x063.3.27"  # a status reply: an empty header, and the version


class Stores:
    """All of them, by what is wrong with them; each method returns ``host:port``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._lock = threading.Lock()
        self._made: dict[str, object] = {}
        self._closing = contextlib.ExitStack()

    def close(self) -> None:
        """End all that were started."""
        self._closing.close()

    def nobody(self) -> str:
        """Nothing listens there."""
        return f"127.0.0.1:{free_ports(1)[0]}"

    def silent(self) -> str:
        """Accepts connections and never says a word, as a hung server does, or torch's TCPStore when it is asked."""
        return self._once("silent", lambda: self._listen(keep=True))

    def closing(self) -> str:
        """Accepts connections and closes them."""
        return self._once("closing", self._listen)

    def web(self) -> str:
        """Somebody's web server."""
        words = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        return self._once("web", lambda: self._listen(lambda asked: words))

    def ssh(self) -> str:
        """Speaks first, as an ssh server."""
        return self._once("ssh", lambda: self._listen(hello=b"SSH-2.0-OpenSSH_9.2\r\n", keep=True))

    def tcpstore(self) -> str:
        """Answers as torch's TCPStore: hangs up on strangers, and gives the number of a ping back."""
        magic = b"\x00" + (0x3C85F7CE).to_bytes(4, "little") + b"\x0d"
        answer = lambda asked: asked[len(magic) :] if asked.startswith(magic) else b""  # noqa: E731
        return self._once("tcpstore", lambda: self._listen(answer))

    def hole(self) -> str:
        """A black hole: its queue of connections is full, and packets to it are dropped, as by a firewall."""

        def dig() -> str:
            server = self._closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            for _ in range(2):  # as many as a queue of length 0 takes
                client = self._closing.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(server.getsockname())
            return f"127.0.0.1:{server.getsockname()[1]}"

        return self._once("hole", dig)

    def slow(self, etcd: EtcdServer, delay_s: float) -> str:
        """The row's etcd behind a line on which everything takes ``delay_s`` in each direction."""

        def lay() -> str:
            line = SlowLine(etcd.port, delay_s)
            self._closing.callback(line.close)
            return f"127.0.0.1:{line.port}"

        return self._once(f"slow {delay_s}", lay)

    def old(self) -> str:
        """Says that it is etcd 3.3."""
        return self._once("old", lambda: self._grpc({"/etcdserverpb.Maintenance/Status": OLD}))

    def foreign(self) -> str:
        """Speaks gRPC, and knows none of etcd's calls."""
        return self._once("foreign", lambda: self._grpc({}))

    def full(self) -> str:
        """Its quota is used up."""

        def fill() -> str:
            server = self._etcd("full", extra=("--quota-backend-bytes", "300000"))
            with contextlib.suppress(OSError):  # its answer when there is no more room
                for i in range(100):
                    key = base64.b64encode(b"filler/%d" % i).decode()
                    server.post("kv/put", {"key": key, "value": base64.b64encode(bytes(30_000)).decode()})
            return f"127.0.0.1:{server.port}"

        return self._once("full", fill)

    def locked(self) -> str:
        """Has authentication on: users root and worker with PASSWORD, and stranger, who may do nothing."""

        def lock() -> str:
            server = self._etcd("locked")
            for user in ("root", "worker", "stranger"):
                server.post("auth/user/add", {"name": user, "password": PASSWORD})
            server.post("auth/role/add", {"name": "root"})
            for user in ("root", "worker"):
                server.post("auth/user/grant", {"user": user, "role": "root"})
            server.post("auth/enable", {})
            return f"127.0.0.1:{server.port}"

        return self._once("locked", lock)

    def certificates(self) -> Path:
        """Return a folder with the roots ca and stranger, and what ca signed: server, expired, elsewhere."""

        def make() -> Path:
            folder = self._folder / "certificates"
            folder.mkdir()
            make_certificates(folder)
            return folder

        return self._once("certificates", make)

    def tls(self, certificate: str, *extra: str) -> str:
        """Speaks TLS under one of the certificates."""
        folder = self.certificates()

        def start() -> str:
            files = ("--cert-file", str(folder / f"{certificate}.pem"), "--key-file", str(folder / "server.key"))
            server = self._etcd(certificate, *extra, scheme="https", extra=(*files, *extra))
            return f"127.0.0.1:{server.port}"

        return self._once(" ".join(("tls", certificate, *extra)), start)

    def client_certificates(self) -> str:
        """Speaks TLS, with those alone who have a certificate of its root's."""
        return self.tls("server", "--client-cert-auth", "--trusted-ca-file", str(self.certificates() / "ca.pem"))

    def _once(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]  # type: ignore[return-value]

    def _etcd(self, *name: str, scheme: str = "http", extra: tuple[str, ...] = ()) -> EtcdServer:
        folder = self._folder / "-".join(part.strip("-").replace("/", "_") for part in name)
        server = EtcdServer(folder, durable=False, scheme=scheme, extra=extra)
        self._closing.callback(server.close)
        if scheme == "http":
            server.start()
        else:
            server.spawn()  # who connects before it listens tries again
        return server

    def _listen(self, answer: Answer = lambda asked: b"", hello: bytes = b"", keep: bool = False) -> str:
        listener = Listener(answer, hello, keep)
        self._closing.callback(listener.close)
        return f"127.0.0.1:{listener.port}"

    def _grpc(self, answers: dict[str, bytes]) -> str:
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[_Answers(answers)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self._closing.callback(lambda: server.stop(None).wait())
        return f"127.0.0.1:{port}"


@contextlib.contextmanager
def tiny_disk(folder: Path) -> Iterator[None]:
    """Put a file system of 128 KiB and a few files at ``folder``; needs root."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,nr_inodes=8,mode=0700", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class _Answers(grpc.GenericRpcHandler):
    """The same answer to each call of a name; other calls are not known."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = answers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        answer = self._answers.get(handler_call_details.method)
        return None if answer is None else grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


class _Served:
    """A port of the loopback, served by a thread of its own."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._over, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all and wait for the thread."""
        self._end.close()
        self._thread.join(10)
        for one in (self._server, self._over):
            one.close()

    def _run(self) -> None:
        raise NotImplementedError


class Listener(_Served):
    """Says ``hello``, and ``answer`` to the first words; then closes the connection. Or keeps it and says no more."""

    def __init__(self, answer: Answer = lambda asked: b"", hello: bytes = b"", keep: bool = False) -> None:
        self._answer = answer
        self._hello = hello
        self._keep = keep
        super().__init__()

    def _run(self) -> None:
        with contextlib.ExitStack() as kept:
            while self._over not in select.select([self._server, self._over], [], [])[0]:
                client = kept.enter_context(self._server.accept()[0])
                client.settimeout(1.0)
                with contextlib.suppress(OSError):
                    client.sendall(self._hello)
                    if not self._keep:
                        client.sendall(self._answer(client.recv(1000)))
                        client.close()


class SlowLine(_Served):
    """Passes bytes on to a port of the loopback, ``delay_s`` after they came."""

    def __init__(self, to: int, delay_s: float) -> None:
        self._to = to
        self._delay_s = delay_s
        super().__init__()

    def _run(self) -> None:
        while self._over not in select.select([self._server, self._over], [], [])[0]:
            client, _ = self._server.accept()
            server = socket.create_connection(("127.0.0.1", self._to))
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        """Carry one direction; what comes within one delay travels together."""
        with contextlib.suppress(OSError, ValueError), source:  # ValueError: the other direction has closed it
            while not self._ended(source) and (data := source.recv(1 << 16)):
                if self._ended(timeout_s=self._delay_s):
                    break
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _ended(self, *waiting_for: socket.socket, timeout_s: float | None = None) -> bool:
        return self._over in select.select([self._over, *waiting_for], [], [], timeout_s)[0]


def make_certificates(at: Path) -> None:
    """Make a root and three certificates of it: in order, expired, and of another host; and a root that signed none."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=at, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for root in ("ca", "stranger"):
        openssl("req", "-x509", *key, "-keyout", f"{root}.key", "-out", f"{root}.pem", "-subj", f"/CN={root}")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=worker")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    here = "IP:127.0.0.1"
    for name, host, days in (("server", here, "30"), ("expired", here, "-1"), ("elsewhere", "DNS:a", "30")):
        (at / "ext").write_text(f"subjectAltName={host}\nextendedKeyUsage=serverAuth,clientAuth\n")
        files = ("-in", "server.csr", "-out", f"{name}.pem", "-days", days)
        openssl("x509", "-req", *files, *signed_by, "-extfile", "ext")
