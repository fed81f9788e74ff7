"""A rank that says that it lives, as ``beat.py`` does, and falls ill when told: ``sick.py ALIVE FINISH``.

When the file ALIVE.sick names its node it dies as a process does whose GPU has an uncorrectable memory error.
"""

import os
import sys
import time

alive, finish = sys.argv[1:3]
node, n, attempt = (os.environ[name] for name in ("REMUSTER_NODE", "REMUSTER_ROUND", "REMUSTER_ATTEMPT"))
fd = os.open(alive, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
while not os.path.exists(finish):
    os.write(fd, f"{node} {n} {attempt} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n".encode())
    if os.path.exists(f"{alive}.sick") and open(f"{alive}.sick").read() == node:  # noqa: SIM115
        os.unlink(f"{alive}.sick")
        sys.exit("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
    time.sleep(0.005)
