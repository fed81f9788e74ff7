"""Places to start the command in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command.cluster import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where the commands are started."""
    made = Place(tmp_path / "place")
    yield made
    made.close()
