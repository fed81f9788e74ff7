"""A rank that does nothing but say every 5 ms that it is alive: ``beat.py ALIVE FINISH``.

Each line of the file ALIVE, which all hosts share, is ``node round attempt CLOCK_BOOTTIME``; the rank ends when the
file FINISH is there.
"""

import os
import sys
import time

alive, finish = sys.argv[1:3]
who = " ".join(os.environ[name] for name in ("REMUSTER_NODE", "REMUSTER_ROUND", "REMUSTER_ATTEMPT"))
fd = os.open(alive, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
while not os.path.exists(finish):
    os.write(fd, f"{who} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n".encode())
    time.sleep(0.005)
