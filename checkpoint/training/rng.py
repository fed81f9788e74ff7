"""The random states of this process as plain values: Python's, numpy's if the script has it, torch's, its GPU's.

Nothing here draws a number. Called by ``collect``, ``restoring`` and ``cursor``.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from typing import Any


def capture() -> dict[str, Any]:
    """Return the random states, of the GPU only where this process uses one (its current device)."""
    torch: Any = import_module("torch")
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state(legacy=False)
        states["numpy"] = {
            "bit_generator": state["bit_generator"],
            "key": torch.tensor(state["state"]["key"].tolist(), dtype=torch.int64),
            "pos": int(state["state"]["pos"]),
            "has_gauss": int(state["has_gauss"]),
            "gauss": float(state["gauss"]),
        }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def put_back(states: dict[str, Any]) -> None:
    """Set the random states that were captured; those of a library that is not loaded here are left out."""
    torch: Any = import_module("torch")
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "numpy" in states:
        kept = states["numpy"]
        numpy.random.set_state(
            (
                kept["bit_generator"],
                numpy.array(kept["key"].tolist(), dtype=numpy.uint32),
                kept["pos"],
                kept["has_gauss"],
                kept["gauss"],
            )
        )
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
