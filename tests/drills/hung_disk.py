"""Freezes the file system of DIRECTORY for as long as its standard input is open: ``hung_disk.py DIRECTORY``.

Whoever writes there hangs in the kernel. It runs beside the hosts and holds the directory open, so that the file
system is thawed whatever becomes of the test or of the host: one that nobody thaws is there for good.
"""

import fcntl
import os
import sys

FREEZE, THAW = 0xC0045877, 0xC0045878

fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(fd, FREEZE, 0)
print("frozen", flush=True)
sys.stdin.read()
fcntl.ioctl(fd, THAW, 0)
