"""Checkpoints in the project's own format, as their publication leaves them, and copies of them. Not a test module."""

from __future__ import annotations

import shutil
from pathlib import Path

from remuster.checkpoint.layout import COMMITTED, MANIFEST, step_name
from remuster.checkpoint.manifest import FileEntry, Manifest, digest


def published(directory: Path, step: int, files: int = 8, text: str = "after") -> Path:
    """Write a step of another run; return its folder."""
    path = directory / step_name(step)
    path.mkdir(parents=True)
    entries: list[FileEntry] = []
    for i in range(files):
        data = f"{text} {step}, part {i}".encode()
        (path / f"part-{i}").write_bytes(data)
        entries.append(FileEntry(f"part-{i}", len(data), digest(data)))
    raw = Manifest("another-run", 0, 1, step, tuple(entries)).to_bytes()
    (path / MANIFEST).write_bytes(raw)
    (path / COMMITTED).write_text(f"sha256:{digest(raw)}\n")
    return path


def copied(path: Path, to: Path) -> Path:
    """Copy a checkpoint into another directory as rsync does, times and all; return that directory."""
    shutil.copytree(path, to / path.name)
    return to
