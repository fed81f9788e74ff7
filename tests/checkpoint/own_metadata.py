"""Saves with torch as each rank for itself does it, without collectives: ``own_metadata.py FOLDER``, a child of tests.

Below FOLDER there are ``own-2``, ``own-4``, ``own-2x2`` (a mesh of two dimensions, HSDP) and ``own-same`` (two ranks,
nothing cut), each with its ``step-5``. The same has made the samples of these names. The last line that is written is
what two ranks found in their tensors after they had loaded what four had saved: "wrong" if torch said nothing.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

KINDS = {"own-2": (2,), "own-4": (4,), "own-2x2": (2, 2), "own-same": (2,)}


def state(shape: tuple[int, ...], cut: bool, seed: int = 7) -> dict[str, object]:
    """Return what a rank saves: sizes that four ranks divide, do not divide, and that are too small for all of them."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 7), torch.nn.Linear(7, 3))
    if cut:
        names = ("a", "b")[: len(shape)]
        fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
    return {"model": model.state_dict(), "mean": torch.arange(3.0), "step": 5}


def save(place: Path, name: str, shape: tuple[int, ...]) -> None:
    dcp.save(state(shape, name != "own-same"), checkpoint_id=place / name / "step-5", use_collectives=False)


def load(place: Path, told: Path) -> None:
    """Load what four ranks have saved, as one of two."""
    expected, held = (state((2,), True, seed)["model"] for seed in (7, 8))
    assert isinstance(expected, dict)
    assert isinstance(held, dict)
    dcp.load({"model": held}, checkpoint_id=place / "own-4" / "step-5")
    right = all(torch.equal(held[name].to_local(), expected[name].to_local()) for name in expected)
    told.write_text("right" if right else "wrong")


def as_ranks(folder: Path, world: int, what: Callable[[int], object]) -> None:
    """Call it in each of so many ranks, which are forked: importing torch takes seconds."""
    meeting = folder / f"meet-{world}-{os.urandom(4).hex()}"
    children: list[int] = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
                what(rank)
                dist.destroy_process_group()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    ended = [os.waitpid(pid, 0)[1] for pid in children]
    if any(ended):
        raise SystemExit("a rank failed")
    meeting.unlink(missing_ok=True)


def main(folder: Path) -> None:
    """Save all kinds, then load one of them wrongly."""
    warnings.simplefilter("ignore")  # torch finds the checkpoint of a rank that was quicker
    torch.set_num_threads(1)
    dcp.save({"a": torch.ones(1)}, checkpoint_id=folder / "alone", no_dist=True)  # imports the rest, for all ranks
    for name, shape in KINDS.items():
        world = torch.Size(shape).numel()
        as_ranks(folder, world, lambda _, name=name, shape=shape: save(folder, name, shape))
    as_ranks(folder, 2, lambda rank: load(folder, folder / f"loaded-{rank}"))
    print(*((folder / f"loaded-{rank}").read_text() for rank in range(2)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
