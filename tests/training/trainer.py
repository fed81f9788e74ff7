"""A rank that trains, with dropout, shuffling, a schedule, accumulation, and keeps all through ``remuster.checkpoint``.

Run by ``nursery``, in a process of its own for each rank; not a test module. Every loss goes to a file, to the last
bit, with a number of each source of chance, and with what each save ended in.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict  # here, and not in each rank
import torch.distributed.tensor
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from remuster import checkpoint

torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
ACCUMULATE = 2
WATCHED = ("open", "os.rename", "os.mkdir", "os.remove", "os.listdir", "os.scandir", "shutil.rmtree")


@dataclass(frozen=True)
class Job:
    """What the ranks of one attempt are to do."""

    out: str
    kind: str = "ddp"  # or fsdp2
    mode: str = "sync"  # or async
    batches: int = 24
    save_every: int = 3
    world: int = 2
    attempt: int = 0
    resume: str = ""
    allow: bool = False
    fault: str = ""
    victim: int = -1  # rank that is killed
    at_save: int = 0  # counted in this attempt, from 0
    delay_s: float = 0.0
    at_operation: int = 0  # of the file system, counted from the beginning of that save; 0: by time
    stop_after: int = 0  # batch after which all ranks just end


class Broken:
    """A part of a training state with a fault of its own."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def state_dict(self) -> dict[str, Any]:
        if self.fault == "raises":
            raise RuntimeError("no state today")
        return {"tool": threading.Lock()} if self.fault == "no plain value" else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state == {}


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Dropout(0.3), nn.Linear(40, 24), nn.ReLU(), nn.Linear(24, 4))


def loss_of(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


def die(job: Job) -> None:
    """Arrange for SIGKILL at some moment from now on."""
    if job.at_operation:
        left = [job.at_operation]

        def count(event: str, _: tuple[Any, ...]) -> None:
            if event in WATCHED:
                left[0] -= 1
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        return

    def wait() -> None:
        time.sleep(job.delay_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def run(job: Job, rank: int) -> None:
    """Train from where the job says to its end."""
    meet = Path(job.out) / f"meet-{job.attempt}"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=job.world)

    data = torch.Generator().manual_seed(5)
    dataset = TensorDataset(torch.randn(90, 12, generator=data), torch.randint(0, 4, (90,), generator=data))
    sampler: Any = DistributedSampler(dataset, shuffle=True, seed=7)
    cursor = checkpoint.Cursor(DataLoader(dataset, batch_size=5, sampler=sampler))

    torch.manual_seed(11)
    model: Any = network()
    if job.kind == "fsdp2":
        for part in model:
            if isinstance(part, nn.Linear):
                fully_shard(part)
        fully_shard(model)
        scaler = None
    elif job.kind == "stages":
        model, scaler = nn.Sequential(*list(model)[: 6 - 2 * rank]), None
    else:
        model = DistributedDataParallel(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=1000)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(100 + rank)  # unless restored, chance is each rank's own

    state = checkpoint.TrainState(
        model=model,
        optimizer=optimizer,
        scheduler=schedule,
        scaler=scaler,
        data=cursor,
        per_rank={
            "noise": torch.Generator().manual_seed(rank),
            "part": Broken(job.fault if rank == 1 and job.fault != "flight" else ""),
        },
    )
    with open(f"{job.out}/rank-{rank}.log", "a", buffering=1) as log:
        try:
            done = checkpoint.restore(state, job.resume or None, allow_world_change=job.allow)
        except checkpoint.RestoreError as e:
            log.write(f"restore {e}\n")
            return
        if job.resume:
            log.write(f"resumed {done} epoch={cursor.epoch} batches={cursor.batches}\n")
        if job.fault == "disk" and rank == 1:  # the kernel refuses the write, as a full disk would
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        if job.fault == "flight":
            state.flight.start(lambda: Broken("raises" if rank == 1 else "").state_dict())
        saves = 0
        while done < job.batches:
            for batch in cursor:
                done += 1
                last = (state.accumulated + 1) % ACCUMULATE == 0
                quiet = model.no_sync() if job.kind == "ddp" and not last else contextlib.nullcontext()
                with quiet:
                    loss = loss_of(model, batch) / ACCUMULATE
                    (scaler.scale(loss) if scaler else loss).backward()
                state.accumulated += 1
                if last:
                    scaler.step(optimizer) if scaler else optimizer.step()
                    if scaler:
                        scaler.update()
                    schedule.step()
                    optimizer.zero_grad()
                    state.accumulated = 0
                noise = torch.rand((), generator=state.per_rank["noise"])
                drawn = (random.random(), float(np.random.standard_normal()), float(torch.rand(())), float(noise))
                log.write(f"batch {done} {loss.item().hex()} {schedule.get_last_lr()[0].hex()} {drawn}\n")
                if done % job.save_every == 0:
                    if rank == job.victim and saves == job.at_save:
                        die(job)
                    saves += 1
                    try:
                        if job.mode == "sync":
                            checkpoint.save(done, state)
                        else:
                            checkpoint.async_save(done, state)
                        log.write(f"{'saved' if job.mode == 'sync' else 'begun'} {done}\n")
                    except checkpoint.PublishError as e:
                        log.write(f"error {done} {e}\n")
                if done in (job.batches, job.stop_after):
                    break
            if done == job.stop_after:
                break
        try:
            checkpoint.finish(state)
        except checkpoint.PublishError as e:
            log.write(f"error end {e}\n")
        log.write("end\n")
    del model, state.model, state
    dist.destroy_process_group()
