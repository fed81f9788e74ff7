"""One etcd for each test module that asks for it, whose runs have ids of their own. Not a test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from etcd_server import EtcdServer


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One etcd for the module's runs; each has a run id of its own."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), durable=False)
    server.start()
    yield server
    server.close()
