"""Where this machine's CPUs and GPUs are, read from /sys and NVML for --numa-binding. Without torch and numactl.

Only looks; every reason why something is not known is a `CannotBindError`. Called by `build` for that flag alone.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import devices
from .binding import CannotBindError, Cpu, Mode, bind, parsed, spread

SYS = Path("/sys")


def bound(mode: Mode, ranks: int, visible: str | None) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each of this node's ranks; ``visible`` is CUDA_VISIBLE_DEVICES, None when it is not set."""
    cpus = read_cpus(os.sched_getaffinity(0))
    gpus = gpu_nodes(_gpus(visible), {cpu.node for cpu in cpus.values()})
    return bind(mode, cpus, [gpus[rank % len(gpus)] for rank in range(ranks)] if gpus else spread(cpus, ranks))


def read_cpus(allowed: Iterable[int], sys: Path = SYS) -> dict[int, Cpu]:
    """Return where each of the ``allowed`` CPUs is."""
    try:
        nodes = _nodes(sys / "devices/system/node")
        return {n: _cpu(sys / f"devices/system/cpu/cpu{n}", nodes.get(n, 0), n) for n in sorted(allowed)}
    except (OSError, ValueError) as error:
        raise CannotBindError(f"where the CPUs are cannot be read ({error})") from None


def _nodes(folder: Path) -> dict[int, int]:
    """Return the NUMA node of each CPU; nothing where the kernel knows of no nodes."""
    found = folder.glob("node[0-9]*/cpulist")
    return {n: int(path.parent.name[4:]) for path in found for n in parsed(path.read_text())}


def _cpu(folder: Path, node: int, number: int) -> Cpu:
    topology = folder / "topology"
    core = min(parsed((topology / "thread_siblings_list").read_text()))
    return Cpu(node, int((topology / "physical_package_id").read_text()), core, _last_cache(folder / "cache", number))


def _last_cache(folder: Path, number: int) -> int:
    """Return the lowest CPU that shares the last level of cache; virtual machines may tell of no cache."""
    levels = {
        int((cache / "level").read_text()): min(parsed((cache / "shared_cpu_list").read_text()))
        for cache in folder.glob("index[0-9]*")
        if (cache / "type").read_text().strip() != "Instruction"
    }
    return levels[max(levels)] if levels else number


def gpu_nodes(gpus: Iterable[str], nodes: set[int], sys: Path = SYS) -> list[int]:
    """Return the NUMA node of each GPU, given by PCI address; ``nodes`` are those of the CPUs that may be used."""
    return [_node_of(sys / "bus/pci/devices" / gpu, gpu, nodes) for gpu in gpus]


def _node_of(device: Path, name: str, nodes: set[int]) -> int:
    try:
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError) as error:
        raise CannotBindError(f"the NUMA node of the GPU at {name} cannot be read ({error})") from None
    if node < 0 and len(nodes) == 1:  # the firmware has not told: where there is one node it is that
        return min(nodes)
    if node < 0:
        raise CannotBindError(f"the kernel does not know to which NUMA node the GPU at {name} belongs")
    return node


def _gpus(visible: str | None) -> list[str]:
    """Return the PCI addresses of the GPUs that the ranks see; nothing where there are none."""
    count = devices.gpus(visible)
    listed = [str(i) for i in range(count)] if visible is None else [part.strip() for part in visible.split(",")]
    return [_bus(listed[i]) for i in range(count)]  # a list ends at its first invalid entry


def _bus(entry: str) -> str:
    """Return the PCI address of the GPU that an entry of CUDA_VISIBLE_DEVICES names: a number, GPU-… or MIG-….

    Numbers count as NVML does, in the order of the bus: CUDA does so too where all GPUs are of one kind.
    """
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise CannotBindError(f"NVML, which knows where the GPUs are, cannot be asked ({error})") from None
    try:
        if entry.isdecimal():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(entry))
        else:
            handle = nvml.nvmlDeviceGetHandleByUUID(entry)
        if entry.startswith("MIG-"):
            handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        address = nvml.nvmlDeviceGetPciInfo(handle)
        return f"{address.domain:04x}:{address.bus:02x}:{address.device:02x}.0"
    except nvml.NVMLError as error:
        raise CannotBindError(f"NVML does not find the GPU {entry!r} ({error})") from None
    finally:
        nvml.nvmlShutdown()
