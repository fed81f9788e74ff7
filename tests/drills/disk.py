"""A host's directory on a file system of its own that can be made to hang. Not a test module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from drills.lab import Host

_HUNG_DISK = Path(__file__).with_name("hung_disk.py")
TOOLS = ("mkfs.ext4", "losetup")


def mount_disk(host: Host, directory: Path, size: str = "64M") -> None:
    """Put ``directory`` of ``host`` onto a disk of its own: a file, mounted on this host alone."""
    image = directory.with_name(f"{directory.name}.ext4")
    host.sh(
        f"truncate -s {size} {image}; mkfs.ext4 -q {image}; mkdir -m 700 {directory}; "
        f"mount -o loop {image} {directory}; rmdir {directory}/lost+found; chmod 700 {directory}"
    )


class HungDisk:
    """The file system of a directory of ``host``, frozen until it is thawed."""

    def __init__(self, host: Host, directory: Path) -> None:
        self._freezer = subprocess.Popen(
            ["nsenter", "-t", str(host.init), "-m", "--", sys.executable, "-S", "-E", str(_HUNG_DISK), str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._freezer.stdout is not None
        assert self._freezer.stdout.readline() == b"frozen\n", "the disk does not freeze"

    def thaw(self) -> None:
        """Let it answer again; harmless when it does."""
        self._freezer.communicate(timeout=20.0)
