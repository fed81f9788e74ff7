"""What a start costs: CPU and wall time of the command's first moments beside those of a bare interpreter.

Run by ``make bench``. Minima of many runs: other work on the machine only ever adds.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

RUNS = 15
CASES = {
    "bare interpreter": ["-c", "pass"],
    "import remuster": ["-c", "import remuster"],
    "import the entry": ["-c", "import remuster.launcher.entry"],
    "remuster --version": ["-m", "remuster", "--version"],
    "remuster --help": ["-m", "remuster", "--help"],
}


def spent() -> float:
    """Return the CPU seconds of all children so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(args: list[str]) -> tuple[float, float]:
    """Return the least CPU and wall milliseconds of one run and all its children."""
    cpu, wall = [], []
    for _ in range(RUNS):
        before, began = spent(), time.perf_counter()
        subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, check=True, timeout=60)
        wall.append(time.perf_counter() - began)
        cpu.append(spent() - before)
    return min(cpu) * 1e3, min(wall) * 1e3


def main() -> None:
    print(f"{'':22}{'CPU ms':>8}{'wall ms':>9}")
    for name, args in CASES.items():
        cpu, wall = measure(args)
        print(f"{name:22}{cpu:8.0f}{wall:9.0f}")


if __name__ == "__main__":
    main()
