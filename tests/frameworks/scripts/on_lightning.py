"""Lightning with DDP: its Trainer must find that somebody else has started the ranks, and start none itself."""

import os
import sys

import lightning
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from say import OUT, SEED, STEPS, digest, say

torch.set_num_threads(1)
lightning.seed_everything(SEED, verbose=False)


class Line(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self.line(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


data = torch.utils.data.TensorDataset(torch.randn(16 * STEPS, 8), torch.randn(16 * STEPS, 1))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_steps=STEPS,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=OUT,
)
model = Line()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
say(
    rank=trainer.global_rank,
    local_rank=trainer.local_rank,
    world=trainer.world_size,
    kind=type(trainer.strategy.cluster_environment).__name__,
    backend=torch.distributed.get_backend(),
    detected=TorchElasticEnvironment.detect(),
    creates_processes=not trainer.strategy.cluster_environment.creates_processes_externally,
    steps=trainer.global_step,
    parameters=digest(model.parameters()),
)
torch.distributed.destroy_process_group()
sys.exit(0)
