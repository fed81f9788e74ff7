"""What can go wrong in the room ``health``, for callers to tell apart. A leaf: imports nothing of the project."""

from __future__ import annotations


class HealthError(Exception):
    """Anything the judging of a failure could not do."""


class BadEvidence(HealthError):
    """Bytes that are not a node's evidence as this version writes it: malformed, too large, or from a newer version."""
