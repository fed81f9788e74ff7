"""Plays the rows that were asked for, several at a time, before the first of them is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from bad_input.scene import Outcome, Row, Scene, play
from bad_input.stores import Stores
from etcd_server import EtcdServer
from shared_etcd import etcd

__all__ = ["etcd"]

AT_ONCE = 6  # many rows do nothing but wait


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """The stores that one cannot meet in."""
    made = Stores(tmp_path_factory.mktemp("stores"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, stores: Stores
) -> Iterator[Mapping[str, Future[Outcome]]]:
    """What becomes of each row that is to be judged; they are started in that order."""
    asked = [item.callspec.params["row"] for item in request.session.items if {"outcomes", "row"} <= _fixtures(item)]
    scenes: list[Scene] = []

    def outcome(row: Row, folder: Path) -> Outcome:
        scene = Scene(folder, etcd, stores)
        scenes.append(scene)
        return play(row, scene)

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield {
            row.id: pool.submit(outcome, row, tmp_path_factory.mktemp("row") / "place")
            for row in asked
            if not row.unless
        }
    finally:
        pool.shutdown(cancel_futures=True)
        for scene in scenes:
            scene.close()


def _fixtures(item: pytest.Item) -> set[str]:
    return set(item.fixturenames) if isinstance(item, pytest.Function) else set()
