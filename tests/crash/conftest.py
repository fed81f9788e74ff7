"""Figures of the crash tests, shown at the end."""

from __future__ import annotations

import pytest
from command import figures


def pytest_configure(config: pytest.Config) -> None:
    """Show figures at the end."""
    figures.register(config)
