"""Where an ordinary DataLoader stands, counted in batches that the script has been given, not in those prefetched.

For scripts without torchdata's StatefulDataLoader, which knows its position itself and need not read anything twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .rng import capture, put_back


class Cursor:
    """Iterates a DataLoader epoch by epoch, and can go on in the middle of one: ``for batch in cursor``.

    Each ``for`` is one epoch, or what is left of the one it stands in. On going on it draws the epoch's order again
    from the random states with which the epoch began, and reads the batches that are done once more.
    """

    def __init__(self, loader: Any) -> None:
        self.epoch = 0
        self.batches = 0  # of this epoch, handed out
        self._loader = loader
        self._began: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        done = self.batches
        for sampler in (self._loader.sampler, self._loader.batch_sampler):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.epoch)
        if done and self._began is not None:
            now = capture()
            self._put_back(self._began)
            batches = iter(self._loader)
            for _ in range(done):
                next(batches)
            put_back(now)  # what follows is drawn as if nothing had been read twice
        else:
            self._began = self._capture()
            batches = iter(self._loader)
        for batch in batches:
            self.batches += 1
            yield batch
        self.epoch += 1
        self.batches = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain values."""
        return {"epoch": self.epoch, "batches": self.batches, "began": self._began}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Stand where a cursor over the same data stood; takes effect with the next ``for``."""
        self.epoch, self.batches, self._began = state_dict["epoch"], state_dict["batches"], state_dict["began"]

    def reshared(self, state_dict: dict[str, Any], before: int, now: int) -> dict[str, Any]:
        """Return the position for another number of ranks: no sample is left out, less than a batch each comes again.

        True for a DistributedSampler and batches of the same size: the ranks together walk one order of the samples.
        """
        return {**state_dict, "batches": state_dict["batches"] * before // now}

    def _generators(self) -> list[Any]:
        """Return the generators that draw the order, where the script has given some, each once."""
        owners = (self._loader, self._loader.sampler, self._loader.batch_sampler)
        found = (getattr(owner, "generator", None) for owner in owners)
        return list({id(one): one for one in found if one is not None}.values())

    def _capture(self) -> dict[str, Any]:
        # A GPU's state has no part in it: batches are made on the host.
        states = {name: state for name, state in capture().items() if name != "cuda"}
        return {"states": states, "generators": [one.get_state() for one in self._generators()]}

    def _put_back(self, began: dict[str, Any]) -> None:
        put_back(began["states"])
        for generator, state in zip(self._generators(), began["generators"], strict=True):
            generator.set_state(state)
