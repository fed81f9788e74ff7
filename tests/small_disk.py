"""A small file system of its own for a test: mounted at a folder, gone afterwards. Needs root; not a test module."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

PIECE = bytes(64 * 1024)


@contextlib.contextmanager
def small_disk(at: Path, kind: str = "tmpfs", mebibytes: int = 64) -> Generator[Path, None, None]:
    """Mount a tmpfs, an ext4 on a file, or a ramfs, without fallocate; skip the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    at.mkdir(parents=True)
    what, options = kind, f"size={mebibytes}m,mode=700"
    if kind == "ext4":
        image = at.with_name(f"{at.name}.ext4")
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        what, options = str(image), "loop"
    try:
        _run("mount", "-t", kind, "-o", options, what, str(at))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting is not allowed here: {error.stderr!r}")
    at.chmod(0o700)
    try:
        yield at
    finally:
        _run("umount", "-l", str(at))


def fill(disk: Path) -> Path:
    """Take all that is free, as another program would; return the file that has it."""
    path = disk / "fill"
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for piece in (PIECE, PIECE[:4096]):
            with contextlib.suppress(OSError):
                while file.write(piece):
                    pass
    return path


def _run(*line: str) -> None:
    subprocess.run(line, check=True, capture_output=True)
