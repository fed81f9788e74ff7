"""What can go wrong with the store, for callers to tell apart. A leaf: imports nothing of the project."""

from __future__ import annotations


class StoreError(Exception):
    """Anything the store could not do."""


class TransientError(StoreError):
    """The store could not be reached, or did not answer in time; the same call may succeed later."""


class OutcomeUnknown(TransientError):
    """A write was sent and no answer came: it may have been applied, or may still be. Re-read before deciding."""


class PermanentError(StoreError):
    """The store refused, and will refuse again: no permission, wrong password, not an etcd, out of space."""


class LeaseNotFound(PermanentError):
    """The lease has expired or was revoked. It never comes back: a new lease is a new incarnation."""


class Compacted(PermanentError):
    """The revision asked for is no longer kept; read the range again and watch from its revision + 1."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"revisions before {oldest} are compacted; read the range again and watch from there")
        self.oldest = oldest


class BadRecord(PermanentError):
    """A value in the store is not what this version writes: malformed, too large, or from a newer version."""
