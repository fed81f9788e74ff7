"""Three hosts, an etcd on a fourth, and the command on them; a table of what each drill took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drills.etcd import Etcd
from drills.job import LEASE_S, Job
from drills.lab import Host, Lab, why_not

_TOOK: list[tuple[str, str, str]] = []


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if why := why_not():
        pytest.skip(why)
    made = Lab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hosts(lab: Lab) -> list[Host]:
    return lab.host("h1", "h2", "h3")


@pytest.fixture
def etcd(lab: Lab, hosts: list[Host]) -> Etcd:
    return Etcd(lab, lab.host("e1"))


@pytest.fixture
def job(lab: Lab, etcd: Etcd, request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(lab, etcd)
    yield made
    took = (
        "" if made.recovery_s is None else f"{made.recovery_s * 1000:.0f} ms = {made.recovery_s / LEASE_S:.2f} leases"
    )
    _TOOK.append((request.node.name, took, made.verdict))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if _TOOK:
        terminalreporter.section("drills: recovery and verdict")
    for name, took, verdict in _TOOK:
        terminalreporter.write_line(f"{name:48} {took:26} {verdict}")
