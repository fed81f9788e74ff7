"""A rank that says when it came to its first line, and stands until it is ended; with an argument it ends at once.

It needs nothing but the standard library, and no torch.
"""

import time

at_s = time.monotonic()

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

desk = os.open(os.environ["BENCH_DESK"], os.O_WRONLY)
os.write(desk, f"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {at_s!r} {os.getpid()}\n".encode())
if len(sys.argv) == 1:
    signal.pause()
