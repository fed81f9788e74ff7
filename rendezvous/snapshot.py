"""The leader's picture of the run: the whole key tree of one run id, parsed, at one revision. Pure.

Level, not edge: the leader compares what stands here, so a loss that happened before it led is seen all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from .errors import BadRecord
from .keys import Keys
from .membership import Candidate
from .reader import LARGEST
from .records import Incarnation, Job, Member, Node, NodeId, Roster, Round, decode_job, decode_node, decode_roster
from .store import KeyValue, Range, WatchBatch
from .writes import Seen

LATEST = 10**11  # seconds since 1970; the clock's functions take no more
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
        return None if kv is None else Seen(opened(kv, decode_job), kv.mod_revision)

    def roster(self, job: Job) -> Roster | None:
        """Return who ran in the last formed round, None when none was; BadRecord when the store tells otherwise.

        A roster is written with the close of its round and deleted with that of the next. Without it nobody knows
        whose ranks must be dead before a round may begin.
        """
        start, formed = self.keys.rosters, job.formed
        names = (key[len(start) :] for key in self.tree if key.startswith(start))
        newest = max((int(name) for name in names if _is_round(name)), default=0)
        if newest > formed:
            raise BadRecord(f"{self.keys.job} says that round {formed} was the last to form; there is one of {newest}")
        if not formed:
            return None
        kv = self.tree.get(self.keys.roster(formed))
        if kv is None:
            raise BadRecord(f"{self.keys.roster(formed)} is missing: who ran in round {formed}, the last that formed")
        roster = opened(kv, decode_roster)
        if roster.round != formed:
            raise BadRecord(f"{kv.key}: it is that of round {roster.round}")
        return roster

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

    def here(self) -> frozenset[Who]:
        """Return who holds a lease, by node and incarnation."""
        return frozenset((node, standby.record.inc) for node, standby in self.nodes().items())

    def absent(self, roster: Roster) -> tuple[NodeId, ...]:
        """Return the members whose incarnation holds no lease; BadRecord when a member's key cannot be read.

        A key that somebody has written over tells nothing: its agent and its ranks may live.
        """
        out: list[NodeId] = []
        for m in roster.members:
            kv = self.tree.get(self.keys.node(m.node))
            if kv is not None:
                inc = opened(kv, decode_node).inc
                if inc != kv.lease:
                    raise BadRecord(f"{kv.key}: incarnation {inc:x} hangs on lease {kv.lease:x}")
                if inc == m.inc:
                    continue
            out.append(m.node)
        return tuple(out)

    def reports(self, kind: str, n: Round) -> dict[Who, Report]:
        """Return the reports of ``kind`` about round ``n``, by node and incarnation; other keys are passed over."""
        start, _ = self.keys.reports(kind, n)
        out: dict[Who, Report] = {}
        for key, kv in self.tree.items():
            if key.startswith(start):
                node, _, inc = key[len(start) :].rpartition("@")
                if 0 < len(inc) <= 16 and not inc.strip("0123456789abcdef"):
                    out[NodeId(node), Incarnation(int(inc, 16))] = Report(kv.value, kv.create_revision)
        return out

    def history(self) -> tuple[tuple[Round, bytes], ...]:
        """Return what each formed round resumed from, oldest first, as the bytes written at its close.

        What no close has written is passed over: no round then resumed from there, as far as anybody can tell.
        """
        start = self.keys.histories
        found = sorted((key[len(start) :], kv.value) for key, kv in self.tree.items() if key.startswith(start))
        return tuple((Round(int(name)), value) for name, value in found if _is_round(name) and _is_history(value))


_Record = TypeVar("_Record")


def opened(kv: KeyValue, decode: Callable[[bytes], _Record]) -> _Record:
    """Decode a key's value; a BadRecord names the key."""
    try:
        return decode(kv.value)
    except BadRecord as error:
        raise BadRecord(f"{kv.key}: {error}") from error


def _is_round(name: str) -> bool:
    return len(name) == 10 and name.isascii() and name.isdigit()


@lru_cache(maxsize=4096)
def _is_history(value: bytes) -> bool:
    try:
        entry: object = json.loads(value)
    except (ValueError, RecursionError):
        return False
    if not isinstance(entry, dict):
        return False
    fields = cast("dict[str, object]", entry)
    step, refused, wall = fields.get("step"), fields.get("refused"), fields.get("wall", 0.0)
    pairs = cast("list[object]", refused) if isinstance(refused, list) else [refused]
    return (
        isinstance(step, int)
        and -1 <= step <= LARGEST
        and isinstance(wall, (int, float))
        and 0 <= wall < LATEST
        and all(isinstance(pair, list) and len(cast("list[object]", pair)) == 2 for pair in pairs)
    )


def _node(kv: KeyValue) -> Node:
    """Read a node's record. One that cannot be read is there, as its lease says, and never ready: it is passed over."""
    try:
        record = decode_node(kv.value)
    except BadRecord:
        record = None
    if record is None or record.inc != kv.lease:
        return Node(Incarnation(kv.lease), "", "", "", 0, Round(0))
    return record


def candidates(nodes: Mapping[NodeId, Standby], n: Round) -> tuple[Candidate, ...]:
    """Return the nodes that may be chosen for round ``n``: those with ready ≥ n."""
    return tuple(
        Candidate(Member(node, r.inc, r.machine, r.slots, r.address, r.place, r.role), joined)
        for node, (r, joined) in nodes.items()
        if r.ready >= n
    )
