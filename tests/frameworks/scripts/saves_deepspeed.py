"""DeepSpeed's ZeRO-1 on the CPU, with save_checkpoint and load_checkpoint(directory, tag)."""

import deepspeed
import torch
import torch.distributed as dist
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log, seed

torch.set_num_threads(1)
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(SEED)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
engine, *_ = deepspeed.initialize(
    model=net,
    model_parameters=net.parameters(),
    optimizer=torch.optim.AdamW(net.parameters(), lr=1e-2),
    config={
        "train_batch_size": 8 * dist.get_world_size(),
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1_000_000,
    },
)
if given.resume:
    path, _ = engine.load_checkpoint(given.resume, tag=given.tag)
    assert path, f"there is no {given.tag} in {given.resume}"

for step in range(engine.global_steps + 1, STEPS + 1):
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed(step)))
    loss = torch.nn.functional.mse_loss(engine(rows), rows.sum(1, keepdim=True))
    engine.backward(loss)
    engine.step()
    log(step, loss.item())
    if step % SAVE_EVERY == 0:
        engine.save_checkpoint(CHECKPOINTS)
dist.destroy_process_group()
