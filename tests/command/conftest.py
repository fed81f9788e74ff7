"""Places to start the command in, one etcd for each module, and the figures that tests measured, shown at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command.cluster import Cluster, Place
from etcd_server import EtcdServer

FIGURE = "figure"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place for commands without a store."""
    made = Place(tmp_path / "place")
    yield made
    made.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One etcd for the module's runs; each has a run id of its own."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), durable=False)
    server.start()
    yield server
    server.close()


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdServer) -> Iterator[Cluster]:
    """Nodes that meet in the module's etcd."""
    made = Cluster(tmp_path / "cluster", etcd)
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured, also when all tests passed."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    figures = [(report.nodeid, value) for report in reports for name, value in report.user_properties if name == FIGURE]
    if figures:
        terminalreporter.section("figures")
        for nodeid, value in figures:
            terminalreporter.write_line(f"{nodeid}: {value}")
