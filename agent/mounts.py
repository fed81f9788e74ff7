"""Which file system a path is on, as the kernel's table of mounts has it, and whether it can hang with its server.

``outputs.py`` asks for the log directory: ranks do not write into such a one themselves.
"""

from __future__ import annotations

import os
import re

TABLE = "/proc/self/mountinfo"
REMOTE = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "9p", "afs", "panfs"),
        *("wekafs", "glusterfs", "orangefs", "pvfs2"),
    )
)
_LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.lxcfs")


def kind_of(table: str, path: str) -> str:
    """Return the type of the file system that holds the absolute ``path``; empty where the table says nothing. Pure.

    Later lines cover earlier ones (proc(5): ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE OPTIONS).
    """
    found, length = "", -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) < 6 or not kind:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]).rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= length:
            found, length = kind, len(point)
    return found


def hangs(kind: str) -> bool:
    """Tell whether a file system of this type waits for a server that may have gone."""
    return kind in REMOTE or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def may_hang(path: str) -> bool:
    """Tell it of a path. Blocks as long as its directories do; OSError where there is no table."""
    with open(TABLE, encoding="utf-8", errors="surrogateescape") as table:
        return hangs(kind_of(table.read(), os.path.realpath(path)))
