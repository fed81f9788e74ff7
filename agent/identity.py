"""Which machine this is, as far as a lease may be revoked on the strength of it. Reads files once, at start.

Images bring the same /etc/machine-id to many hosts, and containers of one host have separate process trees: so the boot
id and the pid namespace are part of the name. A reboot or a new container is another machine, and waits for the lease.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

from . import proc


class Machine(NamedTuple):
    """``name`` tells process trees apart; ``boot`` one start of the machine from the next."""

    host: str
    name: str
    boot: str


def this_machine() -> Machine:
    """Read who this machine is; absent files give an empty part, never an error."""
    boot = _line("/proc/sys/kernel/random/boot_id")
    name = f"{_line('/etc/machine-id')[:12]}-{boot[:8]}-{os.stat('/proc/self/ns/pid').st_ino:x}"
    return Machine(socket.gethostname(), name, boot)


def this_process() -> tuple[int, str]:
    """Return the agent's pid and its start time in ticks since boot."""
    return os.getpid(), proc.start_ticks(os.getpid()) or ""


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
