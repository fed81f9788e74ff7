"""Who may be chosen after a verdict that blames a node: tables of the gate, and the bytes that it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.rendezvous.admission import MAX_FLAPS, mark
from remuster.rendezvous.gate import ASIDE_S, NOBODY, Blame, after_close, after_verdict, aside, blamed_for, owing, unfit
from remuster.rendezvous.membership import Candidate
from remuster.rendezvous.records import (
    MAX_BLAMED,
    Cause,
    Incarnation,
    Job,
    Member,
    Memory,
    Node,
    NodeId,
    Phase,
    ResumePoint,
    Roster,
    Round,
    decode_job,
    decode_node,
    encode,
)
from remuster.rendezvous.snapshot import Standby

A, B, C = (NodeId(name) for name in "abc")
JOB = Job(Phase.FORMING, Round(4), 1, 3, "one", formed=Round(3))


def member(node: NodeId, inc: int = 1, machine: str = "") -> Member:
    return Member(node, Incarnation(inc), machine or f"m{node}-boot-ns", 1, "10.0.0.1")


ROSTER = Roster(Round(3), (member(A), member(B)))


def standby(node: NodeId, ready: int = 4, checked: int = 0, bad: str = "", inc: int = 1) -> Standby:
    record = Node(Incarnation(inc), f"m{node}-boot2-ns", "b", "10.0.0.1", 1, Round(ready), checked=Round(checked))
    return Standby(replace(record, unfit=bad), 5)


def test_a_blame_is_kept_by_node_and_machine_until_a_round_runs_with_it() -> None:
    job = after_verdict(JOB, Blame(B, check=True, aside=True), ROSTER, 5.0)
    assert (job.blamed, job.aside) == (((mark(B, "mb"), 3),), (mark(B, "mb"),))
    assert blamed_for(job, B, "mb-another boot-ns") == 3
    assert blamed_for(job, B, "another machine-boot-ns") == 0
    assert blamed_for(job, A, "mb-boot-ns") == 0
    assert after_close(job, Roster(Round(4), (member(A), member(C)))) == job
    cleared = after_close(job, Roster(Round(4), (member(B, inc=9, machine="mb-boot2-ns"),)))
    assert (cleared.blamed, cleared.aside) == ((), ())


@pytest.mark.parametrize(
    ("blame", "blamed", "stands"),
    [
        (NOBODY, 0, 0),
        (Blame("nobody of this round", True, True), 0, 0),
        (Blame(B, True, False), 1, 0),
        (Blame(B, False, True), 0, 1),
    ],
)
def test_what_is_laid_on_whom(blame: Blame, blamed: int, stands: int) -> None:
    job = after_verdict(JOB, blame, ROSTER, 5.0)
    assert (len(job.blamed), len(job.aside)) == (blamed, stands)


def test_who_stood_aside_for_a_long_round_is_welcome_again_but_still_to_be_checked() -> None:
    job = replace(JOB, blamed=((mark(C, "mc"), 2),), aside=(mark(C, "mc"),))
    assert after_verdict(job, NOBODY, ROSTER, ASIDE_S - 1) == job
    later = after_verdict(job, NOBODY, ROSTER, ASIDE_S)
    assert (later.blamed, later.aside) == (job.blamed, ())


def test_a_later_blame_takes_the_place_of_an_earlier_one_and_there_are_never_too_many() -> None:
    job = JOB
    for n in range(1, 30):
        who = NodeId(f"n{n % 12}")
        job = after_verdict(job, Blame(who, True, True), Roster(Round(n), (member(who),)), 5.0)
    assert len(job.blamed) == len(job.aside) == MAX_BLAMED
    assert job.blamed[0] == (mark(NodeId("n5"), "mn5"), 29)
    assert len(dict(job.blamed)) == MAX_BLAMED


def test_who_is_to_be_checked_and_since_when() -> None:
    job = after_verdict(JOB, Blame(B, check=True), ROSTER, 5.0)
    who = (B, Incarnation(1))
    here = {A: standby(A), B: standby(B)}
    first = owing((), job, here, 10.0)
    assert first == ((who, 3, 10.0),)
    assert owing(first, job, here, 20.0) == first
    assert owing(first, job, here | {B: standby(B, inc=2)}, 20.0) == (((B, Incarnation(2)), 3, 20.0),)
    assert owing(first, job, here | {B: standby(B, ready=3)}, 20.0) == (), "its ranks may live: no check runs yet"
    assert owing(first, job, here | {B: standby(B, checked=3)}, 20.0) == ()
    again = replace(job, blamed=((mark(B, "mb"), 4),))
    assert owing(first, again, here | {B: standby(B, checked=3)}, 20.0) == ((who, 4, 20.0),)


def test_who_stands_aside_and_who_is_unfit() -> None:
    ready = (Candidate(member(B), 9), Candidate(member(A), 7), Candidate(member(C), 8))
    job = replace(JOB, aside=(mark(B, "mb"), mark(A, "ma")))
    assert [c.member.node for c in aside(job, ready)] == [A, B]
    assert [c.member.node for c in aside(replace(job, aside=job.aside[::-1]), ready)] == [B, A]
    assert aside(JOB, ready) == ()
    nodes = {A: standby(A), B: standby(B, bad="GPU 3 is lost"), C: standby(C, bad="no memory")}
    assert unfit(nodes) == "b and c failed the node check (GPU 3 is lost)"
    assert unfit({A: standby(A)}) == ""


def test_records_of_agents_that_know_no_gate_are_read_as_blaming_nobody() -> None:
    job, node = encode(JOB), encode(standby(A).record)
    for name in (b'"blamed":[],', b'"aside":[],', b'"pause":0,'):
        assert name in job
        job = job.replace(name, b"")
    for name in (b'"checked":0,', b',"unfit":""'):
        assert name in node
        node = node.replace(name, b"")
    assert decode_job(job) == JOB
    assert decode_node(node) == standby(A).record


def test_the_job_record_stays_small() -> None:
    marks = tuple(mark(NodeId(str(i)), "m") for i in range(MAX_BLAMED))
    worst = replace(
        JOB,
        round=Round(99999),
        formed=Round(99998),
        launch="1234567-0",
        past=("1234566-0",),
        blamed=tuple((who, 99998) for who in marks),
        aside=marks,
        pause=450,
        flaps=tuple((who, 6) for who in marks[:MAX_FLAPS]),
        spent=(("hardware", 12), ("network", 3)),
        memory=Memory("0123456789abcdef", 10**6, 3, "hardware", 9, (), 4, 7),
        cause=Cause("failed", "gpu-node-0123", 2**62),
        resume=ResumePoint("/lustre/project/checkpoints/step-01000000", 10**6, "dcp", "digests of all files"),
    )
    assert len(encode(worst)) <= 1280, len(encode(worst))


@given(st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.booleans(), st.booleans()), max_size=30))
def test_whoever_is_blamed_last_is_never_forgotten(story: list[tuple[str, bool, bool]]) -> None:
    job = JOB
    for n, (name, check, apart) in enumerate(story, 1):
        who = NodeId(name)
        job = after_verdict(job, Blame(who, check, apart), Roster(Round(n), (member(who),)), 1.0)
        assert not check or blamed_for(job, who, f"m{name}-x-y") == n
        assert decode_job(encode(replace(job, round=Round(n + 1), formed=Round(n)))).blamed == job.blamed
