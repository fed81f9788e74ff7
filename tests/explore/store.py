"""The store of the explorer: the product's ``Tree`` does every transaction; revisions are then numbered anew.

Only what the protocol compares is kept apart, so that worlds that differ in nothing else are equal: the job record's
revision counts its own writes, a leader's token counts the leaders (and their ends), a node's key counts what its owner
wrote, its create revision counts the joins. What nobody decides on (history, attempt records, the text of evidence) is
not kept.
"""

from __future__ import annotations

from typing import NamedTuple

from remuster.rendezvous.errors import LeaseNotFound
from remuster.rendezvous.store import Get, KeyValue, Range, Txn, TxnResult, WatchBatch, WatchEvent
from remuster.rendezvous.tree import Tree

from .values import KEYS, Pool

REVISION = 1_000_000  # of the tree while a transaction is applied: whatever it makes is above all that stands
UNREAD = (f"{KEYS.prefix}history/", f"{KEYS.prefix}~")
SAID = tuple(f"{KEYS.prefix}{kind}/" for kind in ("evidence", "started", "finished"))


class Stand(NamedTuple):
    """All that the store holds."""

    kvs: tuple[KeyValue, ...] = ()
    leases: tuple[int, ...] = ()
    jobs: int = 0  # writes of the job record
    leads: int = 1  # puts and deletions of the leader key
    joins: int = 0


class Change(NamedTuple):
    """What a call did: the store after it, the answer (None: the lease does not live) and what watches will see."""

    stand: int
    result: TxnResult | None
    events: tuple[WatchEvent, ...] = ()


class Stands:
    """Every store that was met, and what each transaction makes of it, computed once."""

    def __init__(self) -> None:
        self._pool: Pool[Stand] = Pool()
        self._tables: list[dict[str, KeyValue]] = [{}]
        self._applied: dict[tuple[int, int], Change] = {}

    def __getitem__(self, number: int) -> Stand:
        return self._pool[number]

    def number(self, stand: Stand) -> int:
        found = self._pool.number(stand)
        if found == len(self._tables):
            self._tables.append({kv.key: kv for kv in stand.kvs})
        return found

    def get(self, number: int, key: str) -> KeyValue | None:
        return self._tables[number].get(key)

    def table(self, number: int) -> dict[str, KeyValue]:
        return self._tables[number]

    def range(self, number: int) -> Range:
        return Range(self._pool[number].kvs, 1)

    def apply(self, number: int, write: int, txn: Txn) -> Change:
        """Apply the transaction of the write that has the number ``write``."""
        known = self._applied.get((number, write))
        if known is None:
            known = self._applied[number, write] = self._apply(number, txn)
        return known

    def grant(self, number: int, lease: int) -> int:
        stand = self._pool[number]
        return self.number(stand._replace(leases=tuple(sorted((*stand.leases, lease)))))

    def drop(self, number: int, lease: int) -> Change:
        """End a lease and delete what hangs on it."""
        stand = self._pool[number]
        tree, batch = self._tree(number).drop_lease(lease)
        return self._next(number, stand._replace(leases=tuple(sorted(tree.leases))), batch, TxnResult(True, 0))

    def _tree(self, number: int) -> Tree:
        table = self._tables[number]
        return Tree(REVISION, frozenset(self._pool[number].leases), table, sorted(table))

    def _apply(self, number: int, txn: Txn) -> Change:
        try:
            _, result, batch = self._tree(number).apply(txn)
        except LeaseNotFound:
            return Change(number, None)
        change = self._next(number, self._pool[number], batch, result)
        table = self._tables[change.stand]
        asked = [op.key for op in (txn.then if result.succeeded else txn.otherwise) if isinstance(op, Get)]
        ranges = tuple(Range((table[key],) if key in table else (), 1) for key in asked)
        own = [e.kv for e in change.events if e.kv and e.key.startswith(KEYS.nodes)]
        revision = own[0].mod_revision if own else 0  # of a join or of ready: that of its own key
        return change._replace(result=TxnResult(result.succeeded, revision, ranges))

    def _next(self, number: int, stand: Stand, batch: WatchBatch | None, result: TxnResult) -> Change:
        if batch is None:
            return Change(self.number(stand), result)
        before, jobs, leads, joins = self._tables[number], stand.jobs, stand.leads, stand.joins
        table, events = dict(before), []
        for event in batch.events:
            key, kv = event.key, event.kv
            if key.startswith(UNREAD):
                continue
            if kv is None:
                del table[key]
                leads += key == KEYS.leader
            elif key == KEYS.job:
                jobs += 1
                kv = kv._replace(create_revision=1, mod_revision=jobs)
            elif key == KEYS.leader:
                leads += 1
                kv = kv._replace(create_revision=leads, mod_revision=leads)
            elif key.startswith(KEYS.nodes):
                was = before.get(key)
                joins += was is None
                create, mod = (was.create_revision, was.mod_revision + 1) if was else (joins, leads)
                kv = kv._replace(create_revision=create, mod_revision=mod)
            else:
                value = b"{}" if key.startswith(SAID) else kv.value
                kv = kv._replace(value=value, create_revision=1, mod_revision=1)
            if kv is not None:
                table[key] = kv
            events.append(WatchEvent(key, 1, kv))
        kvs = tuple(table[key] for key in sorted(table))
        after = Stand(kvs, stand.leases, jobs, leads, joins)
        return Change(self.number(after), result, tuple(events))
