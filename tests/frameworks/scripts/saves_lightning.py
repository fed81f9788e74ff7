"""Lightning with ModelCheckpoint, and fit(ckpt_path=...)."""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log, seed

torch.set_num_threads(1)
lightning.seed_everything(SEED, verbose=False)


class Net(lightning.LightningModule):
    """Two layers; its batch is made from the number of the step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        step = self.trainer.global_step + 1
        rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed(step)))
        loss = torch.nn.functional.mse_loss(self.net(rows), rows.sum(1, keepdim=True))
        log(step, loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_steps=STEPS,
    logger=False,
    callbacks=[ModelCheckpoint(dirpath=CHECKPOINTS, every_n_train_steps=SAVE_EVERY, save_top_k=-1)],
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=given.out,
)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(1000)), batch_size=1)
trainer.fit(Net(), data, ckpt_path=given.resume)
torch.distributed.destroy_process_group()
