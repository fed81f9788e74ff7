"""The table of guards: what each write compares, changes and answers with, played against the key tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.rendezvous import writes
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Job,
    Member,
    Memory,
    Node,
    NodeId,
    Outcome,
    Phase,
    ResumePoint,
    Roster,
    Round,
    Terms,
    decode_job,
    decode_node,
    decode_terms,
    encode,
)
from remuster.rendezvous.store import Put, Txn, prefix_end
from remuster.rendezvous.tree import Tree
from remuster.rendezvous.writes import Begin, Charge, Kind, Own, Seen, Write

KEYS = Keys("run")
ME, OTHER = Own(NodeId("a"), Incarnation(7)), Own(NodeId("b"), Incarnation(8))
RECORD = Node(ME.inc, "m", "boot", "10.0.0.1", 1, Round(1))
JOB = Job(Phase.RUNNING, Round(3), 1, 2, "one", formed=Round(3), master="a:1", resume=ResumePoint("c", 1))
CAUSE = Cause("failed", "a", 7)
OUTCOME = Outcome(1, "it failed")
CHARGE = Charge((("user", 1),), 1, Memory("print", 5))
FLAPS = (("0a1b2c3d", 2),)
ROSTER = Roster(Round(3), (Member(ME.node, ME.inc, "m", 1, "10.0.0.1"),))


def world(job: Job = JOB) -> tuple[Tree, Seen, int]:
    """Return a tree in which a and b have joined and a leads, the job as seen, and the leader's token."""
    tree = Tree().grant(ME.inc).grant(OTHER.inc)
    for own in (ME, OTHER):
        tree, *_ = tree.apply(Txn((), (Put(KEYS.node(own.node), encode(replace(RECORD, inc=own.inc)), own.inc),)))
    tree, *_ = tree.apply(Txn((), (Put(KEYS.job, encode(job)),)))
    tree, *_ = tree.apply(writes.lead(KEYS, ME).txn)
    kv, leader = tree.range(KEYS.job).one(), tree.range(KEYS.leader).one()
    assert kv
    assert leader
    return tree, Seen(job, kv.mod_revision), leader.create_revision


def everything(tree: Tree, seen: Seen, token: int) -> dict[str, Write]:
    """Return one write of every row but the join, each as it is made for this world."""
    node = tree.range(KEYS.node(ME.node)).one()
    assert node
    return {
        "ready": writes.ready(KEYS, ME, replace(RECORD, ready=Round(4)), node.mod_revision),
        "stop": writes.stop(KEYS, ME, seen, CAUSE, b"why"),
        "evidence": writes.report(KEYS, ME, Kind.EVIDENCE, Round(3), b"why"),
        "started": writes.report(KEYS, ME, Kind.STARTED, Round(3), b"{}"),
        "finished": writes.report(KEYS, ME, Kind.FINISHED, Round(3), b"{}"),
        "last word": writes.last_word(KEYS, ME, seen, b"why"),
        "master": writes.master(KEYS, ME, seen, "a:2"),
        "notice": writes.notice(KEYS, ME, seen),
        "lost": writes.lost(KEYS, ME, token, seen, Cause("lost", "b", 8)),
        "admit": writes.admit(KEYS, ME, token, seen, Cause("admit", "c", 9)),
        "advance": writes.advance(KEYS, ME, token, seen, CHARGE, FLAPS, b"record"),
        "fail": writes.fail(KEYS, ME, token, seen, OUTCOME, b"record"),
        "close": writes.close(KEYS, ME, token, seen, seen.job, ROSTER, b"resumed"),
        "done": writes.done(KEYS, ME, token, seen, OUTCOME, b"record", ROSTER),
    }


ROWS = sorted(everything(*world()))
ON_JOB = [row for row in ROWS if row not in ("ready", "evidence", "started", "finished")]
BY_LEADER = ["admit", "advance", "close", "done", "fail", "lost"]


@pytest.mark.parametrize("row", ROWS)
def test_every_write_is_applied_when_nothing_has_changed(row: str) -> None:
    tree, seen, token = world()
    _, result, batch = tree.apply(everything(tree, seen, token)[row].txn)
    assert result.succeeded
    assert batch


@pytest.mark.parametrize("row", ROWS)
def test_no_write_is_applied_once_the_lease_is_gone(row: str) -> None:
    tree, seen, token = world()
    write = everything(tree, seen, token)[row]
    after, _ = tree.drop_lease(ME.inc)
    same, result, batch = after.apply(write.txn)
    assert (result.succeeded, batch, same) == (False, None, after)


@pytest.mark.parametrize("row", ROWS)
def test_no_write_of_an_old_incarnation_is_applied_when_a_new_one_has_joined(row: str) -> None:
    tree, seen, token = world()
    write = everything(tree, seen, token)[row]
    new = Own(ME.node, Incarnation(9))
    tree = tree.drop_lease(ME.inc)[0].grant(new.inc)
    tree, result, _ = tree.apply(writes.join(KEYS, new, replace(RECORD, inc=new.inc), seen.mod, None).txn)
    assert result.succeeded
    assert not tree.apply(write.txn)[1].succeeded


@pytest.mark.parametrize("row", ON_JOB)
def test_no_write_on_job_is_applied_when_job_has_changed(row: str) -> None:
    tree, seen, token = world()
    write = everything(tree, seen, token)[row]
    tree, *_ = tree.apply(Txn((), (Put(KEYS.job, encode(JOB)),)))  # the same bytes at another revision
    assert not tree.apply(write.txn)[1].succeeded


@pytest.mark.parametrize("row", ON_JOB)
def test_a_write_on_job_is_applied_once(row: str) -> None:
    tree, seen, token = world()
    write = everything(tree, seen, token)[row]
    tree, first, _ = tree.apply(write.txn)
    _, second, batch = tree.apply(write.txn)
    assert (first.succeeded, second.succeeded, batch) == (True, False, None)


@pytest.mark.parametrize("row", ["evidence", "stop", "finished"])
def test_nothing_is_said_in_the_name_of_an_agent_that_had_spoken_itself(row: str) -> None:
    tree, seen, token = world()
    tree, *_ = tree.apply(everything(tree, seen, token)[row].txn)
    kv = tree.range(KEYS.job).one()
    assert kv
    word = writes.last_word(KEYS, ME, Seen(decode_job(kv.value), kv.mod_revision), b"it was killed")
    assert not tree.apply(word.txn)[1].succeeded


def test_the_last_word_changes_nothing_else() -> None:
    tree, seen, token = world()
    after, *_ = tree.apply(everything(tree, seen, token)["last word"].txn)
    (new,) = set(after.range(KEYS.prefix, KEYS.end).items) - set(tree.range(KEYS.prefix, KEYS.end).items)
    assert (new.key, new.value, new.lease) == (KEYS.report("evidence", Round(3), ME.node, ME.inc), b"why", 0)


@pytest.mark.parametrize("row", BY_LEADER)
def test_no_leader_writes_under_an_old_token(row: str) -> None:
    tree, seen, token = world()
    assert not tree.apply(everything(tree, seen, token - 1)[row].txn)[1].succeeded


def test_ready_rises_once_from_the_value_that_was_read() -> None:
    tree, seen, token = world()
    late = everything(tree, seen, token)["ready"]
    node = tree.range(KEYS.node(ME.node)).one()
    assert node
    tree, *_ = tree.apply(writes.ready(KEYS, ME, replace(RECORD, ready=Round(5)), node.mod_revision).txn)
    tree, result, _ = tree.apply(late.txn)
    kv = tree.range(KEYS.node(ME.node)).one()
    assert kv
    assert (result.succeeded, decode_node(kv.value).ready, kv.lease) == (False, 5, ME.inc)


def test_join_needs_a_free_name_and_the_job_that_was_read() -> None:
    tree, seen, _ = world()
    new = Own(NodeId("c"), Incarnation(9))
    record = replace(RECORD, inc=new.inc, ready=Round(4))
    tree = tree.grant(new.inc)
    assert not tree.apply(writes.join(KEYS, new, record, seen.mod - 1, None).txn)[1].succeeded
    assert not tree.apply(writes.join(KEYS, Own(OTHER.node, new.inc), record, seen.mod, None).txn)[1].succeeded
    _, result, _ = tree.apply(writes.join(KEYS, new, record, seen.mod, None).txn)
    job, leader = (found.one() for found in result.ranges)
    assert job
    assert leader
    assert (decode_job(job.value), leader.lease) == (JOB, ME.inc)


def test_the_first_join_makes_the_job_on_no_lease() -> None:
    tree = Tree().grant(ME.inc)
    begin = Begin(Job(Phase.FORMING, Round(1), 1, 2, "one"), Terms(ME.node, (("--nnodes", "1:2"),)))
    tree, result, _ = tree.apply(writes.join(KEYS, ME, RECORD, 0, begin).txn)
    kv, terms = tree.range(KEYS.job).one(), tree.range(KEYS.terms).one()
    assert kv
    assert terms
    assert (result.succeeded, decode_job(kv.value), kv.lease) == (True, begin.job, 0)
    assert (decode_terms(terms.value), terms.lease, terms.mod_revision) == (begin.terms, 0, kv.mod_revision)
    again = writes.join(KEYS, OTHER, replace(RECORD, inc=OTHER.inc), 0, begin)
    assert not tree.grant(OTHER.inc).apply(again.txn)[1].succeeded


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("stop", replace(JOB, phase=Phase.STOPPING, cause=CAUSE, resume=None)),
        ("lost", replace(JOB, phase=Phase.STOPPING, cause=Cause("lost", "b", 8), resume=None)),
        ("admit", replace(JOB, phase=Phase.STOPPING, cause=Cause("admit", "c", 9), resume=None)),
        ("master", replace(JOB, master="a:2")),
        ("done", replace(JOB, phase=Phase.DONE, outcome=OUTCOME, resume=None, master="")),
        ("notice", replace(JOB, notice="a")),
        ("fail", replace(JOB, phase=Phase.FAILED, outcome=OUTCOME, resume=None, master="")),
    ],
)
def test_what_becomes_of_job(row: str, expected: Job) -> None:
    tree, seen, token = world()
    tree, *_ = tree.apply(everything(tree, seen, token)[row].txn)
    kv = tree.range(KEYS.job).one()
    assert kv
    assert (decode_job(kv.value), kv.lease) == (expected, 0)


def test_charge_and_transition_are_one() -> None:
    tree, seen, token = world(replace(JOB, phase=Phase.STOPPING, cause=CAUSE, resume=None))
    tree, *_ = tree.apply(everything(tree, seen, token)["advance"].txn)
    kv, record = tree.range(KEYS.job).one(), tree.range(KEYS.attempt(Round(3))).one()
    assert kv
    assert record
    job = decode_job(kv.value)
    assert (job.phase, job.round, job.formed, job.cause, job.master) == (Phase.FORMING, 4, 3, None, "")
    assert (job.spent, job.charged, job.memory) == (CHARGE.spent, CHARGE.charged, CHARGE.memory)
    assert job.flaps == FLAPS
    assert record.value == b"record"


@pytest.mark.parametrize("row", ["close", "done", "fail"])
def test_old_words_are_deleted_and_what_must_stay_stays(row: str) -> None:
    tree, seen, token = world()
    kept = [KEYS.history(Round(2)), KEYS.attempt(Round(2)), KEYS.report("evidence", Round(4), ME.node, ME.inc)]
    gone = [KEYS.report(kind, Round(2), ME.node, ME.inc) for kind in ("evidence", "started", "finished")]
    for key in kept + gone:
        tree, *_ = tree.apply(Txn((), (Put(key, b""),)))
    tree, *_ = tree.apply(everything(tree, seen, token)[row].txn)
    keys = {kv.key for kv in tree.range(KEYS.prefix, prefix_end(KEYS.prefix)).items}
    assert set(kept) <= keys
    assert not keys & set(gone)
