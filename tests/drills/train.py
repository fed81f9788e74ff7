"""A rank that says from its first line on that it lives, then trains with DDP: ``train.py ALIVE FINISH [TIMEOUT_S]``.

A thread says every 5 ms, in the file ALIVE as ``beat.py`` does, that the process lives; the steps of the training are
lines of ALIVE.steps, ``node round step CLOCK_BOOTTIME``. Before anything else the rank locks its round's byte of
ALIVE.world, shared, and writes to ALIVE.overlaps whoever holds another round's: the kernel keeps such a lock for as
long as its process exists. TIMEOUT_S bounds the collectives. All ranks leave after the same step, once rank 0 has seen
the file FINISH. It runs under torchrun as well, where only hosts and restarts have names, and worlds have none.
"""

import fcntl
import os
import struct
import sys
import threading
import time

FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid

alive, finish, *timeout_s = sys.argv[1:4]
ours = "REMUSTER_ROUND" in os.environ
node, attempt = (os.environ[n] for n in ("REMUSTER_NODE", "REMUSTER_ATTEMPT")) if ours else (os.uname().nodename, "0")
mine = int(os.environ["REMUSTER_ROUND" if ours else "TORCHELASTIC_RESTART_COUNT"])


def appended(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def now() -> str:
    return f"{time.clock_gettime(time.CLOCK_BOOTTIME):.6f}"


def beat() -> None:
    fd = appended(alive)
    while True:
        os.write(fd, f"{node} {mine} {attempt} {now()}\n".encode())
        time.sleep(0.005)


def enter_world() -> None:
    """Lock this round's byte; the descriptor stays open, since closing any of this file's would end the lock."""
    world = os.open(f"{alive}.world", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(world, fcntl.LOCK_SH, 1, mine)
    for start, length in ((0, mine), (mine + 1, 0)):  # all below, all above
        wanted = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, _, other, _, _ = struct.unpack(FLOCK, fcntl.fcntl(world, fcntl.F_GETLK, wanted))
        if kind != fcntl.F_UNLCK:
            os.write(appended(f"{alive}.overlaps"), f"round {mine} on {node}: round {other} is alive\n".encode())


if ours:
    enter_world()
threading.Thread(target=beat, daemon=True).start()

from datetime import timedelta  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=float(timeout_s[0])) if timeout_s else None)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
leave = torch.zeros(1)
steps = appended(f"{alive}.steps")
step = 0
while not leave.item():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    leave[0] = float(os.path.exists(finish) and dist.get_rank() == 0)
    dist.all_reduce(leave)
    step += 1
    os.write(steps, f"{node} {mine} {step} {now()}\n".encode())
    time.sleep(0.02)
dist.destroy_process_group()
