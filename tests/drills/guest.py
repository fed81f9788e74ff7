"""A guest kernel with a pure cgroup version 2 tree, on this machine's own files, read-only: User Mode Linux.

It needs no KVM; Debian's package user-mode-linux has it. Not a test module.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = "linux.uml"
ROOT = Path(__file__).parents[2]
_INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs tmp /dev/shm; mount -t tmpfs tmp /run; mount -t tmpfs tmp /mnt
mount -t cgroup2 cgroup /sys/fs/cgroup
# A /tmp that can be written, with what is needed of this machine's.
mkdir -m 1777 /mnt/tmp
for path in {needed}; do
    mkdir -p "/mnt$path" && mount --bind "$path" "/mnt$path"
done
mount --rbind /mnt/tmp /tmp
hostname guest; ip link set lo up
{script}
sync; echo o > /proc/sysrq-trigger; sleep 5
"""


def why_not() -> str:
    """Return why no guest can be started here; empty when one can."""
    return "" if shutil.which(PROGRAM) else f"needs {PROGRAM} (Debian: user-mode-linux)"


def run(folder: Path, script: str, timeout_s: float) -> str:
    """Boot a guest, run a shell script in it as its first process, and return what it said on its console."""
    init = folder / "init"
    needed = {str(path) for path in (folder, ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp")}
    init.write_text(_INIT.format(script=script, needed=shlex.join(sorted(needed))))
    init.chmod(0o755)
    line = [
        *(PROGRAM, "mem=1G", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}", f"umid={folder.name[:30]}"),
        *(f"uml_dir={folder}", "con=null", "con0=null,fd:1", "con1=null", "ssl=null", "quiet", "loglevel=3"),
    ]
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder)}
    ended = subprocess.run(  # noqa: PLW1510 - its end is a power-off, with whatever status
        line, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s
    )
    return ended.stdout.decode(errors="replace").replace("\r", "")
