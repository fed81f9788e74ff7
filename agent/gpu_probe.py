"""``python -m remuster.agent.gpu_probe PID``: what the NVIDIA driver says of each GPU at this moment, as JSON.

Run as a child that may hang or die (``node_check.py``): a call into the driver cannot be interrupted. Prints a list of
objects with the fields of ``health.node_check.GpuReading``, or ``{"error": …}`` when there is no driver. PID and what
is below it are the job's own and hold nothing "of others". Memory that nobody holds any more is waited for: a process
that was killed leaves its GPU memory a moment later.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from . import proc
from .gpu_read import identity, read, unopened

pynvml: Any = importlib.import_module("pynvml")  # it has no types

SETTLE_S = 5.0  # for memory of processes that have gone
PAUSE_S = 0.25


def main() -> int:
    """Print what the driver says."""
    own = {int(sys.argv[1]), *proc.below(int(sys.argv[1]))}
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        print(json.dumps({"error": str(error)}))
        return 0
    until = time.monotonic() + SETTLE_S
    while True:
        found = [_look(number) for number in range(count)]
        gone = (pid for gpu in found for pid, _ in gpu["holders"] if not proc.alive(pid))
        if next(gone, None) is None or time.monotonic() >= until:
            break
        time.sleep(PAUSE_S)
    for gpu in found:
        gpu["holders"] = [(pid, size, proc.name(pid)) for pid, size in gpu["holders"] if pid not in own]
    print(json.dumps(found))
    return 0


def _look(number: int) -> dict[str, Any]:
    """Return one GPU; of ``holders`` the pids and how much memory each holds."""
    gpu: dict[str, Any] = {"number": number, "holders": []}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    except pynvml.NVMLError as error:
        return gpu | _told(unopened(pynvml, error))
    gpu |= identity(pynvml, handle)._asdict() | _told(read(pynvml, handle))
    if not gpu["lost"]:
        gpu |= _memory(handle)
    return gpu


def _told(said: dict[str, Any]) -> dict[str, Any]:
    rows = {f"remap_{what}": bool(said["counters"].get(f"row_remap_{what}")) for what in ("pending", "failed")}
    return {"lost": said["lost"], "recovery": said["recovery"], "error": "; ".join(said["unread"]), **rows}


def _memory(handle: Any) -> dict[str, Any]:
    """Return the GPU's memory and who holds it; nothing where the driver does not say."""
    try:
        held = [(p.pid, int(p.usedGpuMemory or 0)) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        return {"total": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), "holders": held}
    except pynvml.NVMLError:
        return {}  # ``read`` has said why, where it is a fault


if __name__ == "__main__":
    sys.exit(main())
