"""The way back in: publishing a step so that it is whole or absent, and choosing the one to re-enter from.

Training scripts use ``publish`` from here. The agent uses ``checkpoint.resume`` and reads ``checkpoint.verify``'s
values. Nothing here imports torch: a script that has an initialised process group lends it.
"""

from .errors import BadManifest, CheckpointError, PublishError
from .publication import Publication, publish

__all__ = ["BadManifest", "CheckpointError", "Publication", "PublishError", "publish"]
