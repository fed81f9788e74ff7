"""Ports of RDMA devices that went down, or counted errors, since the ranks were started; a source of evidence.

From sysfs (the kernel's Documentation/ABI/stable/sysfs-class-infiniband); a node without such devices has nothing to
say and lacks nothing. Read on a thread: sysfs of a device that has died can hang. Only error counters are read, which a
healthy link does not move much; drivers have different ones.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from ..health.evidence import Fact
from ..health.observed import FabricPort, Lacked
from .files import FileThread
from .sources import Begun
from .spec import FABRIC

MOST_PORTS = 64
READ_S = 1.5  # less than all sources are waited for
COUNTERS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_discards"),
)
HW_COUNTERS = (
    *("out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "local_ack_timeout_err", "roce_adp_retrans_to"),
    *("req_transport_retries_exceeded", "req_rnr_retries_exceeded"),
    *("req_cqe_error", "resp_cqe_error", "req_remote_access_errors", "resp_remote_access_errors"),
)


class Port(NamedTuple):
    """A port as it stands."""

    device: str
    number: int
    state: str  # ACTIVE, DOWN, INIT, ARMED; '' where it cannot be read
    physical: str  # of its link: LinkUp, Disabled, Polling
    counters: dict[str, int]

    @property
    def active(self) -> bool:
        return self.state.startswith("ACTIVE")  # ACTIVE_DEFER too

    @property
    def words(self) -> str:
        """Return its state, and that of its link when it is not active."""
        return self.state if self.active or not self.physical else f"{self.state} ({self.physical})"


class Fabric:
    """The RDMA ports of one node; ``sysfs`` is where their folders are."""

    name = "RDMA ports"

    def __init__(self, sysfs: Path = Path(FABRIC)) -> None:
        self._sysfs = sysfs
        self._files = FileThread("rdma ports")
        self._before: asyncio.Task[tuple[Port, ...]] | None = None

    def begin(self, begun: Begun) -> None:
        """Read all counters, on a thread, where there is a device: that costs a name in sysfs, which cannot hang."""
        self._before = asyncio.create_task(self._look()) if self._sysfs.is_dir() else None

    async def inspect(self) -> None:
        """Nothing: counters are read when the ranks are dead."""

    async def facts(self) -> tuple[Fact, ...]:
        """Return the ports that are down, or have counted errors."""
        if self._before is None:
            return ()
        await asyncio.wait({self._before})
        try:
            before = self._before.result()
            after = await self._look() if before else ()
        except (OSError, TimeoutError) as error:
            return (Lacked(self.name, f"{self._sysfs} could not be read: {error}; a device may have died"),)
        return tuple(fact for port in after if (fact := _changed(port, before)))

    async def close(self) -> None:
        """Read no more."""
        if self._before is not None:
            self._before.cancel()
        self._files.close()

    async def _look(self) -> tuple[Port, ...]:
        try:
            return await self._files.run(ports, self._sysfs, timeout_s=READ_S)
        finally:
            self._files.close()  # the thread ends; another call makes a new one


def _changed(port: Port, before: tuple[Port, ...]) -> FabricPort | None:
    """Compare a port with what it was. A port that has been down all along is an empty socket."""
    was = next((one for one in before if (one.device, one.number) == (port.device, port.number)), None)
    if was is None or not (was.active or port.active):
        return None
    risen = tuple((name, n - was.counters[name]) for name, n in port.counters.items() if n > was.counters.get(name, n))
    return FabricPort(port.device, port.number, port.words, risen) if risen or not port.active else None


def ports(sysfs: Path) -> tuple[Port, ...]:
    """Read all ports below ``sysfs``, which is laid out as /sys/class/infiniband. Blocks as long as the driver does."""
    found: list[Port] = []
    for device in _names(sysfs):
        for number in _names(sysfs / device / "ports"):
            folder = sysfs / device / "ports" / number
            if len(found) == MOST_PORTS or not number.isdigit():
                continue
            counters = {name: n for name in COUNTERS if (n := _number(folder / "counters" / name)) is not None}
            counters |= {name: n for name in HW_COUNTERS if (n := _number(folder / "hw_counters" / name)) is not None}
            state, physical = (_text(folder / name).partition(":")[2].strip() for name in ("state", "phys_state"))
            found.append(Port(device, int(number), state, physical, counters))  # "4: ACTIVE", "5: LinkUp"
    return tuple(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # not every driver has every file, and some cannot be read for a port that is away
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isascii() and text.isdigit() else None
