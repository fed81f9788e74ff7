"""The command line under test, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher_lines import Command


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(tmp_path, capsys)
