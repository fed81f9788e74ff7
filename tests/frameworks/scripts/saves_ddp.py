"""DDP and plain torch.save: rank 0 writes one file, in place, with the random state of every rank."""

import os

import torch
import torch.distributed as dist
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log, seed
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(SEED)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
torch.manual_seed(SEED + rank)
done = 0
if given.resume:
    state = torch.load(given.resume)
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    torch.set_rng_state(state["random"][rank])
    done = state["step"]


def save(step: int) -> None:
    """Save at once; nothing is renamed, so that a kill leaves a torn file under the right name."""
    random = [torch.empty_like(torch.get_rng_state()) for _ in range(world)]
    dist.all_gather(random, torch.get_rng_state())
    if rank == 0:
        state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        os.makedirs(CHECKPOINTS, exist_ok=True)
        torch.save({**state, "random": random, "step": step}, os.path.join(CHECKPOINTS, f"step-{step}.pt"))
    dist.barrier()


for step in range(done + 1, STEPS + 1):
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed(step)))
    loss = torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    log(step, loss.item())
    if step % SAVE_EVERY == 0:
        save(step)
dist.destroy_process_group()
