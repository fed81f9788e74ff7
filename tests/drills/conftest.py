"""Three hosts, an etcd on a fourth, and the command on them; a table of what each drill took."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drills.course import Row
from drills.etcd import Etcd
from drills.job import LEASE_S, Job
from drills.lab import Host, Lab, why_not
from drills.table import keep_rows

_TOOK: list[tuple[str, str, str]] = []
PAGE = os.environ.get("REMUSTER_FAULTS")  # where the table of docs/faults.md is written


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if why := why_not():
        pytest.skip(why)
    made = Lab(tmp_path)
    yield made
    made.close()
    made.check_gone()


@pytest.fixture
def new_lab(tmp_path: Path) -> Iterator[Callable[[], Lab]]:
    """Make a lab, in place of the one that was made before."""
    if why := why_not():
        pytest.skip(why)
    labs: list[Lab] = []

    def close() -> None:
        for lab in labs[-1:]:
            lab.close()
            lab.check_gone()

    def make() -> Lab:
        close()
        directory = tmp_path / str(len(labs))
        directory.mkdir()
        labs.append(Lab(directory))
        return labs[-1]

    yield make
    close()


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


@pytest.fixture
def record_row() -> Callable[[Row], None]:
    """Keep a row for the table, at once: a later drill may break the run off."""

    def record(row: Row) -> None:
        step = "none" if row.step_s is None else f"{row.step_s:.1f} s"
        took = "" if row.first_s is None else f"{row.first_s * 1000:.0f} ms, first step {step}"
        _TOOK.append((row.title, took, " ".join(filter(None, (row.verdict, row.node, row.charged)))))
        if PAGE is not None:
            keep_rows(Path(PAGE), [row])

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if _TOOK:
        terminalreporter.section("drills: recovery and verdict")
    for name, took, verdict in _TOOK:
        terminalreporter.write_line(f"{name:70} {took:32} {verdict}")
