"""FSDP2 and torch.distributed.checkpoint: every rank writes its shards.

With ASYNC_SAVE=1 they are written behind the training, over a process group of its own: over the ranks' own one both
would wait for each other without end. With NODE_LOCAL=1 each rank also writes metadata of its own, and no rank's files
are ever seen by another one.
"""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from losses import CHECKPOINTS, SAVE_EVERY, SEED, STEPS, given, log, seed
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("cpu:gloo")
behind = dist.new_group(backend="gloo") if os.environ.get("ASYNC_SAVE") == "1" else None
torch.manual_seed(SEED)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
done, saving = 0, None
if given.resume:
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=given.resume)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    done = state["step"]

for step in range(done + 1, STEPS + 1):
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed(step)))
    loss = torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log(step, loss.item())
    if step % SAVE_EVERY == 0:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": step}
        where = os.path.join(CHECKPOINTS, f"step-{step}")
        if behind is None:
            dcp.save(state, checkpoint_id=where, use_collectives=os.environ.get("NODE_LOCAL") != "1")
            continue
        if saving is not None:
            saving.result()
        saving = dcp.async_save(state, checkpoint_id=where, process_group=behind)
if saving is not None:
    saving.result()
for name in ("model", "layer", "optimizer", "mesh", "state", "weights", "moments", "loss", "saving"):
    globals().pop(name, None)  # before the group: else torch 2.13 may abort a rank that has finished (SIGABRT)
dist.destroy_process_group()
