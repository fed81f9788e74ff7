"""The leader's picture of the run: the whole key tree of one run id, parsed, at one revision. Pure.

Level, not edge: the leader compares what stands here, so a loss that happened before it led is seen all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from .errors import BadRecord
from .keys import Keys
from .membership import Candidate
from .records import Incarnation, Member, Node, NodeId, Roster, Round, decode_job, decode_node, decode_roster
from .store import KeyValue, Range, WatchBatch
from .writes import Seen

REPORTS = ("evidence", "started", "finished")
Who = tuple[NodeId, Incarnation]


class Report(NamedTuple):
    """One node's word about a round, and the revision at which it first arrived."""

    value: bytes
    order: int


class Standby(NamedTuple):
    """A node's record as the leader sees it, with the revision of its join."""

    record: Node
    joined: int


def _frozen(mapping: Mapping[str, KeyValue]) -> Mapping[str, KeyValue]:
    return MappingProxyType(dict(mapping))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys of the run at ``revision``; parsed views are made when asked for."""

    keys: Keys
    tree: Mapping[str, KeyValue] = field(default_factory=lambda: _frozen({}))
    revision: int = 0

    @classmethod
    def read(cls, keys: Keys, found: Range) -> Snapshot:
        """Build the picture from a linearizable range over the run's prefix."""
        return cls(keys, _frozen({kv.key: kv for kv in found.items}), found.revision)

    def after(self, batch: WatchBatch) -> Snapshot:
        """Return the picture after a batch of events; events already contained are passed over."""
        tree = dict(self.tree)
        revision = self.revision
        for event in batch.events:
            if event.revision <= self.revision:
                continue
            revision = max(revision, event.revision)
            if event.kv is None:
                tree.pop(event.key, None)
            else:
                tree[event.key] = event.kv
        return replace(self, tree=_frozen(tree), revision=revision)

    def job(self) -> Seen | None:
        kv = self.tree.get(self.keys.job)
        return None if kv is None else Seen(decode_job(kv.value), kv.mod_revision)

    def roster(self, formed: Round) -> Roster | None:
        kv = self.tree.get(self.keys.roster(formed))
        return None if kv is None else decode_roster(kv.value)

    def token(self) -> int:
        """Return the create revision of the leader key, 0 when there is none."""
        kv = self.tree.get(self.keys.leader)
        return 0 if kv is None else kv.create_revision

    def nodes(self) -> dict[NodeId, Standby]:
        """Return every node that holds a lease, by name."""
        start = self.keys.nodes
        return {
            NodeId(key[len(start) :]): Standby(_node(kv), kv.create_revision)
            for key, kv in self.tree.items()
            if key.startswith(start)
        }

    def reports(self, kind: str, n: Round) -> dict[Who, Report]:
        """Return the reports of ``kind`` about round ``n``, by node and incarnation."""
        start, _ = self.keys.reports(kind, n)
        out: dict[Who, Report] = {}
        for key, kv in self.tree.items():
            if key.startswith(start):
                node, _, inc = key[len(start) :].rpartition("@")
                with contextlib.suppress(ValueError):  # no report of ours: whoever wrote it is passed over
                    out[NodeId(node), Incarnation(int(inc, 16))] = Report(kv.value, kv.create_revision)
        return out

    def history(self) -> tuple[tuple[Round, bytes], ...]:
        """Return what each formed round resumed from, oldest first, as the bytes written at its close."""
        start = f"{self.keys.prefix}history/"
        found = sorted((key[len(start) :], kv.value) for key, kv in self.tree.items() if key.startswith(start))
        return tuple((Round(int(name)), value) for name, value in found if name.isascii() and name.isdigit())


def _node(kv: KeyValue) -> Node:
    """Read a node's record. One that cannot be read is there, as its lease says, and never ready: it is waited for."""
    try:
        return decode_node(kv.value)
    except BadRecord:
        return Node(Incarnation(kv.lease), "", "", "", 0, Round(0))


def candidates(nodes: Mapping[NodeId, Standby], n: Round) -> tuple[Candidate, ...]:
    """Return the nodes that may be chosen for round ``n``: those with ready ≥ n."""
    return tuple(
        Candidate(Member(node, s.record.inc, s.record.machine, s.record.slots, s.record.address), s.joined)
        for node, s in nodes.items()
        if s.record.ready >= n
    )
