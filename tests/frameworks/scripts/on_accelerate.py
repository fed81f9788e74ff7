"""Accelerate as its guide has it: an Accelerator that finds the ranks, ``prepare``, ``backward``, a sharded loader.

With ``--lose-rank`` rank 1 is killed in the first attempt; the next one goes on from the step that remuster chose.
"""

import os
import signal
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from say import SEED, STEPS, digest, say

from remuster import checkpoint, resume_point

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
set_seed(SEED)
data = torch.utils.data.TensorDataset(torch.randn(16 * STEPS, 8), torch.randn(16 * STEPS, 1))
model, optimizer, loader = accelerator.prepare(
    net := torch.nn.Linear(8, 1),
    torch.optim.AdamW(net.parameters(), lr=1e-2),
    torch.utils.data.DataLoader(data, batch_size=8),
)
done, batches, resumed = 0, iter(loader), resume_point()
if resumed is not None:
    state = torch.load(resumed.path / "state.pt")
    accelerator.unwrap_model(model).load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done, batches = resumed.step, iter(accelerator.skip_first_batches(loader, resumed.step))

for step, (x, y) in enumerate(batches, done + 1):
    if step == 6 and "--lose-rank" in sys.argv and resumed is None and accelerator.process_index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss = torch.nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0 and os.environ.get("REMUSTER_CHECKPOINT_DIR"):
        with checkpoint.publish(step) as publication:
            if accelerator.is_main_process:
                whole = {"model": accelerator.unwrap_model(model).state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(whole, publication.path("state.pt"))
    done = step

ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
say(
    rank=accelerator.process_index,
    local_rank=accelerator.local_process_index,
    world=accelerator.num_processes,
    kind=accelerator.distributed_type.value,
    precision=accelerator.mixed_precision,
    backend=torch.distributed.get_backend(),
    gathered=ranks,
    steps=done,
    resumed=resumed.step if resumed else 0,
    parameters=digest(accelerator.unwrap_model(model).parameters()),
)
model, optimizer = accelerator.free_memory(model, optimizer)  # DDP goes before its process group, as torch wants it
accelerator.end_training()
