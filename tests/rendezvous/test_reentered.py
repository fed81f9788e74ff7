"""A round that resumed: who says that it goes on, when it has recovered, and what becomes of a checkpoint it does not
go on from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.rendezvous import leader as machine
from remuster.rendezvous import leader_words as words
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader import resumed_bytes
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.membership import Standing, standing
from remuster.rendezvous.mirrored import Mirrored, go_on
from remuster.rendezvous.records import (
    MAX_SUSPECTS,
    SETTLED,
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
    Suspect,
    decode_job,
    encode,
)
from remuster.rendezvous.reentered import MAX_BY, Reentered, encode_reentered, together
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import Delete, KeyValue, Put, Range, WatchBatch, WatchEvent
from remuster.rendezvous.suspects import after_round, below, counting, none_older, objections
from remuster.rendezvous.writes import Charge, Kind, Own, Seen, close

KEYS, N, TOKEN = Keys("run"), Round(4), 5
A, B = NodeId("a"), NodeId("b")
INC = {A: Incarnation(1), B: Incarnation(2)}
POINT = ResumePoint("/c/step-150", 150, "manifest", "digests", name="step-150")
ROSTER = Roster(N, tuple(Member(node, inc, f"m-{node}", 2, "10.0.0.1") for node, inc in INC.items()))
RUNNING = Job(Phase.RUNNING, N, 2, 2, "one", Round(2), N, "10.0.0.1:500", POINT)
WORD = encode_reentered(Reentered(20, "steps, loss"))


# --- the report -------------------------------------------------------------------------------------------------------
def test_all_say_together_what_each_of_them_says() -> None:
    less = encode_reentered(Reentered(7, "steps, loss, lr"))
    assert together((WORD, less)) == Reentered(7, "steps, loss")
    assert together((WORD, encode_reentered(Reentered(20, "steps")))) == Reentered(20, "steps")
    assert together((WORD, None)) is None
    assert together(()) is None


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"v":1,"steps":-1,"by":""}', b'{"v":1,"steps":1}', b" " * 2000])
def test_what_is_no_report_says_nothing(raw: bytes) -> None:
    assert together((WORD, raw)) is None


@given(st.integers(0, 2**62), st.text(max_size=200))
def test_reports_are_bounded(steps: int, by: str) -> None:
    found = together((encode_reentered(Reentered(steps, by)),))
    assert found is None or (found.steps == steps and len(found.by) <= MAX_BY)


# --- the job machine --------------------------------------------------------------------------------------------------
class Led:
    """A leader on ``a`` in round 4 of two nodes."""

    def __init__(self, job: Job = RUNNING, *more: KeyValue) -> None:
        self.revision, self.at = 20, 0.0
        tree = {KEYS.job: KeyValue(KEYS.job, encode(job), 4, 8)}
        tree[KEYS.leader] = KeyValue(KEYS.leader, b"a@1", TOKEN, TOKEN, INC[A])
        tree[KEYS.roster(job.formed)] = KeyValue(KEYS.roster(N), encode(ROSTER._replace(round=job.formed)), 7, 7)
        history = resumed_bytes(words.Resumed(0.0, N, POINT), 2)
        tree[KEYS.history(N)] = KeyValue(KEYS.history(N), history, 7, 7)
        for node, inc in INC.items():
            record = Node(inc, f"m-{node}", "b", "10.0.0.1", 2, job.round)
            tree[KEYS.node(node)] = KeyValue(KEYS.node(node), encode(record), 5, 5, inc)
        tree |= {kv.key: kv for kv in more}
        self.state = Leader(Own(A, INC[A]), words.Limits(1.0, 60.0, 8.0), Snapshot(KEYS))
        self.out: list[words.Action] = []
        self.take(words.Elected(0.0, TOKEN, Range(tuple(tree.values()), 20)))

    def take(self, event: words.Event) -> None:
        self.state, actions = machine.step(self.state, event)
        self.out += actions

    def says(self, node: NodeId, kind: str = "reentered", word: bytes = WORD, inc: int = 0) -> None:
        self.revision += 1
        key = KEYS.report(kind, N, node, Incarnation(inc or INC[node]))
        kv = KeyValue(key, word, self.revision, self.revision)
        self.take(words.Changed(self.at, WatchBatch((WatchEvent(key, self.revision, kv),))))

    def all(self, kind: type[Any]) -> list[Any]:
        found, self.out = [action for action in self.out if isinstance(action, kind)], []
        return found


def test_a_newer_checkpoint_is_looked_for_once_all_members_go_on() -> None:
    led = Led()
    led.says(A)
    led.says(B, inc=9)  # an earlier start of its agent
    assert led.all(words.Prove) == []
    led.says(B)
    (ask,) = led.all(words.Prove)
    assert (ask.round, ask.attempt, ask.world, ask.above, ask.before) == (N, 2, 4, 150, 0)
    assert ask.said == Reentered(20, "steps, loss")
    assert ask.reason == "round 4: 20 steps after step 150 agree (steps, loss); the next checkpoint is awaited"
    led.take(words.Tick(1.0))
    assert led.all(words.Prove) == [], "an answer is on its way"
    led.take(words.ProofSeen(2.0, N, None))
    assert [again.before for again in led.all(words.Prove)] == [1]
    led.take(words.ProofSeen(3.0, Round(3), 200))
    assert led.all(words.Prove) == [], "an answer about another round"
    led.take(words.ProofSeen(4.0, N, 200))
    led.take(words.Tick(5.0))
    assert led.all(words.Prove) == []
    led.says(A, "finished", b"{}")
    led.says(B, "finished", b"{}")
    (end,) = led.all(words.Conclude)
    assert (end.done, end.reentered, end.verified) == (True, Reentered(20, "steps, loss"), 200)


def test_a_leader_that_takes_over_comes_to_the_same() -> None:
    said = [KeyValue(KEYS.report("reentered", N, node, inc), WORD, 9, 9) for node, inc in INC.items()]
    assert [ask.above for ask in Led(RUNNING, *said).all(words.Prove)] == [150]


def test_a_round_that_started_from_nothing_has_nothing_to_prove() -> None:
    led = Led(replace(RUNNING, resume=ResumePoint()))
    led.says(A)
    led.says(B)
    assert led.all(words.Prove) == []


def test_what_members_said_goes_with_their_round() -> None:
    write = close(KEYS, Own(A, INC[A]), TOKEN, Seen(RUNNING, 8), RUNNING, ROSTER, b"{}")
    assert Delete(*KEYS.older("reentered", N)) in write.txn.then


STOPPING = replace(RUNNING, phase=Phase.STOPPING, resume=None)
KEPT = Charge((), 0, Memory())


def ended(suspect: ResumePoint, retry: bool = True, job: Job = STOPPING) -> Job:
    """Return the job's record as it stands when round 4 has ended and was judged."""
    led = Led(job)
    for node, inc in INC.items():
        record = Node(inc, f"m-{node}", "b", "10.0.0.1", 2, Round(5))
        kv = KeyValue(KEYS.node(node), encode(record), 5, 30, inc)
        led.take(words.Changed(0.0, WatchBatch((WatchEvent(kv.key, 30 + inc, kv),))))
    led.take(words.Concluded(1.0, N, retry, KEPT, Outcome(1, "why"), b"{}", suspect=suspect))
    (submit,) = led.all(words.Submit)
    (put,) = [op for op in submit.write.txn.then if isinstance(op, Put) and op.key == KEYS.job]
    return decode_job(put.value)


@pytest.mark.parametrize("retry", [True, False])
def test_the_mark_is_made_in_the_transaction_that_ends_the_round(retry: bool) -> None:
    after = ended(POINT, retry)
    assert after.suspects == (Suspect("step-150", 150, 4),)
    assert after.phase is (Phase.FORMING if retry else Phase.FAILED)
    assert ended(ResumePoint()).suspects == ()


def forming(*suspects: Suspect) -> tuple[Led, words.SelectResume]:
    led = Led(replace(RUNNING, phase=Phase.FORMING, round=Round(5), resume=None, master="", suspects=suspects))
    led.take(words.Tick(2.0))
    (ask,) = led.all(words.SelectResume)
    return led, ask


def test_a_suspect_and_all_that_is_newer_is_objected_to() -> None:
    _, ask = forming(Suspect("step-150", 150, 4), Suspect("last", -1, SETTLED))
    assert ask.against == (
        ("step-150", "suspect: round 4 re-entered from it and did not go on as before"),
        ("last", "suspect: an earlier round re-entered from it and did not go on as before"),
    )
    assert ask.below == (150, "suspect: not older than step-150, from which round 4 did not go on as before")
    assert forming()[1].below is None


def test_a_round_does_not_begin_from_nothing_for_a_suspect() -> None:
    led, _ = forming(Suspect("step-150", 150, 4))
    led.take(words.Resumed(3.0, Round(5), ResumePoint()))
    (submit,) = led.all(words.Submit)
    assert submit.write.kind is Kind.FAIL
    assert submit.write.reason.startswith("no checkpoint older than step-150 is left to re-enter from")
    led, _ = forming(Suspect("step-150", 150, 4))
    led.take(words.Resumed(3.0, Round(5), replace_point(100)))
    assert [one.write.kind for one in led.all(words.Submit)] == [Kind.CLOSE]


def replace_point(step: int) -> ResumePoint:
    return POINT._replace(path=f"/c/step-{step}", name=f"step-{step}", step=step)


# --- what is kept -----------------------------------------------------------------------------------------------------
def test_a_round_that_recovered_settles_what_was_before_it() -> None:
    job = after_round(RUNNING, Round(2), replace_point(150), False)
    job = after_round(job, Round(3), replace_point(100), False)
    assert [one.name for one in counting(job.suspects)] == ["step-150", "step-100"]
    assert below(job) == (100, "suspect: not older than step-100, from which round 3 did not go on as before")
    job = after_round(job, Round(4), ResumePoint(), True)
    assert job.suspects == (Suspect("step-150", -1, SETTLED), Suspect("step-100", -1, SETTLED))
    assert (below(job), none_older(job), counting(job.suspects)) == (None, "", ())
    assert [name for name, _ in objections(job)] == ["step-150", "step-100"]
    assert after_round(job, Round(5), ResumePoint(), False) is job


def test_marks_are_few_and_short() -> None:
    job = RUNNING
    for n in range(1, 10):
        job = after_round(replace(job, round=Round(n), formed=Round(n), first=Round(1)), Round(n), POINT._replace(
            name="x" * 1000 + str(n), step=n), False)  # fmt: skip
    assert len(job.suspects) == 1, "cut to the same name"
    for n in range(1, 10):
        job = after_round(job, Round(n), replace_point(n), False)
    assert len(job.suspects) == MAX_SUSPECTS


@pytest.mark.parametrize("fresh", [False, True])
def test_another_launch_passes_them_over_and_may_try_again_and_a_fresh_one_forgets(fresh: bool) -> None:
    over = replace(STOPPING, phase=Phase.FAILED, outcome=Outcome(1, "why"), suspects=(Suspect("step-150", 150, 4),))
    begin = Job(Phase.FORMING, Round(1), 2, 2, "two")
    expected = () if fresh else (Suspect("step-150", 150, SETTLED),)
    found = standing(over, begin, fresh)
    assert isinstance(found, Standing)
    assert found.new is not None
    assert found.new.suspects == expected
    copied = go_on(Mirrored(over), begin, fresh)
    assert isinstance(copied, Standing)
    assert copied.new is not None
    assert copied.new.suspects == expected


def test_the_same_launch_goes_on_with_them_from_the_copy() -> None:
    begin = Job(Phase.FORMING, Round(1), 2, 2, "one")
    copied = go_on(Mirrored(replace(RUNNING, suspects=(Suspect("step-150", 150, 3),))), begin, False)
    assert isinstance(copied, Standing)
    assert copied.new is not None
    assert copied.new.suspects == (Suspect("step-150", 150, 3),)
