"""Records survive their bytes; what is no record of ours is refused with words, never with a traceback."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.rendezvous.asked import MOST_RANKS, Asked
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.records import (
    MAX_BLAMED,
    MAX_BYTES,
    MAX_FLAPS,
    MAX_NODES,
    MAX_PAUSE_S,
    MAX_ROUND,
    MAX_SLOTS,
    SCHEMA,
    SETTLED,
    Cause,
    Incarnation,
    Job,
    Member,
    Memory,
    Node,
    NodeId,
    Outcome,
    Paid,
    Phase,
    ResumePoint,
    Roster,
    Round,
    Suspect,
    Terms,
    decode_job,
    decode_node,
    decode_roster,
    decode_terms,
    encode,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
PLAIN = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
NUMBER = st.integers(0, 2**63 - 1)
ROUND = st.integers(1, MAX_ROUND).map(Round)
INC = st.integers(1, 2**63 - 1).map(Incarnation)
SLOTS, PLACE = st.integers(1, MAX_SLOTS), st.integers(-1, 10**6)
MEMBER = st.builds(Member, TEXT.map(NodeId), INC, TEXT, SLOTS, TEXT, PLACE, PLAIN)
MEMBERS = st.lists(MEMBER, min_size=1, max_size=6, unique_by=lambda m: m.node).map(tuple)
ROSTER = st.builds(lambda n, m, size: Roster(n, m[:size], m[size:]), ROUND, MEMBERS, st.integers(1, 6))
NODE = st.builds(Node, INC, TEXT, TEXT, TEXT, SLOTS, ROUND, st.integers(0, 2**31), TEXT, PLACE, st.just(""), PLAIN)
TERMS = st.builds(Terms, TEXT.map(NodeId), st.lists(st.tuples(PLAIN, PLAIN), max_size=8).map(tuple))
RESUME = st.builds(
    ResumePoint, PLAIN, NUMBER, TEXT, TEXT, st.lists(st.tuples(PLAIN, PLAIN), max_size=3).map(tuple), PLAIN
)
ASKED = st.builds(Asked, NUMBER, NUMBER, PLAIN, NUMBER, TEXT, NUMBER, NUMBER, TEXT, TEXT, st.integers(0, MOST_RANKS))

COUNT = st.integers(0, 2**40)
PAID = st.builds(Paid, TEXT, st.lists(NUMBER, max_size=4).map(tuple))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Draw a job record that some agent may have written."""
    phase, n = draw(st.sampled_from(Phase)), draw(ROUND)
    formed = {Phase.FORMING: st.integers(0, n - 1), Phase.FAILED: st.integers(0, n)}.get(phase, st.just(n))
    least = draw(st.integers(1, MAX_NODES))
    return Job(
        phase,
        n,
        least,
        draw(st.integers(least, MAX_NODES)),
        draw(TEXT),
        Round(draw(st.integers(1, n))),
        Round(draw(formed)),
        draw(st.sampled_from(["", "10.0.0.1:500", "[fd00::1]:29500", "node-1:65535"])),
        draw(st.none() | RESUME),
        draw(st.none() | st.builds(Cause, TEXT, TEXT, NUMBER)),
        draw(OUTCOME if phase.over else st.none() | OUTCOME),
        draw(st.lists(st.tuples(TEXT, NUMBER), max_size=3).map(tuple)),
        draw(NUMBER),
        draw(
            st.builds(Memory, TEXT, NUMBER, NUMBER, TEXT, NUMBER, st.lists(PAID, max_size=3).map(tuple), COUNT, COUNT)
        ),
        draw(st.lists(TEXT, max_size=3).map(tuple)),
        blamed=draw(st.lists(st.tuples(TEXT, st.integers(1, n)), max_size=MAX_BLAMED).map(tuple)),
        aside=draw(st.lists(TEXT, max_size=MAX_BLAMED).map(tuple)),
        pause=draw(st.integers(0, MAX_PAUSE_S)),
        asked=draw(st.none() | ASKED),
        suspects=draw(st.lists(st.builds(Suspect, TEXT, NUMBER, st.integers(SETTLED, n)), max_size=2).map(tuple)),
        flaps=draw(st.lists(st.tuples(TEXT, st.integers(1, MAX_ROUND)), max_size=MAX_FLAPS).map(tuple)),
    )


OUTCOME = st.builds(Outcome, st.integers(1, 255), TEXT, TEXT, TEXT, st.integers(-1, 2**40))
JOB_BYTES = encode(Job(Phase.RUNNING, Round(2), 1, 2, "one", formed=Round(2), resume=ResumePoint("/c/step-1", 1)))
NODE_BYTES = encode(Node(Incarnation(5), "m", "b", "10.0.0.1", 8, Round(1)))
ROSTER_BYTES = encode(Roster(Round(2), (Member(NodeId("a"), Incarnation(5), "m", 8, "10.0.0.1"),)))
TERMS_BYTES = encode(Terms(NodeId("a"), (("--nnodes", "2"),)))
DECODERS = [
    (decode_job, JOB_BYTES),
    (decode_node, NODE_BYTES),
    (decode_roster, ROSTER_BYTES),
    (decode_terms, TERMS_BYTES),
]


@given(jobs())
def test_job_survives_its_bytes(job: Job) -> None:
    assert decode_job(encode(job)) == job


def test_a_failure_is_no_success() -> None:
    job = Job(Phase.FAILED, Round(1), 1, 1, "l", outcome=Outcome(0, "done"))
    with pytest.raises(BadRecord, match="exit_code"):
        decode_job(encode(job))
    assert decode_job(encode(replace(job, phase=Phase.DONE, formed=Round(1)))).outcome == Outcome(0, "done")


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.FAILED])
def test_an_end_without_an_outcome_is_no_job_record(phase: Phase) -> None:
    with pytest.raises(BadRecord, match="without an outcome"):
        decode_job(encode(Job(phase, Round(2), 1, 2, "one", formed=Round(2))))


@given(NODE)
def test_node_survives_its_bytes(node: Node) -> None:
    assert decode_node(encode(node)) == node


@given(ROSTER)
def test_roster_survives_its_bytes(roster: Roster) -> None:
    assert decode_roster(encode(roster)) == roster


@given(TERMS)
def test_terms_survive_their_bytes(terms: Terms) -> None:
    assert decode_terms(encode(terms)) == terms


@pytest.mark.parametrize("host", ["a/b", "\ud800", "h\n", "x" * 81, "ü"])
def test_a_host_that_could_name_no_key_is_no_host(host: str) -> None:
    with pytest.raises(BadRecord, match="no name of a host"):
        decode_node(encode(replace(decode_node(NODE_BYTES), host=host)))


@pytest.mark.parametrize("role", ["a" * 257, "a\0b", 7])
def test_a_role_that_no_environment_takes_is_refused(role: object) -> None:
    body = json.loads(NODE_BYTES)
    with pytest.raises(BadRecord, match="role"):
        decode_node(json.dumps({**body, "role": role}).encode())
    assert decode_node(json.dumps({name: body[name] for name in body if name != "role"}).encode()).role == "default"


def test_a_record_without_a_place_asks_for_none() -> None:
    for decode, raw in ((decode_node, NODE_BYTES), (decode_roster, ROSTER_BYTES)):
        assert decode(raw.replace(b',"place":-1', b"")) == decode(raw)  # type: ignore[operator]


@pytest.mark.parametrize(("decode", "good"), DECODERS)
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b"{}", "field 'v'"),
        (b'{"v":true}', "field 'v' is bool"),
        (b'{"v":"1"}', "field 'v' is str"),
        (b"[" * 16_000, "not JSON"),
        (b'{"v":' + b"9" * 10_000 + b"}", "not JSON"),
        (b" " * (MAX_BYTES + 1), "bytes, more than"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_bytes_that_are_no_record(decode: Callable[[bytes], object], good: bytes, raw: bytes, words: str) -> None:
    assert decode(good)
    with pytest.raises(BadRecord, match=words):
        decode(raw)


@pytest.mark.parametrize(("decode", "good"), DECODERS)
def test_a_newer_record_is_refused_and_a_newer_field_is_not(decode: Callable[[bytes], object], good: bytes) -> None:
    body = json.loads(good)
    assert decode(json.dumps({**body, "colour": "red"}).encode()) == decode(good)
    with pytest.raises(BadRecord, match="written by a newer remuster"):
        decode(json.dumps({**body, "v": SCHEMA + 1}).encode())


@pytest.mark.parametrize(("decode", "good"), DECODERS)
@given(data=st.data())
@settings(max_examples=100)
def test_a_spoilt_field_ends_in_words_or_in_nothing(decode: Callable[[bytes], object], good: bytes, data: Any) -> None:
    body = json.loads(good)
    name = data.draw(st.sampled_from(sorted(body)))
    body[name] = data.draw(st.sampled_from([[], {}, "Q", 1.5, True, [1], [[1, 2]], [["a", "b", "c"]], -1, None]))
    with contextlib.suppress(BadRecord):  # some of these are right for some of the fields
        decode(json.dumps(body).encode())


@given(st.binary(max_size=200))
def test_noise_is_refused_in_words(raw: bytes) -> None:
    for decode, _ in DECODERS:
        with pytest.raises(BadRecord):
            decode(raw)


def test_job_stays_small() -> None:
    job = Job(
        Phase.RUNNING,
        Round(10**6),
        100,
        1000,
        "slurm-1234567-3",
        master="node-1234.cluster.example.org:29500",
        resume=ResumePoint("/shared/some/where/checkpoints/run/step-000001234567", 1234567, "dcp", "digests compared"),
        spent=tuple((family, 3) for family in ("hardware", "network", "node", "storage", "hang", "scheduler", "user")),
        memory=Memory(
            "f" * 64, 1234567, 2, "hardware", 2, (Paid("hardware", tuple(range(1_795_951_311, 1_795_951_314))),)
        ),
        flaps=tuple((f"{i:08x}", 6) for i in range(MAX_FLAPS)),
    )
    assert len(encode(job)) < 1024


def test_a_record_without_nodes_that_came_and_went_is_one() -> None:
    body = json.loads(JOB_BYTES)
    del body["flaps"]
    assert decode_job(json.dumps(body).encode()).flaps == ()


@pytest.mark.parametrize(
    "flaps", [3, "ab", {"a": 1}, [["a"]], [["a", 0]], [["a", -1]], [["a", "b"]], [[1, 1]], [["a", 1]] * (MAX_FLAPS + 1)]
)
def test_nonsense_about_nodes_that_came_and_went_is_refused(flaps: object) -> None:
    with pytest.raises(BadRecord, match="flaps"):
        decode_job(json.dumps({**json.loads(JOB_BYTES), "flaps": flaps}).encode())


def test_ranks_follow_the_slots_of_the_members_before() -> None:
    a, b = (Member(NodeId(n), Incarnation(i), "m", s, "x") for i, (n, s) in enumerate((("a", 4), ("b", 2))))
    roster = Roster(Round(1), (a, b))
    assert roster.world_size == 6
    assert [roster.first_rank(i) for i in (0, 1)] == [0, 4]
    assert roster.place(NodeId("b"), Incarnation(1)) == 1
    assert roster.place(NodeId("b"), Incarnation(2)) is None
