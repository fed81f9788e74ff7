"""Scripts that speak torchelastic: they see that they were launched, and get a --local-rank when they ask."""

from __future__ import annotations

import importlib.util
import json

import pytest
from command.cluster import Place

HAS_TORCH = importlib.util.find_spec("torch") is not None

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_TORCH, reason="needs torch; see requirements/train.txt"),
]
PATIENCE_S = 120.0  # two ranks import torch

ASKS = """
import json, os, sys
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    said = {
        "launched": dist.is_torchelastic_launched(),
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        "argv": sys.argv[1:],
    }
    dist.barrier()
    dist.destroy_process_group()
    with open(f"said-{said['rank']}", "w") as file:
        json.dump(said, file)

main()
"""


@pytest.mark.parametrize(
    ("given", "seen"),
    [((), [[], []]), (("--local-rank=${local_rank}",), [["--local-rank=0"], ["--local-rank=1"]])],
    ids=["no local rank unless asked", "a local rank when asked"],
)
def test_a_rank_knows_that_it_was_launched(place: Place, given: tuple[str, ...], seen: list[list[str]]) -> None:
    node = place.command("--nproc-per-node", "2", place.script("t.py", ASKS), *given)
    assert node.exit_code(PATIENCE_S) == 0, node.say()
    said = [json.loads((place.folder / f"said-{rank}").read_text()) for rank in (0, 1)]
    assert [one.pop("argv") for one in said] == seen
    assert said == [{"launched": True, "rank": rank, "world": 2, "restarts": 0} for rank in (0, 1)]
