"""The job machine and a launch that was given notice: it ends with its present round, and is not done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.rendezvous import leader as machine
from remuster.rendezvous import leader_words as words
from remuster.rendezvous.admission import Admit
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.membership import Standing, standing
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
    Roster,
    Round,
    decode_job,
    encode,
)
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import KeyValue, Put, Range
from remuster.rendezvous.writes import Charge, Kind, Own, Write

KEYS = Keys("run")
A, B = NodeId("a"), NodeId("b")
INC = {A: Incarnation(1), B: Incarnation(2)}
LIMITS = words.Limits(5.0, 60.0, 8.0, Admit.NOW, 1.0, stop_s=20.0)
FORMING = Job(Phase.FORMING, Round(2), 1, 3, "one", formed=Round(1), notice="b")
RUNNING = replace(FORMING, phase=Phase.RUNNING, formed=Round(2), master="10.0.0.1:500")
TOKEN = 9
SAME = Charge((), 0, Memory())
NOTICED = words.Concluded(1.0, Round(2), False, SAME, Outcome(75, "given notice", "notice"), b"{}", done=True)


def seen(job: Job, ready: int, *reports: str, members: tuple[NodeId, ...] = (A, B)) -> words.Elected:
    """Let the agent of ``a`` lead at 0 s; ``reports`` of round 2 are there from all members."""
    who = tuple(Member(n, INC[n], f"m-{n}", 1, "10.0.0.1") for n in members)
    found = [KeyValue(KEYS.job, encode(job), 4, 8), KeyValue(KEYS.leader, b"a@1", TOKEN, TOKEN, INC[A])]
    found += [
        KeyValue(KEYS.node(n), encode(Node(INC[n], f"m-{n}", "b", "10.0.0.1", 1, Round(ready))), 5, 5, INC[n])
        for n in INC
    ]
    found.append(KeyValue(KEYS.roster(job.formed), encode(Roster(job.formed, who)), 7, 7))
    found += [KeyValue(KEYS.report(r, Round(2), n, INC[n]), b"{}", 10, 10) for n in members for r in reports]
    return words.Elected(0.0, TOKEN, Range(tuple(found), 20))


def after(*events: words.Event) -> list[words.Action]:
    state, out = Leader(Own(A, INC[A]), LIMITS, Snapshot(KEYS)), list[words.Action]()
    for event in events:
        state, actions = machine.step(state, event)
        out += actions
    return out


def write(actions: list[words.Action]) -> Write:
    (one,) = [a.write for a in actions if isinstance(a, words.Submit)]
    return one


def job_in(write: Write) -> Job:
    return next(decode_job(op.value) for op in write.txn.then if isinstance(op, Put) and op.key == KEYS.job)


def test_ranks_that_have_all_exited_0_have_saved_and_are_not_done() -> None:
    out = after(seen(RUNNING, 2, "started", "finished"), NOTICED)
    assert isinstance(out[0], words.Conclude)
    failed = job_in(write(out))
    assert (write(out).kind, failed.phase, failed.resume, failed.outcome) == (
        Kind.FAIL, Phase.FAILED, None, NOTICED.outcome,
    )  # fmt: skip
    assert not [op for op in write(out).txn.then if isinstance(op, Put) and "rounds/" in op.key]  # it stays as it was


def test_what_was_done_before_the_notice_came_is_done() -> None:
    done = NOTICED._replace(outcome=Outcome(0, "every rank exited 0"))
    assert write(after(seen(RUNNING, 2, "started", "finished"), done)).kind is Kind.DONE


def test_no_round_begins_after_a_notice_and_the_last_is_waited_for() -> None:
    out = after(seen(FORMING, 2))
    failed = job_in(write(out))
    assert (write(out).kind, failed.outcome) == (
        Kind.FAIL,
        Outcome(75, "b was given notice of a stop before round 2 had begun"),
    )
    out = after(seen(FORMING, 1))
    assert [a.reason for a in out if isinstance(a, words.Wake)] == ["round 2: waiting for a, b to stop"]
    assert not [a for a in out if isinstance(a, words.Submit)]


@pytest.mark.parametrize(("notice", "ended"), [("", True), ("b", False)])
def test_no_round_is_ended_for_a_newcomer_after_a_notice(notice: str, ended: bool) -> None:
    alone = seen(replace(RUNNING, notice=notice), 3, "started", members=(A,))
    out = after(alone, words.Tick(9.0), words.Tick(30.0))
    assert bool([a for a in out if isinstance(a, words.Submit)]) is ended


def test_who_does_not_stop_is_waited_for_as_long_as_the_launch_says() -> None:
    out = after(seen(replace(FORMING, notice=""), 1), words.Tick(19.9))
    assert not [a for a in out if isinstance(a, words.Abandon)]
    out = after(seen(replace(FORMING, notice=""), 1), words.Tick(20.1))
    assert "a, b kept the lease for 20 s and did not stop" in next(
        a.reason for a in out if isinstance(a, words.Abandon)
    )


def test_the_next_launch_has_no_notice_and_goes_on() -> None:
    failed = replace(RUNNING, phase=Phase.FAILED, master="", outcome=NOTICED.outcome)
    begin = Job(Phase.FORMING, Round(1), 1, 3, "two")
    how = standing(failed, begin, fresh=False)
    assert isinstance(how, Standing)
    assert how.new is not None
    assert (how.new.notice, how.new.round, how.new.formed) == ("", 3, 2)


def test_a_record_of_before_there_were_notices_has_none() -> None:
    raw = encode(replace(FORMING, notice="")).replace(b'"notice":"",', b"")
    assert b"notice" not in raw
    assert decode_job(raw).notice == ""


def test_the_words_of_ranks_that_use_their_grace_are_waited_for() -> None:
    """A rank that hangs does not end by itself. Red when the round is judged before its node has told what it saw."""
    stopping = replace(RUNNING, phase=Phase.STOPPING, notice="", cause=Cause("alarm", "b", 2))
    patient = LIMITS._replace(grace_s=10.0)
    for until, judged in ((17.9, False), (18.0, True)):
        state, out = Leader(Own(A, INC[A]), patient, Snapshot(KEYS)), list[words.Action]()
        for event in (seen(stopping, 2), words.Tick(until)):
            state, actions = machine.step(state, event)
            out += actions
        assert bool([a for a in out if isinstance(a, words.Conclude)]) is judged
