"""The store on an etcd with TLS, client certificates, users and tokens: used, renewed, revoked. Real processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from etcd_access import PASSWORD, PREFIX, Authority, as_root, enable_auth, needs_openssl, tls_server
from etcd_server import EtcdServer
from store_watching import take

from remuster.rendezvous.errors import PermanentError, TransientError
from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import Endpoint, EtcdConfig, Tls
from remuster.rendezvous.store import Compare, Field, Get, Put, Txn, prefix_end

OURS = f"{PREFIX}run/"


@pytest.fixture
def ends() -> Iterator[contextlib.ExitStack]:
    """Ends what is put on it with the test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "home")


@asynccontextmanager
async def connected(config: EtcdConfig) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(config)
    try:
        yield store
    finally:
        await store.close()


async def read_once(config: EtcdConfig) -> None:
    async with connected(config) as store:
        await store.range(f"{OURS}a")


async def start(server: EtcdServer, config: EtcdConfig) -> None:
    """Start the server and wait until it answers; its own check may be refused."""
    server.spawn()
    end = time.monotonic() + 20.0
    while True:
        try:
            await read_once(config)
        except TransientError:
            assert time.monotonic() < end
        except PermanentError:
            return
        else:
            return


async def put(store: EtcdStore, name: str) -> int:
    return (await store.txn(Txn((), (Put(OURS + name, b"v"),)))).revision


async def work(store: EtcdStore, lease: int = 7) -> None:
    """Do all that an agent asks of a store, below the prefix that its user may touch."""
    assert await store.grant(60, lease) == 60
    assert await store.grant(60, lease) == 60, "a repeated grant renews"
    made = Txn((Compare(f"{OURS}l", Field.CREATE, 0),), (Put(f"{OURS}l", b"v", lease),), (Get(f"{OURS}l"),))
    revision = (await store.txn(made)).revision
    assert await store.keepalive(lease, 2.0) == 60
    async with aclosing(store.watch(f"{OURS}l", None, revision)) as watch:
        assert [event.key for event in await take(watch, 1)] == [f"{OURS}l"]
        assert (await store.range(OURS, prefix_end(OURS))).items
        await store.revoke(lease)
        assert [event.kv for event in await take(watch, 1)] == [None]


# --- certificates -----------------------------------------------------------------------------------------------------
@needs_openssl
async def test_tls_by_name_and_by_address(
    tmp_path: Path, binary: str, authority: Authority, ends: contextlib.ExitStack
) -> None:
    server = ends.enter_context(contextlib.closing(tls_server(tmp_path / "e", authority.issue("s"), binary=binary)))
    configs = [EtcdConfig((Endpoint(host, server.port),), Tls(authority.ca)) for host in ("127.0.0.1", "localhost")]
    await start(server, configs[0])
    for config in configs:
        async with connected(config) as store:
            await work(store)


@needs_openssl
async def test_client_certificates_taken_up_again_when_they_are_renewed(
    tmp_path: Path, binary: str, authority: Authority, ends: contextlib.ExitStack
) -> None:
    own, ours = authority.issue("s"), authority.issue("c")
    server = tls_server(tmp_path / "e", own, clients=authority.ca, binary=binary)
    ends.callback(server.close)
    config = EtcdConfig((server.endpoint,), ours)
    await start(server, config)
    with pytest.raises(TransientError, match=str(server.endpoint)):
        await read_once(EtcdConfig((server.endpoint,), Tls(authority.ca), call_timeout_s=0.2))
    async with connected(config) as store:
        await work(store)
        # everything is replaced: authority, server's and client's certificate
        other = Authority(tmp_path / "other")
        for old, new in ((own, other.issue("s")), (ours, other.issue("c"))):
            for new_file, old_file in ((new.cert, old.cert), (new.key, old.key)):
                shutil.copy(str(new_file), str(old_file))
        shutil.copy(other.ca, authority.ca)
        await asyncio.to_thread(server.kill)
        await start(server, config)
        await work(store)


@needs_openssl
async def test_the_user_is_who_the_certificate_names(
    tmp_path: Path, binary: str, authority: Authority, ends: contextlib.ExitStack
) -> None:
    server = tls_server(tmp_path / "e", authority.issue("s", cn="root"), clients=authority.ca, binary=binary)
    ends.callback(server.close)
    ours = EtcdConfig((server.endpoint,), authority.issue("c", cn="worker"))
    await start(server, ours)
    await asyncio.to_thread(enable_auth, server, "worker")
    async with connected(ours) as store:
        await work(store)
        with pytest.raises(PermanentError, match="denied access"):
            await store.range("/other")
        with pytest.raises(PermanentError, match="denied access"):
            await anext(store.watch("/other", None, 1))
    with pytest.raises(PermanentError, match=r"denied access|user"):
        await read_once(EtcdConfig((server.endpoint,), authority.issue("x", cn="nobody-here")))


async def test_tls_files_that_are_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(PermanentError, match=r"cannot read .*ca\.pem: No such file"):
        EtcdStore(EtcdConfig((Endpoint("127.0.0.1", 1),), tls=Tls(ca=missing)))


# --- users and tokens -------------------------------------------------------------------------------------------------
def worker(server: EtcdServer) -> EtcdConfig:
    return EtcdConfig((server.endpoint,), username="worker", password=PASSWORD)


async def test_users_and_passwords(etcd: EtcdServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(PermanentError, match="authentication off"):
        await read_once(worker(etcd))
    await asyncio.to_thread(enable_auth, etcd, "worker")
    with pytest.raises(PermanentError, match="give a user name and password"):
        await read_once(EtcdConfig((etcd.endpoint,)))
    wrong = EtcdConfig((etcd.endpoint,), username="worker", password=f"{PASSWORD}!")
    with pytest.raises(PermanentError, match="refused the user name or password") as told:
        await read_once(wrong)
    async with connected(worker(etcd)) as store:
        await asyncio.gather(*(put(store, str(i)) for i in range(5)))
        await work(store)
        with pytest.raises(PermanentError, match="denied access"):
            await store.range("/other")
        with pytest.raises(PermanentError, match="denied access"):
            await anext(store.watch("/other", None, 1))
        secrets = (PASSWORD, store.links.token)
        shown = f"{wrong!r}{store!r}{store.links!r}{told.value!r}{told.value.__cause__!r}{caplog.text}"
        assert not [secret for secret in secrets if secret in shown]


async def test_a_server_that_has_forgotten_its_tokens(etcd: EtcdServer) -> None:
    await asyncio.to_thread(enable_auth, etcd, "worker")
    async with connected(worker(etcd)) as store:
        revision = await put(store, "a")
        async with aclosing(store.watch(OURS, prefix_end(OURS), revision + 1)) as watch:
            # a new password, the same as the old one, makes a server forget the user's tokens
            await asyncio.to_thread(as_root, etcd, "auth/user/changepw", {"name": "worker", "password": PASSWORD})
            await put(store, "b")
            assert [event.key for event in await take(watch, 1)] == [f"{OURS}b"]
            following = asyncio.ensure_future(take(watch, 1))
            await asyncio.to_thread(etcd.kill)
            await start(etcd, worker(etcd))
            await put(store, "c")
            assert [event.key for event in await following] == [f"{OURS}c"]
        await work(store)


@needs_openssl
async def test_tokens_that_expire(
    tmp_path: Path, binary: str, authority: Authority, ends: contextlib.ExitStack
) -> None:
    kinds = (("--auth-token-ttl", "1"), ("--auth-token", f"{authority.signing_keys()},ttl=1s"))
    servers = []
    for i, options in enumerate(kinds):
        server = EtcdServer(tmp_path / f"e{i}", extra=(*options, "--bcrypt-cost", "4"), binary=binary)
        ends.callback(server.close)
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(enable_auth, server, "worker")
        servers.append(server)
    await asyncio.gather(*(outlive_tokens(worker(server)) for server in servers))


async def outlive_tokens(config: EtcdConfig) -> None:
    async with connected(config) as store:
        await store.grant(60, 9)
        revision = await put(store, "0")
        async with aclosing(store.watch(OURS, prefix_end(OURS), revision + 1)) as watch:
            await asyncio.sleep(2.2)  # the token's time passes; using it meanwhile would prolong a simple one's
            calls = (put(store, str(n)) for n in range(10))
            await asyncio.gather(store.keepalive(9, 2.0), store.range(OURS, prefix_end(OURS)), *calls)
            assert len(await take(watch, 10)) == 10, "an open watch lives on"
        seen = {store.links.token}
        await asyncio.sleep(2.2)
        async with aclosing(store.watch(OURS, prefix_end(OURS), revision + 1)) as late:
            assert len(await take(late, 10)) == 10, "a watch logs in, too"
        seen.add(store.links.token)
    assert len(seen) == 2


@pytest.mark.parametrize("act", ["password", "user", "role"])
@pytest.mark.parametrize("kind", ["simple", pytest.param("jwt", marks=needs_openssl)])
async def test_a_user_loses_access_while_at_work(
    tmp_path: Path, binary: str, kind: str, act: str, authority: Authority, ends: contextlib.ExitStack
) -> None:
    token = () if kind == "simple" else ("--auth-token", f"{authority.signing_keys()},ttl=60s")
    server = EtcdServer(tmp_path / "e", extra=(*token, "--bcrypt-cost", "4"), binary=binary)
    ends.callback(server.close)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(enable_auth, server, "worker")
    path, body, words = {
        "password": ("auth/user/changepw", {"name": "worker", "password": "another"}, "refused the user name or passw"),
        "user": ("auth/user/delete", {"name": "worker"}, "refused the user name or password"),
        "role": ("auth/user/revoke", {"name": "worker", "role": "mine"}, "denied access"),
    }[act]
    async with connected(worker(server)) as store:
        await put(store, "a")
        await asyncio.to_thread(as_root, server, path, body)
        began = time.monotonic()
        for _ in range(2):  # again, and it is not asked for ever
            for call in (put(store, "b"), store.range(f"{OURS}a"), anext(store.watch(OURS, prefix_end(OURS), 1))):
                with pytest.raises(PermanentError, match=words):
                    await call
        assert time.monotonic() - began < 5.0


async def test_authentication_is_switched_on_while_at_work(etcd: EtcdServer) -> None:
    async with connected(EtcdConfig((etcd.endpoint,))) as store:
        await put(store, "a")
        await asyncio.to_thread(enable_auth, etcd, "worker")
        for call in (put(store, "b"), store.range(f"{OURS}a")):
            with pytest.raises(PermanentError, match="has authentication on: give a user name and password"):
                await call
        with pytest.raises(PermanentError, match=r"authentication on|denied access"):
            await anext(store.watch(OURS, prefix_end(OURS), 1))


async def test_users_changed_under_many_calls(etcd: EtcdServer) -> None:
    """Each change makes all older tokens, and every call under way, outdated: none of them may fail."""
    await asyncio.to_thread(enable_auth, etcd, "worker")
    async with connected(worker(etcd)) as store:
        changed = asyncio.Event()

        async def change() -> None:
            for i in range(5):
                await asyncio.to_thread(as_root, etcd, "auth/role/add", {"name": f"role-{i}"})
            changed.set()

        async def write(name: str) -> None:
            while not changed.is_set():
                await put(store, name)

        await asyncio.gather(change(), *(write(str(i)) for i in range(8)))
