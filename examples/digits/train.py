"""Train a small network on scikit-learn's digits with DDP, so that it can be killed anywhere and lose nothing.

An ordinary DDP script; what it does for re-entry is marked ``re-entry:``. Everything that decides the next step is in
the checkpoint: weights, AdamW's moments, the learning-rate schedule, each rank's random state (dropout) and the
sampler's position. ``check.py`` proves it. Start it with ``remuster``, torchrun, or with torchrun's variables by hand.
"""

import argparse
import base64
import hashlib
import importlib.util
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from remuster import checkpoint, heartbeat, resume_point

SEED = 20261129
STATE = "state.pt"
CLIP = 1.0  # of the gradients' norm


class Sampler:
    """An endless stream of sample ids, shuffled anew every epoch; its position is all there is to remember."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.position = 0

    def take(self, batch: int) -> list[int]:
        """Return the next ``batch`` ids of all ranks together."""
        ids: list[int] = []
        while len(ids) < batch:
            epoch, offset = divmod(self.position, self.count)
            order = np.random.default_rng((SEED, epoch)).permutation(self.count)
            part = order[offset : offset + batch - len(ids)].tolist()
            self.position += len(part)
            ids += part
        return ids


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Read scikit-learn's digits from its own file; importing it would nearly double the start-up of every rank."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this example trains on scikit-learn's digits: pip install scikit-learn")
    table = np.loadtxt(Path(spec.submodule_search_locations[0], "datasets/data/digits.csv.gz"), delimiter=",")
    return torch.from_numpy((table[:, :-1] / 16.0).astype(np.float32)), torch.from_numpy(table[:, -1].astype(np.int64))


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(96, 10))


def mean_in_rank_order(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average gradients by adding them rank by rank.

    DDP lays its buckets out anew after the first step of a process, and a ring all-reduce adds an element's parts in
    an order that depends on where it lies: with three or more ranks the first step after a resume would round
    differently. Adding in rank order does not depend on the layout.
    """
    mine = bucket.buffer()
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    total = parts[0]
    for part in parts[1:]:
        total += part
    mean: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    mean.set_result(total / len(parts))
    return mean


def rng_name(rank: int) -> str:
    return f"rng-{rank}.pt"


def write_final(out: Path, model: torch.nn.Module, step: int, world: int) -> str:
    """Write the final weights and the sha256 over their raw bytes, in the model's own order; return the digest."""
    sha256 = hashlib.sha256()
    tensors = []
    for name, tensor in model.state_dict().items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        sha256.update(raw)
        shape = list(tensor.shape)
        tensors.append(
            {"name": name, "dtype": str(tensor.dtype), "shape": shape, "base64": base64.b64encode(raw).decode()}
        )
    digest = sha256.hexdigest()
    fresh = out / "final.json.tmp"
    fresh.write_text(json.dumps({"step": step, "world_size": world, "sha256": digest, "tensors": tensors}) + "\n")
    os.replace(fresh, out / "final.json")
    return digest


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="directory for logs, the result, and checkpoints")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--batch", type=int, default=64, help="samples of one step, all ranks together")
    parser.add_argument("--step-ms", type=float, default=0.0, help="make each step take at least this long")
    parser.add_argument(
        "--sabotage", choices=("rng", "optimizer", "sampler"), help="do not restore this: check.py must notice"
    )
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt, round_ = (int(os.environ.get(name) or 0) for name in ("REMUSTER_ATTEMPT", "REMUSTER_ROUND"))

    images, labels = digits()
    torch.manual_seed(SEED)
    model = network()
    torch.manual_seed(SEED + 1 + rank)  # from here on the random stream is the rank's own
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    sampler = Sampler(len(labels))
    done = 0

    point = resume_point()
    if point is not None:  # re-entry: every rank gets the same verified checkpoint, or none does
        state = torch.load(point.path / STATE, weights_only=True)
        done = state["step"]
        model.load_state_dict(state["model"])
        schedule.load_state_dict(state["schedule"])
        if args.sabotage != "optimizer":
            optimizer.load_state_dict(state["optimizer"])
        if args.sabotage != "sampler":
            sampler.position = state["position"]
        rng = point.path / rng_name(rank)
        if args.sabotage != "rng" and rng.exists():  # a rank that the old world did not have starts its own stream
            torch.set_rng_state(torch.load(rng, weights_only=True))
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, mean_in_rank_order)

    samples = args.out / "samples"
    samples.mkdir(parents=True, exist_ok=True)
    checkpoints = os.environ.get("REMUSTER_CHECKPOINT_DIR") or args.out / "checkpoints"
    with open(samples / f"attempt-{attempt}-rank-{rank}.jsonl", "a", buffering=1) as log:
        start = {"attempt": attempt, "round": round_, "rank": rank, "world_size": world}
        log.write(json.dumps({**start, "resume_step": None if point is None else point.step}) + "\n")
        while done < args.steps:
            due = time.monotonic() + args.step_ms / 1000
            ids = sampler.take(args.batch)[rank::world]
            loss = torch.nn.functional.cross_entropy(ddp(images[ids]), labels[ids])
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            [rate] = schedule.get_last_lr()
            schedule.step()
            done += 1
            heartbeat(done)
            line = {"attempt": attempt, "round": round_, "step": done, "ids": ids}
            if rank == 0:
                line |= {"loss": loss.item().hex(), "grad_norm": norm.item().hex(), "lr": rate.hex()}  # to the last bit
            log.write(json.dumps(line) + "\n")
            if done % args.save_every == 0 or done == args.steps:  # re-entry: all ranks publish together
                with checkpoint.publish(done, checkpoints, dataset_snapshot="sklearn-digits-1797") as p:
                    if rank == 0:
                        state = {
                            "step": done,
                            "model": model.state_dict(),
                            "optimizer": optimizer.state_dict(),
                            "schedule": schedule.state_dict(),
                            "position": sampler.position,
                        }
                        torch.save(state, p.path(STATE))
                    torch.save(torch.get_rng_state(), p.path(rng_name(rank)))
                if rank == 0:
                    print(f"attempt {attempt}: step {done} of {args.steps} saved, loss {loss.item():.4f}", flush=True)
            time.sleep(max(0.0, due - time.monotonic()))

    if rank == 0:
        print(f"done at step {done}: weights sha256:{write_final(args.out, model, done, world)}", flush=True)
    # If the reducer is the last to let go of the group, it joins gloo's threads while it holds the GIL, and one of them
    # may need the GIL to drop the tensors of the last gather: the finished rank would hang (torch 2.13, 1 run in 15).
    del ddp
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
