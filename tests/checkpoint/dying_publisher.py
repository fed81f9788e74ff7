"""A publisher that is killed at its k-th operation on the disk. Run as a program by test_kill.py.

``dying_publisher.py DIRECTORY STEP K how``: how is ``before`` the operation, or ``half`` way through a write.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from remuster.checkpoint import publish
from remuster.checkpoint.disk import Disk


class Dying(Disk):
    """The real disk until the k-th operation, then SIGKILL."""

    def __init__(self, k: int, half: bool) -> None:
        self._left = k
        self._half = half

    def _count(self) -> bool:
        self._left -= 1
        return self._left < 0

    def _step(self) -> None:
        if self._count():
            os.kill(os.getpid(), signal.SIGKILL)

    def make_dir(self, path: Path) -> None:
        self._step()
        super().make_dir(path)

    def clear(self, path: Path) -> None:
        self._step()
        super().clear(path)

    def write(self, path: Path, data: bytes) -> None:
        if self._count():
            if self._half:
                path.write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(path, data)

    def sync_file(self, path: Path) -> None:
        self._step()
        super().sync_file(path)

    def sync_dir(self, path: Path) -> None:
        self._step()
        super().sync_dir(path)

    def rename_once(self, source: Path, target: Path) -> None:
        self._step()
        super().rename_once(source, target)


def main() -> None:
    directory, step, k, how = sys.argv[1:]
    with publish(int(step), directory, disk=Dying(int(k), how == "half")) as p:
        p.path("model.pt").write_bytes(b"weights" * 1000)
        p.path("shards/0.bin").write_bytes(b"0")


if __name__ == "__main__":
    main()
