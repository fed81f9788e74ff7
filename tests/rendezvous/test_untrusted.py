"""What stands in the store may have been written by anybody: whatever it is, it ends in words or is passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim.garbage import mutated, noise

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.judge import Allowance, weigh
from remuster.agent.node_state import NodeState, Settings
from remuster.health import wire
from remuster.health.evidence import Fault, RankExit, Told
from remuster.rendezvous import leader, leader_words
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.history import entry
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.leader_words import Abandon, Elected, Limits
from remuster.rendezvous.records import (
    MAX_NODES,
    MAX_ROUND,
    MAX_SLOTS,
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
    decode_roster,
    decode_terms,
    encode,
)
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import KeyValue, Range
from remuster.rendezvous.writes import Own

KEYS = Keys("run")
A, B = NodeId("a"), NodeId("b")
MEMBERS = (Member(A, Incarnation(7), "m-a", 2, "10.0.0.1", 0), Member(B, Incarnation(8), "m-b", 1, "10.0.0.2", 1))
FORMING = Job(Phase.FORMING, Round(4), 1, 2, "one", formed=Round(3), past=("zero",))
RUNNING = Job(
    *(Phase.RUNNING, Round(3), 1, 2, "one", Round(2), Round(3), "10.0.0.1:500"),
    *(
        ResumePoint("/c/step-1", 1, "own", "digests", (("A", "b"),)),
        None,
        None,
        (("user", 2),),
        1,
        Memory("print", 5, 1),
    ),
)
STOPPING = replace(RUNNING, phase=Phase.STOPPING, resume=None, cause=Cause("failed", "b", 8))
FAILED = replace(RUNNING, phase=Phase.FAILED, outcome=Outcome(3, "a bug", "user_exception", "a", 1))
ROSTER = Roster(Round(3), MEMBERS, (Member(NodeId("c"), Incarnation(9), "m-c", 1, "10.0.0.3"),))
NODE = Node(Incarnation(7), "m-a", "boot", "10.0.0.1", 2, Round(3), 4711, "99")
TERMS = Terms(A, (("--nnodes", "1:2"), ("the script", "train.py")))
REAL: list[tuple[Callable[[bytes], Any], list[bytes]]] = [
    (decode_job, [encode(job) for job in (FORMING, RUNNING, STOPPING, FAILED)]),
    (decode_roster, [encode(ROSTER)]),
    (decode_node, [encode(NODE)]),
    (decode_terms, [encode(TERMS)]),
]
FACTS = (RankExit(1, 1, 900, 1, 3.5, tail=("Traceback", "ValueError: x")), Told(4.0), Fault("no port"))
HISTORY = b'{"path":"/c","step":4,"format":"own","verified":"yes","refused":[["step-9","torn"]],"wall":1.5}'
fuzz = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SEED = st.integers(0, 2**32)


# --- records --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("decode", "real"), REAL, ids=lambda value: getattr(value, "__name__", ""))
@fuzz
@given(seed=SEED)
def test_a_spoilt_record_is_refused_or_within_bounds(decode: Callable[[bytes], Any], real: list[bytes], seed: int):
    rng = Random(seed)
    for _ in range(10):
        record = read(decode, mutated(rng.choice(real), rng))
        if isinstance(record, BadRecord):
            assert str(record).startswith(decode.__name__.removeprefix("decode_"))
            assert len(str(record)) < 300
        else:
            assert decode(encode(record)) == record
            within_bounds(record)


def read(decode: Callable[[bytes], Any], raw: bytes) -> Any:
    """Return the record, or how it was refused; anything else is a defect."""
    try:
        return decode(raw)
    except BadRecord as refused:
        return refused


def within_bounds(record: Any) -> None:
    match record:
        case Job():
            assert 1 <= record.first <= record.round <= MAX_ROUND
            assert 0 <= record.formed <= record.round
            assert 1 <= record.min_nodes <= record.max_nodes <= MAX_NODES
            assert record.outcome or not record.phase.over
            assert "\0" not in record.master
        case Roster(members=members, spares=spares):
            assert members
            assert all(1 <= m.slots <= MAX_SLOTS and m.inc > 0 for m in members + spares)
        case Node():
            assert 1 <= record.slots <= MAX_SLOTS
            assert 0 <= record.ready <= MAX_ROUND


def spoilt(record: Any, **fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(record)), **fields}).encode()


@pytest.mark.parametrize(
    ("decode", "raw", "says"),
    [
        (decode_job, spoilt(RUNNING, v=2), "job: written by a newer remuster (schema 2, this one knows 1)"),
        (decode_job, spoilt(RUNNING, v=0), "job: written by an older remuster"),
        (decode_job, spoilt(RUNNING, phase="Z"), "job: unknown phase 'Z'"),
        (decode_job, spoilt(RUNNING, round=-5), "job: field 'round' is -5, not one of 1 to"),
        (decode_job, spoilt(RUNNING, round=10**40), "a number of more than 63 bits"),
        (decode_job, spoilt(RUNNING, min_nodes=0), "job: field 'min_nodes' is 0"),
        (decode_job, spoilt(RUNNING, min_nodes=3), "job: field 'max_nodes' is 2, not one of 3 to"),
        (decode_job, spoilt(RUNNING, formed=2), "job: field 'formed' is 2, not one of 3 to 3"),
        (decode_job, spoilt(FORMING, formed=4), "job: field 'formed' is 4, not one of 0 to 3"),
        (decode_job, spoilt(RUNNING, master="nowhere"), "job: field 'master' is 'nowhere', not HOST:PORT"),
        (decode_job, spoilt(RUNNING, master="a\0b:1"), "field 'master' holds a NUL character"),
        (decode_job, spoilt(RUNNING, resume={"path": []}), "job.resume: field 'env' is NoneType"),
        (decode_job, spoilt(FAILED, outcome={"exit_code": 300, "rank": 0}), "job.outcome: field 'exit_code' is 300"),
        (decode_node, spoilt(NODE, inc="7"), "node: field 'inc' is str, expected int"),
        (decode_node, spoilt(NODE, slots=10**9), "node: field 'slots' is 1000000000"),
        (decode_node, spoilt(NODE, boot="x" * 20000), " bytes, more than 16384"),
        (decode_roster, spoilt(ROSTER, members=[]), "roster: no members"),
        (decode_roster, spoilt(ROSTER, spares=[MEMBERS[0]._asdict()]), "roster: it names a node twice"),
        (decode_terms, spoilt(TERMS, said=[["a"]]), "terms: field 'said' holds something else than pairs"),
        (decode_terms, spoilt(TERMS, said=[["a", "b"]] * 99), "terms: field 'said' has 99 entries, more than 64"),
    ],
)
def test_what_is_wrong_is_named(decode: Callable[[bytes], object], raw: bytes, says: str) -> None:
    with pytest.raises(BadRecord) as refused:
        decode(raw)
    assert says in str(refused.value)


# --- the job machine ------------------------------------------------------------------------------------------------
OWN = Own(A, Incarnation(7))
LIMITS = Limits(1.0, 30.0, 3.0)


def tree(job: Job) -> dict[str, KeyValue]:
    """Return a run of two members and a spare in which a leads."""
    out = {
        KEYS.job: KeyValue(KEYS.job, encode(job), 1, 9),
        KEYS.terms: KeyValue(KEYS.terms, encode(TERMS), 1, 1),
        KEYS.leader: KeyValue(KEYS.leader, b"a@7", 5, 5, 7),
        KEYS.roster(Round(3)): KeyValue(KEYS.roster(Round(3)), encode(ROSTER), 6, 6),
        KEYS.history(Round(3)): KeyValue(KEYS.history(Round(3)), HISTORY, 6, 6),
        KEYS.attempt(Round(2)): KeyValue(KEYS.attempt(Round(2)), b"{}", 6, 6),
    }
    for m in MEMBERS + ROSTER.spares:
        record = Node(m.inc, m.machine, "boot", m.address, m.slots, Round(4), place=m.place)
        out[KEYS.node(m.node)] = KeyValue(KEYS.node(m.node), encode(record), m.inc, m.inc, m.inc)
        for kind in ("evidence", "started", "finished"):
            key = KEYS.report(kind, Round(3), m.node, m.inc)
            out[key] = KeyValue(key, wire.encode(FACTS) if kind == "evidence" else b"{}", 7, 7)
    return out


def elected(kvs: dict[str, KeyValue], *events: leader_words.Event, own: Own = OWN) -> list[leader_words.Action]:
    state = Leader(own, LIMITS, Snapshot(KEYS))
    out: list[leader_words.Action] = []
    for event in (Elected(1.0, 5, Range(tuple(kvs[key] for key in sorted(kvs)), 20)), *events):
        state, actions = leader.step(state, event)
        out += actions
    return out


@fuzz
@given(seed=SEED)
def test_the_leader_decides_waits_or_says_why_it_cannot(seed: int) -> None:
    rng = Random(seed)
    kvs = tree(rng.choice((FORMING, RUNNING, STOPPING, FAILED)))
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(kvs))
        what = rng.random()
        if what < 0.5:
            kvs[name] = kvs[name]._replace(value=mutated(kvs[name].value, rng))
        elif what < 0.65:
            del kvs[name]
            if not kvs:
                return
        elif what < 0.75:
            kvs[name] = kvs[name]._replace(lease=rng.choice((0, 7, 8, 99)))
        else:
            kind = rng.choice(("", "nodes/", "rounds/", "history/", "evidence/0000000003/", "finished/0000000003/"))
            odd = ("", "\udcff", "x@", "a@zz", "a@-7", "9" * 5000, "0000000099", "000000003", "²²²²²²²²²²", "b@8/c")
            key = KEYS.prefix + kind + rng.choice(odd)
            kvs[key] = KeyValue(key, noise(rng), 8, 8, rng.choice((0, 7)))
    for action in elected(kvs, leader_words.Tick(100.0), leader_words.Tick(1000.0)):
        match action:
            case leader_words.Conclude():
                made = weigh(action, Allowance(3, ()), -1, 1_795_951_311)
                assert made.outcome.exit_code in range(256)
                for n, raw in action.history:
                    assert 1 <= n <= 9_999_999_999
                    assert entry(raw)["step"] is not None
            case Abandon(reason=reason):
                assert (
                    reason.startswith("the store holds what cannot be used: /remuster/run/") or "did not stop" in reason
                )
            case _:
                pass


def with_(job: Job, key: str, value: bytes | None = None, lease: int | None = None) -> dict[str, KeyValue]:
    kvs = tree(job)
    if value is None and lease is None:
        kvs.pop(key, None)
        return kvs
    kv = kvs.get(key, KeyValue(key, b"", 8, 8))
    kvs[key] = kv._replace(value=kv.value if value is None else value, lease=kv.lease if lease is None else lease)
    return kvs


@pytest.mark.parametrize("job", [FORMING, RUNNING, STOPPING], ids=lambda job: job.phase.name)
@pytest.mark.parametrize(
    ("key", "value", "lease", "says"),
    [
        (KEYS.roster(Round(3)), None, None, "/run/rounds/0000000003 is missing: who ran in round 3"),
        (KEYS.roster(Round(3)), b"{}", None, "/run/rounds/0000000003: roster: field 'v'"),
        (KEYS.roster(Round(3)), encode(ROSTER._replace(round=Round(2))), None, "it is that of round 2"),
        (KEYS.roster(Round(5)), b"", None, "/run/job says that round 3 was the last to form; there is one of 5"),
        (KEYS.node(B), b"x", None, "/run/nodes/b: node: not JSON"),
        (KEYS.node(B), None, 0, "/run/nodes/b: incarnation 8 hangs on lease 0"),
        (KEYS.node(B), encode(NODE), None, "/run/nodes/b: incarnation 7 hangs on lease 8"),
        (KEYS.job, b"x", None, "/run/job: job: not JSON"),
        (KEYS.job, spoilt(RUNNING, v=2), None, "written by a newer remuster"),
    ],
)
def test_nobody_leads_on_from_there(job: Job, key: str, value: bytes | None, lease: int | None, says: str) -> None:
    actions = elected(with_(job, key, value, lease))
    assert [type(action) for action in actions] == [Abandon]
    assert says in actions[0].reason  # type: ignore[union-attr]
    assert "another --rdzv-id" in actions[0].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("lease", [0, 8])
def test_a_leader_whose_own_key_was_written_over_can_write_nothing_and_ends(lease: int) -> None:
    spare = Own(NodeId("c"), Incarnation(9))
    (action,) = elected(with_(FORMING, KEYS.node(spare.node), None, lease), own=spare)
    assert isinstance(action, Abandon)
    assert "/run/nodes/c does not hang on the lease of this agent, which leads" in action.reason


@pytest.mark.parametrize(
    ("key", "value", "lease"),
    [
        (KEYS.node(NodeId("c")), b"noise", None),  # a spare's
        (KEYS.node(NodeId("c")), None, 0),
        (KEYS.node(NodeId("stranger")), b"noise", 0),
        (KEYS.prefix + "rounds/here", b"noise", 0),
        (KEYS.prefix + "rounds/0000000002", b"noise", 0),
        (KEYS.prefix + "what", b"noise", 0),
        (KEYS.prefix + "\udcff", b"\xff", 0),
        (KEYS.prefix + "history/" + "9" * 5000, b"", 0),
        (KEYS.history(Round(3)), b'{"step":1,"refused":[5]}', 0),
        (KEYS.report("finished", Round(3), B, Incarnation(8)) + "x", b"", 0),
    ],
)
def test_what_nobody_needs_is_passed_over(key: str, value: bytes | None, lease: int | None) -> None:
    for job in (FORMING, STOPPING):
        actions = elected(with_(job, key, value, lease), leader_words.Tick(2.5))  # the last call is over
        wanted = leader_words.SelectResume if job is FORMING else leader_words.Conclude
        assert [type(a) for a in actions if not isinstance(a, leader_words.Wake)] == [wanted]


def test_a_member_that_keeps_its_lease_and_never_stops_ends_the_wait() -> None:
    kvs = tree(FORMING)
    slow = replace(NODE, inc=Incarnation(8), ready=Round(3))
    kvs[KEYS.node(B)] = kvs[KEYS.node(B)]._replace(value=encode(slow))
    (wait,) = elected(kvs)
    assert wait == leader_words.Wake(601.0, "round 4: waiting for b to stop")
    *_, last = elected(kvs, leader_words.Tick(601.0))
    assert isinstance(last, Abandon)
    assert last.reason.startswith("round 4: b kept the lease for 600 s and did not stop")


# --- the node machine -----------------------------------------------------------------------------------------------
SETTINGS = Settings(
    *(KEYS, A, replace(NODE, inc=Incarnation(0), ready=Round(0)), FORMING, False, 5.0, 60.0),
    stall_s=2400.0,
    terms=TERMS.said,
)


@fuzz
@given(seed=SEED)
def test_an_agent_joins_goes_on_or_ends_in_words(seed: int) -> None:
    rng = Random(seed)
    job = rng.choice((FORMING, RUNNING, STOPPING, FAILED))
    seen = KeyValue(KEYS.job, mutated(encode(job), rng) if rng.random() < 0.6 else encode(job), 1, 9)
    record = encode(rng.choice((NODE, replace(NODE, machine="m-z"))))
    held = KeyValue(KEYS.node(A), mutated(record, rng), 4, 4, rng.choice((0, 8))) if rng.random() < 0.5 else None
    terms = KeyValue(KEYS.terms, mutated(encode(TERMS), rng), 1, 1) if rng.random() < 0.9 else None
    chief = KeyValue(KEYS.leader, noise(rng), 5, 5, rng.choice((0, 7, 8)))
    state = NodeState(SETTINGS, inc=Incarnation(7), pending=frozenset({"reread"}))
    for event in (
        words.Rereading(1.0, True, 20, seen, held, chief, terms),
        words.RosterRead(1.1, Round(3), True, KeyValue("", mutated(encode(ROSTER), rng), 6, 6), 9),
        words.JobSeen(1.2, KeyValue(KEYS.job, mutated(encode(job), rng), 1, 10)),
        words.LeaderSeen(1.3, chief, 21),
        words.Tick(100.0),
    ):
        state, actions = node.step(state, event)
        for action in actions:
            if isinstance(action, words.Exit):
                assert action.code in (2, 69, 75, *range(256))
                assert action.sentence
                assert len(action.sentence) < 5000


@pytest.mark.parametrize(("ran", "code"), [(0, 69), (3, 75)])
@pytest.mark.parametrize(
    ("event", "says"),
    [
        (words.JobSeen(5.0, KeyValue(KEYS.job, b"{", 1, 20)), "/run/job: job: not JSON"),
        (words.JobSeen(5.0, KeyValue(KEYS.job, spoilt(RUNNING, v=9), 1, 20)), "written by a newer remuster (schema 9"),
        (
            words.JobSeen(5.0, KeyValue(KEYS.job, spoilt(FORMING, round=2, formed=1), 1, 20)),
            "/run/job says round 2, the last formed 1; round 3 had",
        ),
        (
            words.LeaderSeen(5.0, KeyValue(KEYS.leader, b"a@0", 20, 20), 20),
            "/run/leader was written by no agent: delete",
        ),
        (
            words.LeaderSeen(5.0, KeyValue(KEYS.leader, b"8", 20, 20, 8), 20),
            "/run/leader was written by no agent: delete",
        ),
        (words.RosterRead(5.0, Round(3), True, None, 10), "/run/rounds/0000000003 is missing: who runs in that round"),
        (
            words.RosterRead(5.0, Round(3), True, KeyValue("k", encode(ROSTER._replace(round=Round(9))), 1, 1), 10),
            "k: it is that of round 9",
        ),
        (words.Tick(5000.0), "round 3 has been without a master address for 2400 s, and no agent takes it on"),
    ],
)
def test_an_agent_ends_with_a_sentence_and_a_code(ran: int, code: int, event: words.Event, says: str) -> None:
    waiting = replace(RUNNING, master="")
    state = NodeState(
        SETTINGS, inc=Incarnation(7), mod=5, ready=Round(3), round=Round(ran), seen=Round(3), launch="one"
    )
    state, _ = node.step(state, words.LeaderSeen(1.0, KeyValue(KEYS.leader, b"b@8", 3, 3, 8), 3))
    state, _ = node.step(state, words.JobSeen(1.0, KeyValue(KEYS.job, encode(waiting), 1, 10)))
    state, actions = node.step(state, event)
    (end,) = (a for a in actions if isinstance(a, words.Exit))
    assert (end.code, says in end.sentence) == (code, True), end
    assert node.step(state, words.Tick(6000.0)) == (state, ())


def test_a_roster_that_is_over_is_asked_for_again_until_the_job_says_so() -> None:
    state = NodeState(SETTINGS, inc=Incarnation(7), mod=5, ready=Round(3), seen=Round(3), launch="one")
    state, _ = node.step(state, words.LeaderSeen(1.0, KeyValue(KEYS.leader, b"b@8", 3, 3, 8), 3))
    state, _ = node.step(state, words.JobSeen(1.0, KeyValue(KEYS.job, encode(RUNNING), 1, 10)))
    state, actions = node.step(state, words.RosterRead(1.1, Round(3), True, None, 12))
    assert not [a for a in actions if not isinstance(a, words.Wake)]
    state, actions = node.step(state, words.Tick(1.5))
    assert actions[0] == words.ReadRoster(Round(3))


# --- evidence -------------------------------------------------------------------------------------------------------
@fuzz
@given(seed=SEED)
def test_spoilt_evidence_is_judged(seed: int) -> None:
    rng = Random(seed)
    reports = [wire.encode(FACTS), wire.encode((Fault("x"),)), b""]
    kvs = tree(STOPPING)
    for m in MEMBERS:
        key = KEYS.report("evidence", Round(3), m.node, m.inc)
        kvs[key] = kvs[key]._replace(value=mutated(rng.choice(reports), rng))
    (ask,) = (a for a in elected(kvs) if isinstance(a, leader_words.Conclude))
    made = weigh(ask, Allowance(3, ()), -1, 1_795_951_311)
    assert made.verdict.sentence
    failed = replace(FAILED, outcome=made.outcome, memory=made.charge.memory, spent=made.charge.spent)
    assert decode_job(encode(failed)) == failed  # nobody may write what nobody could read
