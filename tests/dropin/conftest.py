"""Both programs for a test, and an etcd that speaks torchrun's version of its interface as well as ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from dropin.programs import Program, Stage
from dropin.rows import Row
from etcd_server import EtcdServer

Ended = Callable[[Row], tuple[Program, list[int]]]
HAS_ETCD = importlib.util.find_spec("etcd") is not None  # what torchrun speaks to an etcd with


def _can_run(row: Row) -> bool:
    return HAS_ETCD or "@ETCD" not in row.line


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Where the commands run. torchrun begins at once with the rows of all tests to come."""
    etcd = EtcdServer(tmp_path_factory.mktemp("etcd"), durable=False, extra=("--enable-v2",))
    made = Stage(tmp_path_factory.mktemp("dropin"), etcd.port)
    try:
        etcd.start()
        items = [item for item in request.session.items if isinstance(item, pytest.Function)]
        rows = [cast(Row, item.callspec.params["row"]) for item in items if "torchrun" in item.fixturenames]
        made.go_ahead(filter(_can_run, rows))
        yield made
    finally:
        made.close()
        etcd.close()


@pytest.fixture
def torchrun(stage: Stage, row: Row) -> Ended:
    """Return how a test's row went under torchrun, and its exit codes."""
    if not _can_run(row):
        pytest.skip("torchrun needs the package python-etcd for its etcd backends; see requirements/test.txt")
    return stage.torchrun
