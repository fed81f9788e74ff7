"""The key tree as a value: what etcd's state machine does to keys, revisions and leases, and nothing else.

No clock, no history, no connection: ``memory.MemoryStore`` adds time and watches, the simulator adds its own.
A tree is never changed: ``apply`` and its kin return the next one, so holding an old tree is a free snapshot.
A write copies the key tables once (tens of microseconds at some thousand keys).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import LeaseNotFound, PermanentError
from .store import Compare, Delete, Field, Get, KeyValue, Op, Put, Range, Txn, TxnResult, WatchBatch, WatchEvent


def _no_keys() -> dict[str, KeyValue]:
    return {}


@dataclass(frozen=True, slots=True)
class Tree:
    """Keys, their revisions and the leases that live. An empty tree is at revision 1, as an empty etcd is."""

    revision: int = 1
    leases: frozenset[int] = frozenset()
    _kvs: Mapping[str, KeyValue] = field(default_factory=_no_keys)
    _keys: Sequence[str] = ()  # of _kvs, sorted

    def range(self, key: str, end: str | None = None) -> Range:
        """Read ``key``, or [key, end)."""
        return _read(self._kvs, self._keys, key, end, self.revision)

    def apply(self, txn: Txn) -> tuple[Tree, TxnResult, WatchBatch | None]:
        """Apply ``txn``: return the next tree, the answer, and the events of the new revision, if it made one.

        Raises LeaseNotFound for a put on a lease that does not live, PermanentError for a key written twice.
        """
        _refuse_twice(txn.then)
        succeeded = all(self._holds(guard) for guard in txn.guards)
        branch: tuple[Op, ...] = txn.then if succeeded else txn.otherwise
        for op in branch:
            if isinstance(op, Put) and op.lease and op.lease not in self.leases:
                raise LeaseNotFound(f"put of {op.key!r}: lease {op.lease:x} has expired or was revoked")

        kvs, keys, revision = dict(self._kvs), list(self._keys), self.revision + 1
        ranges: list[Range] = []
        events: list[WatchEvent] = []
        for op in branch:
            if isinstance(op, Get):
                ranges.append(_read(kvs, keys, op.key, op.end, revision if events else self.revision))
            elif isinstance(op, Put):
                old = kvs.get(op.key)
                kv = KeyValue(op.key, op.value, old.create_revision if old else revision, revision, op.lease)
                if old is None:
                    insort(keys, op.key)
                kvs[op.key] = kv
                events.append(WatchEvent(op.key, revision, kv))
            else:
                events += _delete(kvs, keys, _names(keys, op.key, op.end), revision)
        if not events:
            return self, TxnResult(succeeded, self.revision, tuple(ranges)), None
        tree = Tree(revision, self.leases, kvs, keys)
        return tree, TxnResult(succeeded, revision, tuple(ranges)), WatchBatch(tuple(events))

    def grant(self, lease_id: int) -> Tree:
        """Return the tree in which ``lease_id`` lives; the same tree when it does already."""
        if lease_id in self.leases:
            return self
        return Tree(self.revision, self.leases | {lease_id}, self._kvs, self._keys)

    def drop_lease(self, lease_id: int) -> tuple[Tree, WatchBatch | None]:
        """End ``lease_id`` and delete its keys in one revision; a lease that does not live changes nothing."""
        if lease_id not in self.leases:
            return self, None
        leases = self.leases - {lease_id}
        held = [name for name in self._keys if self._kvs[name].lease == lease_id]
        if not held:
            return Tree(self.revision, leases, self._kvs, self._keys), None
        kvs, keys, revision = dict(self._kvs), list(self._keys), self.revision + 1
        events = _delete(kvs, keys, held, revision)
        return Tree(revision, leases, kvs, keys), WatchBatch(tuple(events))

    def _holds(self, guard: Compare) -> bool:
        if guard.end is not None and (names := _names(self._keys, guard.key, guard.end)):
            return all(self._holds(Compare(name, guard.field, guard.value)) for name in names)
        kv = self._kvs.get(guard.key) if guard.end is None else None
        if kv is None:
            return guard.value == 0
        if guard.field is Field.CREATE:
            return kv.create_revision == guard.value
        if guard.field is Field.MOD:
            return kv.mod_revision == guard.value
        return kv.lease == guard.value


def _names(keys: Sequence[str], key: str, end: str | None) -> list[str]:
    first = bisect_left(keys, key)
    if end is not None:
        return list(keys[first : bisect_left(keys, end, first)])
    return [key] if first < len(keys) and keys[first] == key else []


def _read(kvs: Mapping[str, KeyValue], keys: Sequence[str], key: str, end: str | None, revision: int) -> Range:
    if end is None:
        kv = kvs.get(key)
        return Range((kv,) if kv else (), revision)
    return Range(tuple(kvs[name] for name in _names(keys, key, end)), revision)


def _delete(kvs: dict[str, KeyValue], keys: list[str], names: Sequence[str], revision: int) -> list[WatchEvent]:
    for name in names:
        del kvs[name]
        del keys[bisect_left(keys, name)]
    return [WatchEvent(name, revision, None) for name in names]


def _refuse_twice(ops: Iterable[Op]) -> None:
    """Refuse what etcd refuses: a key put twice, or put and deleted, in one transaction (deletes may overlap)."""
    put: set[str] = set()
    deletes: list[Delete] = []
    for op in ops:
        if isinstance(op, Put):
            if op.key in put:
                raise PermanentError(f"transaction refused: it puts key {op.key!r} twice")
            put.add(op.key)
        elif isinstance(op, Delete):
            deletes.append(op)
    for delete in deletes:
        for key in put:
            if key == delete.key if delete.end is None else delete.key <= key < delete.end:
                raise PermanentError(f"transaction refused: it puts and deletes key {key!r}")
