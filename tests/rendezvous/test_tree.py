"""The key tree: etcd's rules as tables, and against a naive model that keeps every event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.rendezvous.errors import LeaseNotFound, PermanentError
from remuster.rendezvous.store import (
    Compare,
    Delete,
    Field,
    Get,
    KeyValue,
    Op,
    Put,
    Range,
    Txn,
    TxnResult,
    WatchBatch,
    WatchEvent,
)
from remuster.rendezvous.tree import Tree


def write(tree: Tree, *ops: Op) -> Tree:
    return tree.apply(Txn((), ops))[0]


def test_an_empty_tree_is_at_revision_one() -> None:
    assert Tree().range("a") == Range((), 1)


def test_put_sets_create_and_mod_revision() -> None:
    tree = write(write(Tree(), Put("a", b"1")), Put("a", b"2"))
    assert tree.range("a").one() == KeyValue("a", b"2", create_revision=2, mod_revision=3)


def test_a_deleted_key_is_created_anew() -> None:
    tree = write(write(write(Tree(), Put("a", b"1")), Delete("a")), Put("a", b"2"))
    assert tree.range("a").one() == KeyValue("a", b"2", create_revision=4, mod_revision=4)


def test_one_txn_is_one_revision_and_its_events_keep_the_order_of_its_ops() -> None:
    tree = write(Tree(), Put("a", b""), Put("c", b""), Put("d", b""))
    tree, result, batch = tree.apply(Txn((), (Put("z", b"1"), Delete("c", "e"), Put("b", b"2"))))
    assert tree.revision == result.revision == 3
    assert batch is not None
    assert [(e.key, e.revision, e.kv is None) for e in batch.events] == [
        ("z", 3, False),
        ("c", 3, True),
        ("d", 3, True),
        ("b", 3, False),
    ]


@pytest.mark.parametrize(
    "txn",
    [
        Txn((), (Get("a"),)),
        Txn((), (Delete("absent"),)),
        Txn((), (Delete("b", "z"),)),
        Txn((Compare("a", Field.MOD, 99),), (Put("a", b"x"),), (Get("a"),)),
        Txn((), ()),
    ],
    ids=["read", "delete of nothing", "delete of an empty range", "guard fails", "nothing"],
)
def test_without_a_change_the_tree_and_its_revision_stay(txn: Txn) -> None:
    tree = write(Tree(), Put("a", b""))
    after, result, batch = tree.apply(txn)
    assert after is tree
    assert result.revision == 2
    assert batch is None


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        (Compare("a", Field.CREATE, 2), True),
        (Compare("a", Field.CREATE, 3), False),
        (Compare("a", Field.MOD, 3), True),
        (Compare("a", Field.MOD, 2), False),
        (Compare("a", Field.LEASE, 7), True),
        (Compare("a", Field.LEASE, 0), False),
        (Compare("absent", Field.CREATE, 0), True),
        (Compare("absent", Field.MOD, 0), True),
        (Compare("absent", Field.LEASE, 0), True),
        (Compare("absent", Field.LEASE, 7), False),
        (Compare("a", Field.CREATE, 2, "b"), True),
        (Compare("a", Field.CREATE, 0, "b"), False),
        (Compare("A", Field.CREATE, 0, "a"), True),
        (Compare("b", Field.CREATE, 0, "c"), True),
        (Compare("b", Field.CREATE, 2, "c"), False),
    ],
)
def test_guards(guard: Compare, holds: bool) -> None:
    tree = write(write(Tree().grant(7), Put("a", b"1")), Put("a", b"2", lease=7))
    _, result, _ = tree.apply(Txn((guard,), (Get("a"),), (Get("a"), Get("absent"))))
    assert result.succeeded is holds
    assert len(result.ranges) == (1 if holds else 2)


def test_all_guards_must_hold() -> None:
    tree = write(Tree(), Put("a", b""))
    guards = (Compare("a", Field.MOD, 2), Compare("b", Field.MOD, 1))
    assert tree.apply(Txn(guards, ()))[1].succeeded is False


def test_a_read_in_a_txn_sees_the_writes_before_it() -> None:
    _, result, _ = Tree().apply(Txn((), (Get("a"), Put("a", b"1"), Get("a"))))
    kv = KeyValue("a", b"1", 2, 2)
    assert result == TxnResult(True, 2, (Range((), 1), Range((kv,), 2)))


def test_an_old_tree_is_a_snapshot() -> None:
    old = write(Tree().grant(7), Put("a", b"1", 7), Put("b", b"1"))
    whole = old.range("a", "z")
    write(old, Put("a", b"2"), Delete("b"), Put("c", b"2"))
    old.drop_lease(7)
    assert old.range("a", "z") == whole
    assert old.leases == {7}


def test_range_is_half_open_and_sorted() -> None:
    tree = write(Tree(), *(Put(key, b"") for key in ("c", "a", "b", "ab", "d")))
    assert [kv.key for kv in tree.range("a", "c").items] == ["a", "ab", "b"]
    assert tree.range("c", "a").items == ()


@pytest.mark.parametrize(
    "ops",
    [
        (Put("a", b"1"), Put("a", b"2")),
        (Put("a", b"1"), Delete("a")),
        (Delete("a"), Put("a", b"1")),
        (Put("b", b"1"), Delete("a", "c")),
    ],
)
def test_writing_a_key_twice_in_one_txn_is_refused(ops: tuple[Op, ...]) -> None:
    with pytest.raises(PermanentError):
        Tree().apply(Txn((), ops))


def test_deletes_may_overlap() -> None:
    tree, _, batch = write(Tree(), Put("a", b"")).apply(Txn((), (Delete("a"), Delete("a", "b"))))
    assert batch == WatchBatch((WatchEvent("a", 3, None),))
    assert tree.range("a").one() is None


def test_a_put_on_an_unknown_lease_changes_nothing() -> None:
    tree = Tree().grant(7)
    with pytest.raises(LeaseNotFound, match="'b'"):
        tree.apply(Txn((), (Put("a", b""), Put("b", b"", lease=8))))
    assert tree.range("a").one() is None


def test_the_lease_of_the_branch_that_does_not_run_does_not_matter() -> None:
    _, result, _ = Tree().apply(Txn((Compare("a", Field.MOD, 5),), (Put("b", b"", lease=8),)))
    assert result.succeeded is False


def test_dropping_a_lease_deletes_its_keys_in_one_revision() -> None:
    tree = write(Tree().grant(7), Put("b", b"", 7), Put("a", b"", 7), Put("c", b""))
    tree, batch = tree.drop_lease(7)
    assert batch == WatchBatch((WatchEvent("a", 3, None), WatchEvent("b", 3, None)))
    assert (tree.revision, [kv.key for kv in tree.range("a", "z").items]) == (3, ["c"])
    assert tree.drop_lease(7) == (tree, None)


def test_dropping_a_lease_without_keys_makes_no_revision() -> None:
    tree, batch = Tree().grant(7).drop_lease(7)
    assert (tree.revision, tree.leases, batch) == (1, frozenset(), None)


def test_a_put_moves_the_key_to_its_own_lease() -> None:
    tree = write(Tree().grant(7).grant(8), Put("a", b"", 7), Put("b", b"", 7), Put("c", b"", 7))
    tree = write(tree, Put("a", b""), Put("b", b"", 8))
    tree, batch = tree.drop_lease(7)
    assert batch == WatchBatch((WatchEvent("c", 4, None),))
    _, batch = tree.drop_lease(8)
    assert batch == WatchBatch((WatchEvent("b", 5, None),))


KEYS = st.sampled_from(["a", "ab", "b", "é", "\U0001f600"])
LEASES = st.sampled_from([0, 0, 0, 1, 2])
PUTS = st.builds(Put, KEYS, st.binary(max_size=2), LEASES)
DELETES = st.builds(Delete, KEYS, st.none() | KEYS)
GETS = st.builds(Get, KEYS, st.none() | KEYS)
GUARDS = st.builds(Compare, KEYS, st.sampled_from(Field), st.integers(0, 8))
TXNS = st.builds(
    Txn,
    st.just(()) | st.lists(GUARDS, max_size=2).map(tuple),
    st.lists(PUTS | DELETES | GETS, min_size=1, max_size=3).map(tuple),
    st.lists(GETS, max_size=2).map(tuple),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["txn", "txn", "txn", "grant", "drop"]), TXNS, st.sampled_from([1, 2])), min_size=5
)


class Naive:
    """Keeps every event ever made, and finds a key's state by reading them all."""

    def __init__(self) -> None:
        self.revision = 1
        self.log: list[tuple[int, str, Put | None]] = []
        self.leases: set[int] = set()

    def find(self, key: str, log: list[tuple[int, str, Put | None]]) -> KeyValue | None:
        found: KeyValue | None = None
        for revision, name, put in log:
            if name == key:
                created = found.create_revision if found else revision
                found = None if put is None else KeyValue(key, put.value, created, revision, put.lease)
        return found

    def read(self, key: str, end: str | None, log: list[tuple[int, str, Put | None]]) -> list[KeyValue]:
        names = sorted({name for _, name, _ in log}, key=lambda name: name.encode())
        inside = [n for n in names if (n == key if end is None else key.encode() <= n.encode() < end.encode())]
        return [kv for name in inside if (kv := self.find(name, log))]

    def apply(self, txn: Txn) -> tuple[bool, list[list[KeyValue]], bool]:
        """Return whether it succeeded, its reads, and whether it must be refused instead."""
        fields = [getattr(self.find(g.key, self.log) or KeyValue("", b"", 0, 0), g.field.value) for g in txn.guards]
        succeeded = fields == [g.value for g in txn.guards]
        log = list(self.log)
        reads: list[list[KeyValue]] = []
        touched = [op.key for op in txn.then if isinstance(op, Put)]
        for op in txn.then:
            if isinstance(op, Delete):
                touched += [k for k in set(touched) if (k == op.key if op.end is None else op.key <= k < op.end)]
        refused = len(touched) != len(set(touched))
        for op in txn.then if succeeded else txn.otherwise:
            if isinstance(op, Get):
                reads.append(self.read(op.key, op.end, log))
            elif isinstance(op, Put):
                refused |= op.lease != 0 and op.lease not in self.leases
                log.append((self.revision + 1, op.key, op))
            else:
                log += [(self.revision + 1, kv.key, None) for kv in self.read(op.key, op.end, log)]
        if not refused and len(log) > len(self.log):
            self.log = log
            self.revision += 1
        return succeeded, reads, refused

    def drop(self, lease: int) -> None:
        self.leases.discard(lease)
        held = [kv.key for kv in self.read("", "\U0010ffff", self.log) if kv.lease == lease]
        self.revision += 1 if held else 0
        self.log += [(self.revision, key, None) for key in held]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(STEPS)
def test_agrees_with_the_naive_model_and_old_trees_stay(steps: list[tuple[str, Txn, int]]) -> None:
    tree, naive = Tree(), Naive()
    seen: list[WatchEvent] = []
    past: list[tuple[Tree, Range]] = []
    for what, txn, lease in steps:
        batch = None
        if what == "grant":
            naive.leases.add(lease)
            tree = tree.grant(lease)
        elif what == "drop":
            naive.drop(lease)
            tree, batch = tree.drop_lease(lease)
        else:
            succeeded, reads, refused = naive.apply(txn)
            try:
                tree, result, batch = tree.apply(txn)
            except PermanentError:
                assert refused
            else:
                assert not refused
                assert (result.succeeded, [list(r.items) for r in result.ranges]) == (succeeded, reads)
        seen += batch.events if batch else ()
        whole = tree.range("", "\U0010ffff")
        assert list(whole.items) == naive.read("", "\U0010ffff", naive.log)
        assert whole.revision == naive.revision
        past.append((tree, whole))
    assert [(e.revision, e.key, e.kv and e.kv.value) for e in seen] == [
        (revision, key, put and put.value) for revision, key, put in naive.log
    ]
    assert all(old.range("", "\U0010ffff") == whole for old, whole in past)
