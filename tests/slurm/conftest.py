"""A Slurm cluster of four nodes, or of what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drills import lab as hosts
from drills.lab import Lab
from slurm.cluster import Cluster, Setup, why_not


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if why := hosts.why_not() or why_not():
        pytest.skip(why)
    made = Lab(tmp_path)
    yield made
    made.close()
    made.check_gone()


@pytest.fixture
def new_cluster(lab: Lab) -> Callable[[Setup], Cluster]:
    """Make the cluster of this test."""
    return lambda setup: Cluster(lab, setup)


@pytest.fixture
def cluster(lab: Lab) -> Cluster:
    return Cluster(lab)
