"""The store's interface: a small ordered key-value tree with revisions, leases and watches (etcd v3's model).

Values only, and one protocol with two adapters: ``memory.MemoryStore`` (``--standalone``) and ``etcd.EtcdStore``.
Both pass the same contract suite. The shell of the agent calls it; the machines only build the values.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
from collections.abc import AsyncGenerator
from enum import Enum
from typing import NamedTuple, Protocol


class KeyValue(NamedTuple):
    """One key at one revision. ``lease`` is 0 when the key hangs on none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


class Range(NamedTuple):
    """Keys in ascending order as they stood at ``revision`` (the store's, not the newest key's)."""

    items: tuple[KeyValue, ...]
    revision: int

    def one(self) -> KeyValue | None:
        """Return the single key of a one-key read, or None when it is absent."""
        return self.items[0] if self.items else None


class Field(Enum):
    """What a guard compares, by equality; 0 of CREATE or MOD means that the key is absent."""

    CREATE = "create_revision"
    MOD = "mod_revision"
    LEASE = "lease"


class Compare(NamedTuple):
    """A guard: ``field`` of ``key`` equals ``value``; with ``end``, that of every key in [key, end), or 0 of none."""

    key: str
    field: Field
    value: int
    end: str | None = None


class Put(NamedTuple):
    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete ``key``; with ``end``, every key in [key, end)."""

    key: str
    end: str | None = None


class Get(NamedTuple):
    """Read ``key``; with ``end``, every key in [key, end)."""

    key: str
    end: str | None = None


Op = Put | Delete | Get


class Txn(NamedTuple):
    """If every guard holds, ``then`` is applied as one, else ``otherwise`` (reads only, by this project's use)."""

    guards: tuple[Compare, ...]
    then: tuple[Op, ...]
    otherwise: tuple[Get, ...] = ()


class TxnResult(NamedTuple):
    """``ranges`` holds one answer per Get of the branch that ran, in order."""

    succeeded: bool
    revision: int
    ranges: tuple[Range, ...] = ()


class WatchEvent(NamedTuple):
    """A key that was put (``kv``), or deleted (``kv`` is None) at ``revision``."""

    key: str
    revision: int
    kv: KeyValue | None


class WatchBatch(NamedTuple):
    """All events of one or more whole revisions, in order; a revision is never split over two batches."""

    events: tuple[WatchEvent, ...]


def prefix_end(prefix: str) -> str:
    """Return the end of the range that holds every key beginning with ``prefix``."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class Store(Protocol):
    """Every call has its own deadline and raises ``errors.TransientError`` past it; reads are linearizable.

    Reads, grants and keepalives are retried inside until the deadline. A ``txn`` whose answer was lost raises
    ``OutcomeUnknown`` and is never re-sent by the adapter: it may be applied late, so every write of the protocol
    is guarded by revisions and decided again from what is read.
    """

    async def range(self, key: str, end: str | None = None) -> Range:
        """Read ``key``, or [key, end)."""
        ...

    async def txn(self, txn: Txn) -> TxnResult:
        """Apply ``txn`` atomically; OutcomeUnknown when the answer was lost."""
        ...

    async def grant(self, ttl_s: int, lease_id: int) -> int:
        """Create lease ``lease_id`` (chosen by the caller, so a retry is recognisable); return the TTL granted, s."""
        ...

    async def keepalive(self, lease_id: int, timeout_s: float) -> int:
        """Renew once; return the TTL in seconds. LeaseNotFound when it is gone."""
        ...

    async def revoke(self, lease_id: int) -> None:
        """Delete the lease and its keys; a lease already gone is no error."""
        ...

    def watch(self, key: str, end: str | None, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Yield every event of [key, end) from ``from_revision`` on, across reconnects, none lost or doubled.

        Raises Compacted when that revision is gone, PermanentError when refused. Ends only when closed
        (``contextlib.aclosing``).
        """
        ...

    async def close(self) -> None:
        """Release connections; pending calls and watches end."""
        ...
