"""A rank that proves by locks that no rank of another round is alive: ``one_world.py WORLD SCRIPT ARGUMENT...``.

Before anything else it locks, in the file WORLD, the byte of its round, shared; the kernel keeps that lock for as long
as the process exists in any state. Whoever comes second of two rounds that overlap then finds the first one's lock,
and says so in WORLD.overlaps. Each start is a line of WORLD.starts. Then SCRIPT runs as if it had been started alone.
"""

import fcntl
import os
import runpy
import struct
import sys
import time

FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid


def line(path: str, *words: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


world, script = sys.argv[1:3]
now = time.clock_gettime(time.CLOCK_BOOTTIME)
mine, attempt, rank, node = (os.environ[n] for n in ("REMUSTER_ROUND", "REMUSTER_ATTEMPT", "RANK", "REMUSTER_NODE"))
fd = os.open(world, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # never closed: the lock goes with the process
fcntl.lockf(fd, fcntl.LOCK_SH, 1, int(mine))
for start, length in ((0, int(mine)), (int(mine) + 1, 0)):  # all below, all above
    wanted = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, other, _, pid = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
    if kind != fcntl.F_UNLCK:
        line(f"{world}.overlaps", f"round {mine} rank {rank} pid {os.getpid()}: round {other} pid {pid} is alive")
line(f"{world}.starts", mine, attempt, rank, node, os.getpid(), f"{now:.6f}")
sys.argv = sys.argv[2:]
runpy.run_path(script, run_name="__main__")
