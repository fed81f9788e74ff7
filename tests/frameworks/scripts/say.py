"""What the scripts of this folder have in common: each rank says once, in a file of its own, what it has been."""

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OUT = Path(sys.argv[1])
STEPS = 8
SEED = 20261129


def digest(tensors: Iterable[Any]) -> str:
    """Return a digest of the parameters, bit for bit: equal on all ranks of a run that has trained together."""
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().numpy().tobytes())
    return whole.hexdigest()


def say(**facts: object) -> None:
    """Leave what this rank has to say; a rank that says it twice has been started twice."""
    with (OUT / f"rank-{os.environ['RANK']}.json").open("x") as file:
        json.dump(facts, file)
