"""Which file system holds a path, and which of them wait for a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuster.agent.mounts import hangs, kind_of, may_hang

TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /dev rw - devtmpfs udev rw
30 22 0:40 / /home rw shared:9 master:2 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/local rw - xfs /dev/sdb rw
32 22 0:42 / /data\040of\040all rw - lustre mds:/data rw
33 22 0:43 / /twice rw - nfs server:/a rw
34 33 0:44 / /twice rw - tmpfs none rw
35 22 0:45 / /mnt/s3 rw - fuse.s3fs s3fs rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind", "waits"),
    [
        ("/tmp/x", "ext4", False),
        ("/", "ext4", False),
        ("/home", "nfs4", True),
        ("/home/a/logs", "nfs4", True),
        ("/homeless", "ext4", False),
        ("/home/local/logs", "xfs", False),
        ("/data of all/run", "lustre", True),
        ("/twice/x", "tmpfs", False),  # the later mount covers the earlier one
        ("/mnt/s3/logs", "fuse.s3fs", True),
    ],
)
def test_the_longest_mount_point_has_it(path: str, kind: str, waits: bool) -> None:
    assert kind_of(TABLE, path) == kind
    assert hangs(kind) is waits


def test_the_layers_of_containers_are_local() -> None:
    assert not hangs("fuse.fuse-overlayfs")
    assert not hangs("overlay")
    assert not hangs("")


def test_this_machine(tmp_path: Path) -> None:
    assert may_hang(str(tmp_path)) is False
    assert kind_of(Path("/proc/self/mountinfo").read_text(), "/proc/self") == "proc"
