"""Which machine this is, as far as a lease may be revoked on the strength of it. Reads files once, at start.

Images bring the same /etc/machine-id to many hosts, and containers of one host have separate process trees: so the boot
id and the pid namespace are part of the name. A reboot or a new container is another machine, and waits for the lease.
"""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from . import proc


class Machine(NamedTuple):
    """``name`` tells process trees apart; ``boot`` one start of the machine from the next; ``machine_id`` may be ""."""

    host: str
    name: str
    boot: str
    machine_id: str

    @property
    def lasting(self) -> str:
        """Return the machine's name over reboots, fit for a key: what a quarantine holds on to.

        The host's name is part of it, for images bring one machine id to many hosts, and some have none.
        """
        known = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in self.host[:64])
        return f"{known}~{self.machine_id[:12]}"


def this_machine() -> Machine:
    """Read who this machine is; absent files give an empty part, never an error."""
    boot = _line("/proc/sys/kernel/random/boot_id")
    machine_id = _line("/etc/machine-id")
    name = f"{machine_id[:12]}-{boot[:8]}-{os.stat('/proc/self/ns/pid').st_ino:x}"
    return Machine(socket.gethostname(), name, boot, machine_id)


def loopback_of(machine: Machine) -> str:
    """Name whose loopback this process has: containers of one machine may have theirs, or share the machine's."""
    return f"loopback of {machine.host} ({machine.boot[:8]}-{os.stat('/proc/self/ns/net').st_ino:x})"


def this_process() -> tuple[int, str]:
    """Return the agent's pid and its start time in ticks since boot."""
    return os.getpid(), proc.start_ticks(os.getpid()) or ""


def _line(path: str) -> str:
    try:
        with open(path, "rb") as file:  # as text it would load a codec
            return file.read().decode("ascii", "replace").strip()
    except OSError:
        return ""
