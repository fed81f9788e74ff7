"""Whether a node may take part: readings in, findings out. Pure; ``agent/node_check.py`` reads for it.

Only what no job can live with is bad: a GPU that is lost or waits for its reset, a disk without room, memory that is
held by others, a failed test. What may hurt is a note. What could not be found out is unknown, and lets pass: a check
that hangs must not empty a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from .xid import recovery_words

GIB, MIB = 1 << 30, 1 << 20
LEAST_ROOM = 64 * MIB  # for logs and records; a rank that prints fills it in a minute
LEAST_SHM = 64 * MIB  # docker's default, with which torch's data workers are known to fail
LEAST_FILES = 1024
SHM = "/dev/shm"  # noqa: S108
FULL = 0.95  # of a GPU's memory held by others: nothing of this job would fit


class State(str, Enum):
    OK = "ok"
    NOTE = "note"
    BAD = "bad"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """What one check found: ``what`` was looked at, and in ``text`` what it is like and what to do."""

    check: str
    what: str
    state: State
    text: str


class Checked(NamedTuple):
    """The whole answer. ``passed`` is None when nothing was bad but something could not be found out."""

    passed: bool | None
    sentence: str


class GpuReading(NamedTuple):
    """One GPU as its driver tells of it; ``total`` -1 where it does not. ``error`` is what it answered instead."""

    number: int
    uuid: str = ""
    bus: str = ""
    migs: tuple[str, ...] = ()
    total: int = -1  # bytes
    holders: tuple[tuple[int, int, str], ...] = ()  # (pid, bytes, name), those of this job left out
    recovery: int = 0  # action that it asks for (NVML field 230); 0 = none
    remap_failed: bool = False
    remap_pending: bool = False
    lost: bool = False
    error: str = ""


class PortReading(NamedTuple):
    device: str
    port: int
    state: str  # ACTIVE, DOWN, INIT, ARMED
    physical: str  # LinkUp, Disabled, Polling


def conclude(findings: Iterable[Finding]) -> Checked:
    """Return what follows from all findings."""
    found = list(findings)
    bad = [f"{f.what}: {f.text}" for f in found if f.state is State.BAD]
    unknown = [f"{f.what}: {f.text}" for f in found if f.state is State.UNKNOWN]
    if bad:
        return Checked(False, "; ".join(bad))
    if unknown:
        return Checked(None, f"nothing bad was found; {'; '.join(unknown)}")
    notes = sum(f.state is State.NOTE for f in found)
    return Checked(True, f"{len(found) - notes} checks passed{f', {notes} worth a look' if notes else ''}")


def gpus(readings: Iterable[GpuReading], wanted: int | None = None) -> list[Finding]:
    """Judge the GPUs that the ranks can see; ``wanted`` is how many there must be, None: as many as there are."""
    found = list(readings)
    out = [_gpu(reading) for reading in found]
    usable = sum(not reading.lost for reading in found)
    if wanted is not None and usable < wanted:
        text = f"{usable} usable of {wanted} that there should be; see nvidia-smi and dmesg on the node"
        out.append(Finding("gpu", "GPUs", State.BAD, text))
    return out


def _gpu(gpu: GpuReading) -> Finding:
    name = f"GPU {gpu.number}{f' ({gpu.bus})' if gpu.bus else ''}"
    if gpu.lost:
        return Finding("gpu", name, State.BAD, "it is lost to the node; reboot the node")
    if gpu.recovery > 0:
        return Finding("gpu", name, State.BAD, f"its driver asks for {recovery_words(gpu.recovery)}")
    if gpu.remap_failed:
        return Finding("gpu", name, State.BAD, "a memory row could not be replaced; the GPU is to be exchanged")
    held = sum(size for _, size, _ in gpu.holders)
    if gpu.total > 0 and held >= FULL * gpu.total:
        pid, size, program = max(gpu.holders, key=lambda holder: holder[1])
        text = f"its memory is taken: pid {pid} ({program or 'unknown'}) holds {size / GIB:.1f} GiB; end that process"
        return Finding("gpu", name, State.BAD, text)
    if gpu.error:
        return Finding("gpu", name, State.UNKNOWN, gpu.error)
    if gpu.remap_pending:
        return Finding("gpu", name, State.NOTE, "a memory row waits to be replaced: reset the GPU when it is idle")
    if gpu.holders:
        pids = ", ".join(str(pid) for pid, _, _ in gpu.holders[:4])
        return Finding("gpu", name, State.NOTE, f"others use it: pid {pids}, {held / GIB:.1f} GiB")
    return Finding("gpu", name, State.OK, "answers, no recovery action, its memory is free")


def room(what: str, path: str, free: int, inodes: int, least: int = LEAST_ROOM) -> Finding:
    """Judge a file system by its free bytes and inodes; file systems without inodes say 0 or -1 of them all."""
    if free < least:
        return Finding("disk", what, State.BAD, f"{path} has {free // MIB} MiB left; make room there")
    if inodes == 0:
        return Finding("disk", what, State.NOTE, f"{path} has no inodes left, or does not count them (df -i)")
    return Finding("disk", what, State.OK, f"{path} has {free / GIB:.1f} GiB left")


def shared_memory(size: int, free: int) -> Finding:
    """Judge /dev/shm: small is a note, for a job without data workers lives with it."""
    if size < LEAST_SHM or free < LEAST_SHM // 4:
        text = f"{free // MIB} MiB of {size // MIB} MiB are free; data workers need more (docker: --shm-size)"
        return Finding("shm", SHM, State.NOTE, text)
    return Finding("shm", SHM, State.OK, f"{free / GIB:.1f} of {size / GIB:.1f} GiB are free")


def limits(files: int, locked: int, rdma: bool) -> list[Finding]:
    """Judge ulimits; -1 is unlimited. Locked memory matters where there is an RDMA device."""
    out: list[Finding] = []
    if 0 <= files < LEAST_FILES:
        text = f"{files}; data loaders open more (ulimit -n)"
        out.append(Finding("limits", "open files", State.NOTE, text))
    if rdma and locked != -1:
        text = f"{locked // 1024} KiB; RDMA registers the ranks' buffers (ulimit -l unlimited)"
        out.append(Finding("limits", "locked memory", State.NOTE, text))
    return out or [Finding("limits", "ulimits", State.OK, "open files and locked memory are enough")]


def clock(synchronised: bool | None) -> Finding:
    """Judge the clock: nothing here depends on it, but logs of several nodes are hard to read together without."""
    if synchronised is None:
        return Finding("clock", "clock", State.UNKNOWN, "the kernel does not say whether it is synchronised")
    if not synchronised:
        return Finding("clock", "clock", State.NOTE, "it is not synchronised (timedatectl, chronyc tracking)")
    return Finding("clock", "clock", State.OK, "it is synchronised")


def fabric(ports: Iterable[PortReading]) -> list[Finding]:
    """Judge RDMA ports: one that has a link and is not active is bad, one without a cable is not used."""
    out: list[Finding] = []
    for port in ports:
        name = f"{port.device} port {port.port}"
        if port.state.startswith("ACTIVE"):  # ACTIVE_DEFER too
            out.append(Finding("fabric", name, State.OK, "active"))
        elif port.physical == "LinkUp":
            text = f"it has a link and is {port.state or 'not active'}; see ibstat, and the subnet manager"
            out.append(Finding("fabric", name, State.BAD, text))
        else:
            out.append(Finding("fabric", name, State.NOTE, f"{port.state or 'down'}, {port.physical or 'no link'}"))
    return out
