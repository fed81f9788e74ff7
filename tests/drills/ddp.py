"""A rank that trains with DDP on gloo: ``ddp.py ALIVE FINISH``, saying at each step that it is alive, as ``beat.py``.

All ranks leave after the same step, once rank 0 has seen the file FINISH.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

alive, finish = sys.argv[1:3]
who = " ".join(os.environ[name] for name in ("REMUSTER_NODE", "REMUSTER_ROUND", "REMUSTER_ATTEMPT"))
fd = os.open(alive, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
leave = torch.zeros(1)
while not leave.item():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    leave[0] = float(os.path.exists(finish) and dist.get_rank() == 0)
    dist.all_reduce(leave)
    os.write(fd, f"{who} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n".encode())
    time.sleep(0.01)
dist.destroy_process_group()
