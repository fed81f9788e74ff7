"""How many ranks ``--nproc-per-node`` asks for on this machine: cores and GPUs are counted here, without torch.

GPUs come from CUDA_VISIBLE_DEVICES when it is set (the list that the ranks will see), else from NVML, else from what
the driver shows under /proc. Called by `build` once, before anything starts.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from .errors import UsageError
from .values import whole

DRIVER = Path("/proc/driver/nvidia/gpus")


def nproc(name: str, text: str, visible: str | None) -> int:
    """Return the number of ranks; ``visible`` is CUDA_VISIBLE_DEVICES, None when it is not set."""
    word = text.strip().lower()
    if word == "cpu":
        return os.cpu_count() or 1
    if word in ("gpu", "auto"):
        found = gpus(visible)
        if found == 0 and word == "gpu":
            why = (
                f"CUDA_VISIBLE_DEVICES is {visible!r}" if visible is not None else "neither NVML nor the driver has one"
            )
            raise UsageError(
                f"{name} is gpu and this node has no GPU ({why}); look at nvidia-smi, or give a number or cpu"
            )
        return found or os.cpu_count() or 1
    if not word.lstrip("+-").isdecimal():
        raise UsageError(f"Unsupported nproc_per_node value: {name} is {text!r}; give a number, auto, gpu or cpu")
    return whole(name, word, 1)


def gpus(visible: str | None) -> int:
    """Return how many GPUs ranks of this node can see."""
    if visible is not None:
        return _listed(visible)
    counted = _nvml()
    return by_driver() if counted is None else counted


def by_driver(folder: Path = DRIVER) -> int:
    """Return how many GPUs the driver shows; it has a folder for each."""
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _listed(visible: str) -> int:
    """Count as CUDA does: the list ends at its first invalid entry, and a device named twice makes it void."""
    devices: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if not entry or entry.startswith("-") or entry == "NoDevFiles":
            break
        devices.append(entry)
    return len(devices) if len(set(devices)) == len(devices) else 0


def _nvml() -> int | None:
    """Return NVML's count, or None when there is no NVML to ask."""
    nvml = importlib.import_module("pynvml")  # no stubs, and nobody pays for it unless GPUs are asked for
    try:
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return count
