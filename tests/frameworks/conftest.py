"""Places to start the command in, and one etcd for each module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command.cluster import Cluster, Place
from etcd_server import EtcdServer
from shared_etcd import etcd

__all__ = ["etcd"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where the commands are started."""
    made = Place(tmp_path / "place")
    yield made
    made.close()


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdServer) -> Iterator[Cluster]:
    """Nodes that meet in the module's etcd."""
    made = Cluster(tmp_path / "cluster", etcd)
    yield made
    made.close()
