"""What the driver says of one GPU, as a record. For ``gpu_child.py`` and ``gpu_probe.py``; ``nvml`` is pynvml.

Each kind of figure is read by itself: what one function of a driver cannot do takes no other away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

NOT_SUPPORTED, NO_FUNCTION, LOST = 3, 13, 15  # nvmlReturn_t
# Field values (NVML_FI_DEV_…): sums over all links of a GPU, and what the driver itself says is to be done with it.
LINKS = {38: "nvlink_crc_flit", 45: "nvlink_crc_data", 52: "nvlink_replay", 59: "nvlink_recovery"}
RECOVERY = 230
SLOWED = {0x8: "slowed_by_hardware", 0x20: "slowed_by_heat", 0x40: "slowed_by_heat", 0x80: "slowed_by_power_brake"}
MOST_PIDS = 64


class Identity(NamedTuple):
    """Which GPU it is: as people, the kernel and CUDA_VISIBLE_DEVICES call it. '' where the driver does not say."""

    uuid: str = ""
    bus: str = ""  # 0000:3b:00.0
    migs: tuple[str, ...] = ()  # UUIDs of the parts that it is divided into


class Reading:
    """What was read of one GPU so far."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.counters: dict[str, int] = {}
        self.recovery = 0
        self.pids: list[int] = []


def read(nvml: Any, handle: Any) -> dict[str, object]:
    """Return all that can be known of the GPU now."""
    reading, lost, unread = Reading(nvml, handle), False, list[str]()
    for what, part in _PARTS.items():
        if lost:
            break
        try:
            part(reading)
        except nvml.NVMLError as error:
            lost = error.value == LOST
            if not lost and error.value not in (NOT_SUPPORTED, NO_FUNCTION):
                unread.append(f"{what}: {error}")
    return _found(reading, lost, unread)


def use(nvml: Any, handle: Any) -> int | None:
    """Return in how many percent of the last moment, 1/6 to 1 s, the GPU ran a kernel; None where nothing says so.

    None says so of a GPU with MIG devices (NVIDIA's documentation of nvmlDeviceGetUtilizationRates).
    """
    try:
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:
        return None


def identity(nvml: Any, handle: Any) -> Identity:
    """Return which GPU it is, as far as the driver says: one that is lost says so when it is read."""
    found = Identity()
    try:
        found = found._replace(uuid=str(nvml.nvmlDeviceGetUUID(handle)))
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        found = found._replace(bus=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0")
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            found = found._replace(migs=tuple(_migs(nvml, handle)))
    except nvml.NVMLError:
        pass  # many have no MIG
    return found


def _migs(nvml: Any, handle: Any) -> list[str]:
    found: list[str] = []
    for i in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i))))
        except nvml.NVMLError:
            continue  # a place that nothing takes
    return found


def unopened(nvml: Any, error: Any) -> dict[str, object]:
    """Return what is known of a GPU of which the driver gave no handle, but ``error``, an NVMLError."""
    lost = error.value == LOST
    return _found(Reading(nvml, None), lost, [] if lost else [f"all of it: {error}"])


def _found(reading: Reading, lost: bool, unread: list[str]) -> dict[str, object]:
    said = {"counters": reading.counters, "recovery": reading.recovery, "pids": reading.pids}
    return {**said, "lost": lost, "unread": unread}


def _ecc(r: Reading) -> None:
    for kind, name in ((0, "ecc_corrected"), (1, "ecc_uncorrected")):
        r.counters[name] = int(r.nvml.nvmlDeviceGetTotalEccErrors(r.handle, kind, 0))  # since the driver was loaded


def _rows(r: Reading) -> None:
    names = ("row_remap_corrected", "row_remap_uncorrected", "row_remap_pending", "row_remap_failed")
    r.counters.update(zip(names, map(int, r.nvml.nvmlDeviceGetRemappedRows(r.handle)), strict=True))


def _pcie(r: Reading) -> None:
    r.counters["pcie_replay"] = int(r.nvml.nvmlDeviceGetPcieReplayCounter(r.handle))


def _clocks(r: Reading) -> None:
    """Count a reason for low clocks as 1 while it lasts. The function has a newer name, which older drivers lack."""
    reasons = int(r.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(r.handle))
    for bit, name in SLOWED.items():
        r.counters[name] = max(r.counters.get(name, 0), int(bool(reasons & bit)))


def _fields(r: Reading) -> None:
    """Read several at once; each has an answer of its own."""
    for value in r.nvml.nvmlDeviceGetFieldValues(r.handle, [*LINKS, RECOVERY]):
        if value.nvmlReturn:
            continue
        number = int(value.value.uiVal if value.valueType == 1 else value.value.ullVal)
        if value.fieldId == RECOVERY:
            r.recovery = number
        else:
            r.counters[LINKS[value.fieldId]] = number


def _pids(r: Reading) -> None:
    r.pids = [int(p.pid) for p in r.nvml.nvmlDeviceGetComputeRunningProcesses(r.handle)[:MOST_PIDS]]


_PARTS: dict[str, Callable[[Reading], None]] = {
    "recovery action and links": _fields,  # first: it tells most
    "ECC counts": _ecc,
    "remapped rows": _rows,
    "PCIe replays": _pcie,
    "clocks": _clocks,
    "processes": _pids,
}
