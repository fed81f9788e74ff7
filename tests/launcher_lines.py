"""Command lines for the launcher's tests, with a body in the agent's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuster.agent.spec import JobSpec
from remuster.launcher import cli


class Command:
    """Runs command lines in a folder that holds t.py, and keeps what reached the agent."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.started: list[JobSpec] = []
        self.stderr = ""

    def run(self, line: str, args: list[str] | None = None, **environ: str) -> int:
        def start(spec: JobSpec) -> int:
            self.started.append(spec)
            return 7

        code = cli.run([*line.split(), *(args or [])], environ, start)
        self.stdout, self.stderr = self.capsys.readouterr()
        return code

    def spec(self, line: str, args: list[str] | None = None, **environ: str) -> JobSpec:
        assert self.run(line, args, **environ) == 7, self.stderr
        return self.started[-1]

    def refusal(self, line: str, args: list[str] | None = None, **environ: str) -> str:
        """Return the one line that the command is refused with."""
        self.started.clear()
        assert self.run(line, args, **environ) == 2
        assert not self.started
        assert self.stderr.startswith("remuster: ")
        assert self.stderr.count("\n") == 1
        assert "; " in self.stderr
        return self.stderr

    def file(self, name: str, content: str | bytes = "", mode: int = 0o644) -> Path:
        """Write a file of the folder's."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path
