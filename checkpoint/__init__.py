"""The way back in: publishing a step so that it is whole or absent, and choosing the one to re-enter from.

Training scripts use ``publish`` from here, or ``save`` and ``restore``, which know what a run with DDP or FSDP2
consists of. The agent uses ``checkpoint.resume`` and reads ``checkpoint.verify``'s values. Nothing here imports torch
before ``save`` or ``restore`` is called: a script that has an initialised process group lends it.
"""

from __future__ import annotations

from .errors import BadManifest, CheckpointError, PublishError, RestoreError
from .publication import Publication, publish

TYPE_CHECKING = False  # as in remuster/__init__.py; the agent, which imports this too, needs none of these
if TYPE_CHECKING:
    from .training.cursor import Cursor as Cursor
    from .training.restoring import restore as restore
    from .training.saving import async_save as async_save
    from .training.saving import finish as finish
    from .training.saving import save as save
    from .training.state import TrainState as TrainState

_TRAINING = {
    "Cursor": "cursor",
    "TrainState": "state",
    "async_save": "saving",
    "finish": "saving",
    "restore": "restoring",
    "save": "saving",
}

__all__ = [
    "BadManifest",
    "CheckpointError",
    "Cursor",
    "Publication",
    "PublishError",
    "RestoreError",
    "TrainState",
    "async_save",
    "finish",
    "publish",
    "restore",
    "save",
]


def __getattr__(name: str) -> object:
    if name in _TRAINING:
        from importlib import import_module

        return getattr(import_module(f".training.{_TRAINING[name]}", __name__), name)
    raise AttributeError(f"module 'remuster.checkpoint' has no attribute {name!r}")
