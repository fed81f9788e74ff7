"""What can go wrong with checkpoints, for callers to tell apart. A leaf: imports nothing of the project."""

from __future__ import annotations


class CheckpointError(Exception):
    """Anything this room could not do."""


class BadManifest(CheckpointError):
    """A manifest.json is not what the protocol writes: malformed, too large, unsafe, or from a newer version."""


class PublishError(CheckpointError):
    """A step could not be published. Every rank of the publication gets it, with the rank and file at fault."""


class RestoreError(CheckpointError):
    """A step could not be restored. Every rank gets it; what was set before is not set back: end, or start anew."""


class Unreadable(CheckpointError):
    """The checkpoint directory itself could not be read, so nothing may be concluded about what it holds."""


class GaveUp(CheckpointError):
    """The caller's time was over before a step had been verified."""
