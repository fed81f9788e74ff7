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
from collections.abc import Callable
from typing import Any, cast

from . import proc

pynvml: Any = importlib.import_module("pynvml")  # it has no types

SETTLE_S = 5.0  # for memory of processes that have gone
PAUSE_S = 0.25
RECOVERY = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: older bindings do not name it


def main() -> int:
    """Print what the driver says."""
    own = {int(sys.argv[1]), *proc.below(int(sys.argv[1]))}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(json.dumps({"error": str(error)}))
        return 0
    until = time.monotonic() + SETTLE_S
    while True:
        found = [_read(number, own) for number in range(pynvml.nvmlDeviceGetCount())]
        if time.monotonic() >= until or not any(_leaving(gpu) for gpu in found):
            break
        time.sleep(PAUSE_S)
    print(json.dumps(found))
    return 0


def _leaving(gpu: dict[str, object]) -> bool:
    """Tell whether somebody holds memory who is not there any more."""
    holders = cast("list[tuple[int, int, str]]", gpu.get("holders", []))
    return any(not proc.alive(pid) for pid, _, _ in holders)


def _read(number: int, own: set[int]) -> dict[str, object]:
    gpu: dict[str, object] = {"number": number}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        gpu["uuid"] = pynvml.nvmlDeviceGetUUID(handle)
        gpu["bus"] = pynvml.nvmlDeviceGetPciInfo(handle).busId
    except pynvml.NVMLError as error:
        gpu.update(lost=_is_lost(error), error=str(error))
        return gpu
    trouble: list[str] = []

    def ask(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except pynvml.NVMLError as error:
            if _is_lost(error):
                gpu["lost"] = True
            elif error.value not in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                trouble.append(str(error))
            return None

    memory = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    if memory is not None:
        gpu["total"] = int(memory.total)
    running: list[Any] = ask(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    gpu["holders"] = [
        (process.pid, int(process.usedGpuMemory or 0), proc.name(process.pid))
        for process in running
        if process.pid not in own
    ]
    field = ask(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [RECOVERY]))
    if field and field[0].nvmlReturn == pynvml.NVML_SUCCESS:
        gpu["recovery"] = int(field[0].value.uiVal)
    rows = ask(lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    if rows is not None:
        _, _, pending, failed = rows
        gpu.update(remap_pending=bool(pending), remap_failed=bool(failed))
    if trouble:
        gpu["error"] = "; ".join(dict.fromkeys(trouble))
    return gpu


def _is_lost(error: Exception) -> bool:
    return getattr(error, "value", 0) in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
