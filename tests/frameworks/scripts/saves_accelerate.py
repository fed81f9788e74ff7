"""Accelerate's save_state and load_state, with dropout, a schedule, and a counter of its own.

With NODE_LOCAL=1 each node has a directory of its own.
"""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log, seed


class Progress:
    """How many steps are done; saved with the rest."""

    step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


torch.set_num_threads(1)
everywhere = ProjectConfiguration(save_on_each_node=os.environ.get("NODE_LOCAL") == "1")
accelerator, progress = Accelerator(cpu=True, project_config=everywhere), Progress()
set_seed(SEED)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
adam = torch.optim.AdamW(net.parameters(), lr=1e-2)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS * accelerator.num_processes)
model, optimizer, scheduler = accelerator.prepare(net, adam, cosine)
accelerator.register_for_checkpointing(progress)
torch.manual_seed(SEED + accelerator.process_index)
if given.resume:
    accelerator.load_state(given.resume)

for step in range(progress.step + 1, STEPS + 1):
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed(step)))
    loss = torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    progress.step = step
    log(step, loss.item())
    if step % SAVE_EVERY == 0:
        accelerator.save_state(os.path.join(CHECKPOINTS, f"checkpoint_{step}"))
model, optimizer, scheduler = accelerator.free_memory(model, optimizer, scheduler)
accelerator.end_training()
