"""The first contact with an etcd that is fine, late, refusing, broken, or something else: what is said, and when."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from etcd_access import PASSWORD, PREFIX, Authority, enable_auth, needs_openssl, tls_server
from etcd_server import EtcdCluster, EtcdServer, find_etcds, free_ports

from remuster.rendezvous.errors import PermanentError, StoreError, TransientError
from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_aside import aside
from remuster.rendezvous.etcd_config import Endpoint, EtcdConfig, Tls
from remuster.rendezvous.etcd_contact import Contact, first_contact
from remuster.rendezvous.etcd_probe import look
from remuster.rendezvous.etcd_probe_tls import look_with_tls
from remuster.rendezvous.etcd_version import advice
from remuster.rendezvous.store import Put, Txn

KEY = f"{PREFIX}run/job"


@pytest.fixture
def ends() -> Iterator[contextlib.ExitStack]:
    """Ends what is put on it with the test."""
    with contextlib.ExitStack() as stack:
        yield stack


async def contact(config: EtcdConfig, timeout_s: float = 20.0) -> tuple[Contact, list[str]]:
    """Return the contact, and what was said meanwhile."""
    said: list[str] = []
    store = EtcdStore(config)
    try:
        return await first_contact(store, KEY, timeout_s, said.append), said
    finally:
        await store.close()


async def refusal(config: EtcdConfig, kind: type[StoreError] = PermanentError, timeout_s: float = 20.0) -> str:
    """Return the sentence with which the first contact fails: soon, and saying where."""
    began = time.monotonic()
    with pytest.raises(StoreError) as told:
        await contact(config, timeout_s)
    assert type(told.value) is kind, told.value
    assert time.monotonic() - began < 10.0
    sentence = str(told.value)
    print(sentence)
    assert all(str(endpoint) in sentence for endpoint in config.endpoints)
    assert sentence.isprintable()
    return sentence


def at(*ports: int, **more: str) -> EtcdConfig:
    return EtcdConfig(tuple(Endpoint("127.0.0.1", port) for port in ports), **more)


# --- an etcd ----------------------------------------------------------------------------------------------------------
async def test_an_etcd_that_is_there(etcd: EtcdServer) -> None:
    found, said = await contact(at(etcd.port))
    assert found.version in find_etcds()
    assert found.advice == advice(found.version)
    assert not said


async def test_an_etcd_that_comes_late(tmp_path: Path, binary: str) -> None:
    server = EtcdServer(tmp_path / "e", binary=binary)
    said: list[str] = []
    store = EtcdStore(at(server.port))
    waiting = asyncio.ensure_future(first_contact(store, KEY, 30.0, said.append))
    try:
        end = time.monotonic() + 10.0
        while not said:
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.start)
        await waiting
        assert said == [
            f"waiting for etcd, up to 30 s: 127.0.0.1:{server.port} refuses connections: nothing listens on that port"
        ]
    finally:
        await store.close()
        server.close()


async def test_members_that_are_missing_or_strangers(etcd: EtcdServer) -> None:
    (nobody,) = free_ports(1)
    async with stranger(b"SSH-2.0-OpenSSH_9.2p1\r\n") as ssh:
        for ports in ((nobody, ssh, etcd.port), (etcd.port, nobody, ssh)):
            began = time.monotonic()
            found, said = await contact(at(*ports))
            assert time.monotonic() - began < 5.0
            assert found.version
            assert sorted(said) == sorted(
                [
                    f"going on without 127.0.0.1:{nobody} refuses connections: nothing listens on that port",
                    f"going on without 127.0.0.1:{ssh} is an ssh server: check the port",
                ]
            )


async def test_members_of_two_clusters(tmp_path: Path, etcd: EtcdServer, binary: str) -> None:
    other = EtcdServer(tmp_path / "other", binary=binary)
    try:
        await asyncio.to_thread(other.start)
        for ports in ((etcd.port, other.port), (other.port, etcd.port)):
            assert "is of another cluster than" in await refusal(at(*ports))
    finally:
        other.close()


@pytest.mark.parametrize("settled", [True, False])
async def test_an_etcd_set_up_anew(tmp_path: Path, etcd: EtcdServer, binary: str, settled: bool) -> None:
    """Who has a lease stays with its cluster; who has not may wait for the next one."""
    store = EtcdStore(EtcdConfig((etcd.endpoint,), call_timeout_s=0.5))
    await store.range(KEY)
    if settled:
        await store.grant(60, 7)
    etcd.kill()
    again = EtcdServer(tmp_path / "again", etcd.port, extra=("--initial-cluster-token", "again"), binary=binary)
    try:
        await asyncio.to_thread(again.start)
        end = time.monotonic() + 10.0
        error: StoreError | None = TransientError()
        while isinstance(error, TransientError):
            assert time.monotonic() < end
            error = await failure(store)
        assert (error is not None) == settled
        assert not settled or "was set up anew" in str(error)
    finally:
        await store.close()
        again.close()


async def failure(store: EtcdStore) -> StoreError | None:
    try:
        await store.range(KEY)
    except StoreError as error:
        return error
    return None


async def test_a_cluster_without_a_majority(cluster: EtcdCluster) -> None:
    first, second, third = cluster.members
    second.kill()
    third.kill()
    end = time.monotonic() + 10.0
    while first.post("maintenance/status", {}).get("leader", "0") != "0":
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    sentence = await refusal(at(first.port), TransientError, 5.0)
    assert "is an etcd, but does not answer a read (etcdserver: no leader)" in sentence
    assert "no answer from etcd within 5 s" in sentence
    assert "raise connect_timeout" in sentence


@pytest.mark.parametrize(("alarm", "words"), [(1, "is out of space"), (2, "alarm CORRUPT")])
async def test_an_alarm(etcd: EtcdServer, alarm: int, words: str) -> None:
    store = EtcdStore(at(etcd.port))
    await store.range(KEY)
    await asyncio.to_thread(etcd.post, "maintenance/alarm", {"action": 1, "alarm": alarm})
    assert words in await refusal(at(etcd.port))
    with pytest.raises(PermanentError, match=words):
        await store.txn(Txn((), (Put(KEY, b""),)))
    await store.close()


async def test_a_quota_that_is_used_up(tmp_path: Path, binary: str) -> None:
    server = EtcdServer(tmp_path / "e", extra=("--quota-backend-bytes", "200000"), binary=binary)
    store = EtcdStore(at(server.port))
    try:
        await asyncio.to_thread(server.start)

        async def fill() -> None:
            for _ in range(2000):  # it counts what it has committed, ten times a second
                await store.txn(Txn((), (Put(KEY, bytes(20_000)),)))

        with pytest.raises(PermanentError, match="is out of space"):
            await fill()
        assert "alarm disarm" in await refusal(at(server.port))
    finally:
        await store.close()
        server.close()


async def test_users(etcd: EtcdServer) -> None:
    user = {"username": "worker", "password": PASSWORD}
    assert "has authentication off" in await refusal(at(etcd.port, **user))
    await asyncio.to_thread(enable_auth, etcd, "worker", prefix="/other/")
    assert "give a user name and password" in await refusal(at(etcd.port))
    assert "refused the user name or password" in await refusal(at(etcd.port, username="worker", password="wrong"))
    assert "a role with readwrite on their prefix" in await refusal(at(etcd.port, **user))


# --- TLS --------------------------------------------------------------------------------------------------------------
@needs_openssl
async def test_certificates(tmp_path: Path, binary: str, ends: contextlib.ExitStack) -> None:
    home, strange = Authority(tmp_path / "home"), Authority(tmp_path / "strange")
    ours = home.issue("ours")
    assert ours.key is not None

    def serve(name: str, own: Tls, clients: str | None = None) -> EtcdServer:
        server = tls_server(tmp_path / name, own, clients=clients, binary=binary)
        ends.callback(server.close)
        server.spawn()
        return server

    plain = EtcdServer(tmp_path / "plain", binary=binary)
    ends.callback(plain.close)
    plain.spawn()
    fine, mutual = serve("fine", home.issue("fine")), serve("mutual", home.issue("mutual"), home.ca)
    old = serve("old", home.issue("old", days=-1))
    named = serve("named", home.issue("named", san="DNS:elsewhere.example"))
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cases = [
        (fine, None, r"speaks TLS: turn it on with cacert"),
        (plain, Tls(home.ca), r"is an etcd without TLS: leave cacert out"),
        (fine, Tls(strange.ca), r"certificate that no authority in .*strange/ca\.pem has signed"),
        (fine, Tls(str(empty)), r"empty\.pem holds no certificate in PEM form"),
        (old, Tls(home.ca), r"certificate that has expired"),
        (named, Tls(home.ca), r"certificate that does not name 127\.0\.0\.1"),
        (mutual, None, r"speaks TLS: turn it on with cacert"),
        (mutual, Tls(home.ca), r"asks for a client certificate .*: give cert=FILE and key=FILE"),
        (
            mutual,
            replace(strange.issue("c"), ca=home.ca),
            r"refuses the client certificate .*/c\.pem .*trusted-ca-file",
        ),
        (
            mutual,
            home.issue("late", days=-1),
            r"client certificate .*late\.pem cannot be used: certificate has expired",
        ),
        (mutual, replace(ours, key=strange.issue("k").key), r"key .*k\.key does not belong to the certificate"),
        (mutual, replace(ours, key=home.encrypted(ours.key)), r"key .* is encrypted"),
        (mutual, replace(ours, key=ours.cert), r"holds no certificate in PEM form, or .*ours\.pem no key"),
    ]
    for server, tls in ((plain, None), (fine, Tls(home.ca)), (mutual, ours)):
        await contact(EtcdConfig((server.endpoint,), tls))
    found = await asyncio.gather(*(refusal(EtcdConfig((server.endpoint,), tls)) for server, tls, _ in cases))
    for sentence, (_, _, words) in zip(found, cases, strict=True):
        assert re.search(words, sentence)


# --- strangers --------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def stranger(greeting: bytes = b"", answer: bytes = b"", hangs_up: bool = False) -> AsyncIterator[int]:
    """A server that says ``greeting`` first, and ``answer`` to whatever it is told; return its port."""
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        with contextlib.suppress(OSError):
            writer.write(greeting)
            if not hangs_up:
                await reader.read(1000)
                writer.write(answer)
            if answer or hangs_up:
                writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in held:
            writer.transport.abort()


def http(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


STRANGERS = [
    (b"SSH-2.0-OpenSSH_9.2p1\r\n", b"", False, True, "is an ssh server"),
    (b"220 mail.example ESMTP \x1b[2J\r\n", b"", False, True, r"it says '220 mail.example ESMTP \x1b[2J\r\n'"),
    (b"", http("404 Not Found", b"<html>"), False, True, "is an HTTP server that is no etcd"),
    (b"", http("200 OK", b"[1]"), False, True, "is an HTTP server that is no etcd"),
    (b"", http("200 OK", b"[" * 9000), False, True, "is an HTTP server that is no etcd"),
    (b"", http("503 Service Unavailable"), False, False, "nobody behind it"),
    (b"", http("200 OK", b'{"etcdserver":"3.5.9"}'), False, False, "answers as etcd 3.5.9 over HTTP/1"),
    (b"", http("200 OK", b'{"etcdserver":"\x1b"}'), False, True, "is an HTTP server that is no etcd"),
    (b"", http("400 Bad Request", b"The plain HTTP request was sent to HTTPS port"), False, True, "speaks TLS"),
    (b"", b"\x15\x03\x01\x00\x02\x02\x46", False, True, "speaks TLS"),
    (b"", b"-ERR unknown command\r\n", False, True, "it says '-ERR unknown command"),
    (b"", b"", False, False, "stays silent"),
    (b"", b"", True, False, "closes them at once"),
]


async def test_strangers() -> None:
    """All at once: each is waited for."""
    met = await asyncio.gather(*(meet(*case[:4]) for case in STRANGERS))
    for (greeting, answer, _, _, words), (plain, secure) in zip(STRANGERS, met, strict=True):
        assert words in plain, (greeting, answer)
        if words != "speaks TLS":
            assert words in secure or "without TLS" in secure, (greeting, answer, secure)


async def meet(greeting: bytes, answer: bytes, hangs_up: bool, final: bool) -> tuple[str, str]:
    """Return what is said of such a server, by the first contact and by a look at it with TLS."""
    async with stranger(greeting, answer, hangs_up) as port:
        kind, timeout_s = (PermanentError, 20.0) if final else (TransientError, 1.2)
        secure = asyncio.to_thread(look_with_tls, Endpoint("127.0.0.1", port), Tls(), 3.0)
        plain, seen = await asyncio.gather(refusal(at(port), kind, timeout_s), secure)
        return plain, seen.words


async def test_nobody_there_and_no_such_name() -> None:
    (nobody,) = free_ports(1)
    nowhere = EtcdConfig((Endpoint("no-such-host.invalid", 2379),))
    refusing, unknown, wrong = await asyncio.gather(
        refusal(at(nobody), TransientError, 1.5),
        refusal(nowhere, TransientError, 1.5),
        refusal(EtcdConfig((Endpoint("a" * 70, 2379),))),
    )
    assert "refuses connections" in refusing
    assert "is not a known name" in unknown
    assert "is not an address" in wrong


async def test_a_stranger_beside_a_member_that_may_still_come() -> None:
    (nobody,) = free_ports(1)
    async with stranger(b"SSH-2.0-OpenSSH_9.2p1\r\n") as ssh:
        sentence = await refusal(at(nobody, ssh), TransientError, 1.5)
        assert "refuses connections" in sentence
        assert "is an ssh server" in sentence


async def test_work_that_hangs_holds_up_neither_the_loop_nor_its_caller() -> None:
    ended = threading.Event()
    began = time.monotonic()
    assert await aside(lambda: ended.wait(60.0), 0.05) is None
    assert time.monotonic() - began < 10.0
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "etcd-aside")
    assert thread.daemon, "a program that ends does not wait for it"
    ended.set()
    assert await aside(lambda: 7, 10.0) == 7
    thread.join()


async def test_the_store_of_a_torchrun_job() -> None:
    code = (
        "import sys; from torch.distributed import TCPStore as T\n"
        "found = [T('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=uv) for uv in (True, False)]\n"
        "print(*(store.port for store in found), flush=True); sys.stdin.read()"
    )
    job = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout is not None
    try:
        ports = (await asyncio.to_thread(job.stdout.readline)).split()
        assert len(ports) == 2
        for sentence in await asyncio.gather(*(refusal(at(int(port))) for port in ports)):
            assert "is the store of a torchrun job" in sentence
    finally:
        job.kill()
        job.communicate()


class Fake(grpc.GenericRpcHandler):
    """A gRPC server that answers every call with the same bytes, or knows none."""

    def __init__(self, reply: bytes | None) -> None:
        self._reply = reply

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if self._reply is None:
            return None

        async def answer(request: bytes, context: object) -> bytes:
            return self._reply or b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (None, "is not an etcd v3 server"),
        (b"\x12\x063.3.27", "runs etcd 3.3.27, and remuster needs 3.4 or newer"),  # field 2 of a status
        (b"\x12\xff", "is not in etcd's form"),
    ],
)
async def test_a_grpc_server_that_is_no_etcd_or_too_old(reply: bytes | None, words: str) -> None:
    server = grpc.aio.server(handlers=[Fake(reply)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert words in await refusal(at(port))
        assert "speaks gRPC or HTTP/2" in (await asyncio.to_thread(look, Endpoint("127.0.0.1", port), 3.0)).words
    finally:
        await server.stop(None)
