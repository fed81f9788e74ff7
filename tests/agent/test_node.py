"""The node machine: tables of (state, event) → actions, for the paths that an agent takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import NodeState, Ranks, Settings
from remuster.health.evidence import Fault, Fenced, GuardianDied, RankExit, StartError
from remuster.rendezvous.admission import FLAPS, mark
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Job,
    Member,
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
from remuster.rendezvous.store import KeyValue, Put, Range, TxnResult
from remuster.rendezvous.writes import Kind, Seen, Write

KEYS = Keys("run")
ME, INC, OTHER = NodeId("a"), Incarnation(7), Incarnation(8)
RECORD = Node(Incarnation(0), "m-a", "boot", "10.0.0.1", 2, Round(0))
BEGIN = Job(Phase.FORMING, Round(1), 1, 2, "one")
SAID = (("--nnodes", "1:2"), ("the script", "train.py"))
SETTINGS = Settings(KEYS, ME, RECORD, BEGIN, fresh=False, grace_s=5.0, patience_s=60.0, held_s=17.0, terms=SAID)
FORMING = replace(BEGIN, round=Round(3), formed=Round(2))
RUNNING = replace(FORMING, phase=Phase.RUNNING, formed=Round(3), resume=ResumePoint("c", 1))
MEETING = replace(RUNNING, master="10.0.0.1:500")
STOPPING = replace(MEETING, phase=Phase.STOPPING, resume=None, cause=Cause("failed", "b", 8))
DONE = replace(RUNNING, phase=Phase.DONE, outcome=Outcome(0, "done"))
FAILED = replace(RUNNING, phase=Phase.FAILED, outcome=Outcome(3, "a bug"))
MEMBERS = (Member(ME, INC, "m-a", 2, "10.0.0.1"), Member(NodeId("b"), OTHER, "m-b", 1, "10.0.0.2"))
ROSTER = Roster(Round(3), MEMBERS)
SECOND = Roster(Round(3), MEMBERS[::-1])


def kv(job: Job, mod: int) -> KeyValue:
    return KeyValue(KEYS.job, encode(job), 1, mod)


def own(ready: int, lease: int = INC, mod: int = 5) -> KeyValue:
    record = replace(RECORD, inc=Incarnation(lease), ready=Round(ready))
    return KeyValue(KEYS.node(ME), encode(record), 4, mod, lease)


def terms(by: str = "b", **changed: str) -> KeyValue:
    said = tuple((what, changed.get(what.rpartition(" ")[2], value)) for what, value in SAID)
    return KeyValue(KEYS.terms, encode(Terms(NodeId(by), said)), 1, 1)


def roster_kv(roster: Roster) -> KeyValue:
    return KeyValue(KEYS.roster(roster.round), encode(roster), 11, 11)


LEADER = KeyValue(KEYS.leader, b"b@8", 3, 3, OTHER)


def joined(job: Job, **changes: Any) -> NodeState:
    """Return an agent that has joined, knows a leader, and sees ``job`` at revision 10."""
    state = NodeState(SETTINGS, inc=INC, mod=5, ready=Round(3), job=Seen(job, 10), leader=LEADER, launch=job.launch)
    return replace(state, **changes)


def in_round(job: Job = MEETING, roster: Roster = ROSTER, **changes: Any) -> NodeState:
    """Return a member of round 3 whose two ranks run."""
    live: dict[str, Any] = {
        "roster": roster,
        "seen": Round(3),
        "ranks": Ranks.LIVE,
        "round": Round(3),
        "started_at": 100.0,
        "alive": frozenset({0, 1}),
        "told": False,
    }
    return joined(job, **(live | changes))


def run(state: NodeState, *events: words.Event) -> tuple[NodeState, list[words.Action]]:
    """Give the machine the events in order; return all it wants but to be woken."""
    out: list[words.Action] = []
    for event in events:
        state, actions = node.step(state, event)
        out += [a for a in actions if not isinstance(a, words.Wake)]
    return state, out


def said(actions: list[words.Action]) -> list[str]:
    """Name the actions; a write by its row and round."""
    return [
        f"{a.write.kind.value}({a.write.round})" if isinstance(a, words.Submit) else type(a).__name__.lower()
        for a in actions
    ]


def written(actions: list[words.Action], kind: Kind) -> Write:
    return next(a.write for a in actions if isinstance(a, words.Submit) and a.write.kind is kind)


def put(write: Write, key: str) -> bytes:
    return next(op.value for op in write.txn.then if isinstance(op, Put) and op.key == key)


def ok(at: float, kind: Kind, n: int, *ranges: KeyValue | None, revision: int = 20) -> words.Wrote:
    found = tuple(Range((r,) if r else (), revision) for r in ranges)
    return words.Wrote(at, kind, Round(n), INC, TxnResult(True, revision, found))


# --- joining --------------------------------------------------------------------------------------------------------
def test_joins_an_empty_run_and_makes_the_job() -> None:
    state, actions = node.begin(SETTINGS, 0.0)
    assert said(list(actions)) == ["grant"]
    state, out = run(state, words.Granted(0.1, INC))
    assert said(out) == ["reread"]
    state, out = run(state, words.Rereading(0.2, True, 1, None, None, None))
    assert said(out) == ["join(1)"]
    assert decode_job(put(written(out, Kind.JOIN), KEYS.job)) == BEGIN
    assert decode_terms(put(written(out, Kind.JOIN), KEYS.terms)) == Terms(ME, SAID)
    state, out = run(state, ok(0.3, Kind.JOIN, 1, kv(BEGIN, 2), None, revision=2))
    assert (said(out), state.joined, state.ready) == (["watch", "lead(0)"], True, 1)


@pytest.mark.parametrize(
    ("job", "ready"), [(FORMING, 3), (RUNNING, 4), (STOPPING, 4), (replace(FAILED, launch="zero"), 4)]
)
def test_joins_with_what_it_can_promise(job: Job, ready: int) -> None:
    state = NodeState(SETTINGS, inc=INC, pending=frozenset({"reread"}))
    _, out = run(state, words.Rereading(1.0, True, 9, kv(job, 9), None, None, terms()))
    record = decode_node(put(written(out, Kind.JOIN), KEYS.node(ME)))
    assert (record.ready, record.inc) == (ready, INC)


@pytest.mark.parametrize(
    ("job", "code"), [(DONE, 0), (FAILED, 3), (replace(DONE, launch="zero"), 2)], ids=["done", "failed", "another's"]
)
def test_a_run_that_is_over_is_not_joined(job: Job, code: int) -> None:
    state = NodeState(SETTINGS, inc=INC, pending=frozenset({"reread"}))
    _, out = run(state, words.Rereading(1.0, True, 9, kv(job, 9), None, None))
    assert [a.code for a in out if isinstance(a, words.Exit)] == [code]


REREADING = NodeState(SETTINGS, inc=INC, pending=frozenset({"reread"}))


def held(ready: int = 1, lease: int = OTHER, mod: int = 4) -> KeyValue:
    """Return this node's name in the hands of another machine."""
    record = replace(RECORD, inc=Incarnation(lease or 9), machine="m-z", address="10.0.0.9", ready=Round(ready))
    return KeyValue(KEYS.node(ME), encode(record), 4, mod, lease)


def ends(actions: list[words.Action]) -> list[tuple[int, str]]:
    return [(a.code, a.sentence) for a in actions if isinstance(a, words.Exit)]


def test_an_earlier_agent_of_the_same_machine_is_revoked() -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, None, own(1, OTHER), None))
    assert [a.inc for a in out if isinstance(a, words.RevokeOld)] == [OTHER]


def test_a_name_that_another_machine_holds_is_waited_for_as_long_as_a_lease() -> None:
    state, actions = node.step(REREADING, words.Rereading(1.0, True, 9, None, held(), None))
    waits = [a.reason for a in actions if isinstance(a, words.Wake)]
    assert waits[0] == "node name 'a' is held by another machine (10.0.0.9); waiting for 17 s until its lease ends"
    state, out = run(state, words.Tick(17.0), words.Rereading(17.1, True, 9, None, held(), None))
    assert said(out) == ["reread"]
    _, out = run(state, words.Tick(17.6), words.Rereading(17.9, True, 9, None, held(), None))
    ((code, sentence),) = ends(out)
    assert code == 69
    assert sentence == (
        "node name 'a' is held by another machine (10.0.0.9), whose agent is alive, and this one is 10.0.0.1; "
        "give this node another --local-addr, or stop the other one"
    )
    _, out = run(state, words.Tick(17.6), words.Rereading(17.9, True, 9, None, None, None))
    assert said(out) == ["reread", "join(1)"]


@pytest.mark.parametrize("later", [held(ready=2, mod=12), held(lease=99, mod=12)], ids=["wrote", "came"])
def test_a_holder_that_is_seen_to_live_is_not_waited_for(later: KeyValue) -> None:
    state, _ = run(REREADING, words.Rereading(1.0, True, 9, None, held(), None))
    _, out = run(state, words.Tick(1.3), words.Rereading(1.4, True, 12, None, later, None))
    assert [code for code, _ in ends(out)] == [69]


def test_what_the_store_was_away_for_does_not_count() -> None:
    state, _ = run(REREADING, words.Rereading(1.0, True, 9, None, held(), None), words.Tick(10.0))
    state, _ = run(state, words.Rereading(12.0, False), words.Tick(30.0))
    state, out = run(state, words.Rereading(30.1, True, 9, None, held(), None))
    assert ends(out) == []  # its lease began anew when the store came back
    _, out = run(state, words.Tick(59.8), words.Rereading(59.9, True, 9, None, held(), None))
    assert [code for code, _ in ends(out)] == [69]  # but nobody waits for ever


def test_a_name_that_hangs_on_no_lease_will_never_be_free() -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, None, held(lease=0), None))
    assert ends(out) == [
        (69, "/remuster/run/nodes/a hangs on no lease, so no agent wrote it: delete it and start again")
    ]


# --- what all nodes must be given alike -----------------------------------------------------------------------------
@pytest.mark.parametrize("job", [FORMING, RUNNING, STOPPING])
def test_another_command_line_is_refused_before_anything_else(job: Job) -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, kv(job, 9), held(), None, terms(script="other.py")))
    why = "this node was given the script train.py, the run (begun by node b) has other.py; give all nodes the same"
    ((code, sentence),) = ends(out)
    assert (code, sentence.startswith(why)) == (2, True)
    assert not [a for a in out if isinstance(a, words.Submit)]


def test_a_new_launch_has_its_own_terms() -> None:
    ended = replace(FAILED, launch="zero")
    _, out = run(REREADING, words.Rereading(1.0, True, 9, kv(ended, 9), None, None, terms(script="other.py")))
    assert decode_terms(put(written(out, Kind.JOIN), KEYS.terms)) == Terms(ME, SAID)


def test_terms_that_are_gone_let_nobody_in_but_those_that_were_in() -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, kv(FORMING, 9), None, None))
    ((code, sentence),) = ends(out)
    assert (code, "/remuster/run/terms is missing" in sentence) == (69, True)
    back = replace(REREADING, launch="one")
    _, out = run(back, words.Rereading(1.0, True, 9, kv(FORMING, 9), None, None))
    assert said(out) == ["join(3)"]


def test_an_answer_that_nobody_waits_for_joins_nothing() -> None:
    lost, out = run(joined(FORMING, pending=frozenset({"reread"})), words.LeaseLost(1.0))
    assert said(out) == ["grant"]
    _, out = run(lost, words.Rereading(1.1, True, 9, kv(FORMING, 9), None, None))
    assert out == []


def test_comes_back_to_its_own_launch_only() -> None:
    lost = NodeState(SETTINGS, inc=INC, launch="one", pending=frozenset({"reread"}))
    _, out = run(lost, words.Rereading(1.0, True, 9, kv(replace(FAILED, launch="two"), 9), None, None))
    assert [a.code for a in out if isinstance(a, words.Exit)] == [75]
    _, out = run(lost, words.Rereading(1.0, True, 9, kv(RUNNING, 9), None, None))
    assert said(out) == ["join(4)"]


def test_gives_up_when_the_store_stays_away() -> None:
    state, _ = node.begin(SETTINGS, 0.0)
    state, out = run(state, words.Granted(59.9, Incarnation(0)), words.Tick(60.1))
    assert [(a.code, a.revoke) for a in out if isinstance(a, words.Exit)] == [(69, False)]


# --- a round begins -------------------------------------------------------------------------------------------------
def test_the_first_node_publishes_the_address_and_all_start_on_it() -> None:
    state, out = run(joined(FORMING), words.JobSeen(1.0, kv(RUNNING, 11)))
    assert said(out) == ["readroster"]
    state, out = run(state, words.RosterRead(1.1, Round(3), True, roster_kv(ROSTER), 11))
    assert said(out) == ["reserveport"]
    state, out = run(state, words.PortReserved(1.2, Round(3), "10.0.0.1:500"))
    assert decode_job(put(written(out, Kind.MASTER), KEYS.job)) == MEETING
    state, out = run(state, ok(1.3, Kind.MASTER, 3, kv(MEETING, 12)))
    assert [(a.round, a.place, a.job.master) for a in out if isinstance(a, words.Start)] == [(3, 0, "10.0.0.1:500")]
    state, out = run(state, words.JobSeen(1.4, kv(MEETING, 12)), words.Started(1.5, Round(3)))
    assert said(out) == ["started(3)"]
    assert state.ranks is Ranks.LIVE


@pytest.mark.parametrize(
    "changes",
    [
        {"roster": Roster(Round(3), (MEMBERS[0]._replace(inc=OTHER), MEMBERS[1]))},  # an earlier incarnation of ours
        {"roster": Roster(Round(3), MEMBERS[1:], MEMBERS[:1])},  # a spare
        {"roster": None},  # over already
        {"round": Round(3)},  # started before: never again
        {"inc": Incarnation(0)},  # no lease
    ],
    ids=["by name", "spare", "over", "again", "no lease"],
)
def test_nothing_is_started(changes: dict[str, Any]) -> None:
    state = joined(MEETING, **({"roster": ROSTER, "seen": Round(3)} | changes))
    _, out = run(state, words.Tick(1.0))
    assert not [a for a in out if isinstance(a, words.Start)]


def test_no_port_ends_the_round_in_words() -> None:
    state = joined(RUNNING, roster=ROSTER, pending=frozenset({"port"}))
    state, out = run(state, words.PortFailed(1.0, Round(3), "no port is free"))
    assert said(out) == ["collect", "stop(3)"]
    assert state.facts == (Fault("no port is free", "port_in_use"),)
    assert decode_job(put(written(out, Kind.STOP), KEYS.job)).cause == Cause("failed", ME, INC)


# --- a round ends ---------------------------------------------------------------------------------------------------
def test_a_failed_rank_stops_the_round_and_is_described_before_ready() -> None:
    state, out = run(in_round(), words.Exited(110.0, Round(3), 1, 1, 900))
    assert said(out) == ["terminate", "stop(3)"]
    stopping = replace(STOPPING, cause=Cause("failed", ME, INC))
    assert decode_job(put(written(out, Kind.STOP), KEYS.job)) == stopping
    state, out = run(state, ok(110.1, Kind.STOP, 3, kv(stopping, 11)), words.Exited(111.0, Round(3), 0, -15, 899))
    assert said(out) == ["kill"]
    state, out = run(state, words.NothingLeft(111.1, Round(3)))
    assert said(out) == ["collect"]
    state, out = run(state, words.Collected(111.2, Round(3), b"words"))
    assert said(out) == ["evidence(3)"]
    state, out = run(state, ok(111.3, Kind.EVIDENCE, 3))
    assert said(out) == ["ready(4)"]
    assert decode_node(put(written(out, Kind.READY), KEYS.node(ME))).ready == 4
    exits = [(f.rank, f.status, f.stopping) for f in state.facts if isinstance(f, RankExit)]
    assert exits == [(1, 1, False), (0, -15, True)]


def test_the_grace_ends_in_a_kill_however_the_alarm_rang_before() -> None:
    state, _ = run(in_round(), words.JobSeen(110.0, kv(STOPPING, 11)))
    state, actions = node.step(state, words.Tick(111.0))
    assert min(a.at for a in actions if isinstance(a, words.Wake)) == 115.0
    state, out = run(state, words.Tick(115.0))
    assert said(out) == ["kill"]
    _, out = run(state, words.Tick(116.0))
    assert out == []


@pytest.mark.parametrize(
    ("event", "cause", "fact", "first"),
    [
        (words.FencedHere(110.0, Round(3), INC), "fenced", Fenced(10.0), "acknowledgefence"),
        (words.GuardianLost(110.0, Round(3)), "guardian", GuardianDied(10.0), "kill"),
        (words.StartFailed(110.0, Round(3), 1, 2, "train"), "failed", StartError(1, 1, 2, "train"), "terminate"),
        (words.Refused(110.0, Round(3), "too late"), "failed", Fault("too late"), "kill"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_breaks_a_round_is_said_in_the_stop(event: words.Event, cause: str, fact: object, first: str) -> None:
    state, out = run(in_round(), event)
    assert said(out)[0] == first
    assert state.facts == (fact,)
    assert decode_job(put(written(out, Kind.STOP), KEYS.job)).cause == Cause(cause, ME, INC)


def test_all_ranks_exit_zero() -> None:
    state, out = run(in_round(), words.Exited(110.0, Round(3), 0, 0, 1))
    assert out == []
    state, out = run(state, words.Exited(111.0, Round(3), 1, 0, 2))
    assert said(out) == ["kill", "finished(3)"]
    state, out = run(state, words.NothingLeft(111.1, Round(3)), ok(111.2, Kind.FINISHED, 3))
    assert out == []
    state, out = run(state, words.JobSeen(112.0, kv(DONE, 12)))
    assert out == [words.Exit(0, "done", True)]
    assert node.step(state, words.Tick(113.0)) == (state, ())


@pytest.mark.parametrize(
    "job",
    [
        STOPPING,
        replace(FORMING, round=Round(4), formed=Round(3)),
        replace(RUNNING, round=Round(4), formed=Round(4)),
        FAILED,
        DONE,
    ],
)
def test_ranks_of_a_round_that_is_over_are_stopped(job: Job) -> None:
    state, out = run(in_round(), words.JobSeen(110.0, kv(job, 11)))
    assert said(out)[0] == "terminate"
    assert not [a for a in out if isinstance(a, words.Submit | words.Exit)]
    assert state.ranks is Ranks.DYING


def test_an_end_that_was_seen_stays_the_end() -> None:
    state, _ = run(in_round(), words.JobSeen(110.0, kv(FAILED, 11)))
    state, out = run(
        state, words.JobSeen(110.1, kv(replace(FORMING, round=Round(4), formed=Round(3), launch="two"), 12))
    )
    assert out == []
    _, out = run(state, words.NothingLeft(111.0, Round(3)))
    assert words.Exit(3, "a bug", True) in out
    assert not [a for a in out if isinstance(a, words.Submit) and a.write.kind is Kind.READY]


def test_ready_is_not_said_before_the_proof_and_never_falls() -> None:
    _, out = run(in_round(), words.JobSeen(110.0, kv(STOPPING, 11)), words.Exited(110.5, Round(3), 0, -15, 1))
    assert not [a for a in out if isinstance(a, words.Submit)]
    _, out = run(joined(STOPPING, ready=Round(5)), words.Tick(1.0))
    assert out == []


def test_who_never_started_answers_too() -> None:
    _, out = run(joined(RUNNING), words.JobSeen(1.0, kv(STOPPING, 11)))
    assert said(out) == ["ready(4)"]


# --- the lease ------------------------------------------------------------------------------------------------------
def test_without_a_lease_the_ranks_die_before_a_new_one_is_asked_for() -> None:
    state, out = run(in_round(), words.LeaseLost(110.0))
    assert said(out) == ["kill"]
    state, out = run(state, words.NothingLeft(110.5, Round(3)))
    assert said(out) == ["grant"]
    assert (state.inc, state.job, state.roster, state.round) == (0, None, None, 3)


def test_a_fence_without_ranks_is_acknowledged() -> None:
    _, out = run(joined(FORMING), words.FencedHere(1.0, Round(0), INC))
    assert out == [words.AcknowledgeFence(INC)]


@pytest.mark.parametrize("kind", [Kind.STARTED, Kind.FINISHED, Kind.EVIDENCE])
def test_a_report_that_is_held_off_means_that_the_lease_is_gone(kind: Kind) -> None:
    state, out = run(joined(FORMING), words.Wrote(1.0, kind, Round(3), INC, TxnResult(False, 20)))
    assert (state.inc, said(out)) == (0, ["grant"])


def test_what_an_earlier_incarnation_collected_is_not_told_by_the_next() -> None:
    state, out = run(in_round(), words.FencedHere(110.0, Round(3), INC), words.LeaseLost(110.1))
    assert "collect" in said(out)
    state, out = run(state, words.Collected(110.2, Round(3), b"words"))
    assert (state.words, out) == (b"", [])


# --- writes whose outcome is not known ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [Kind.READY, Kind.STOP, Kind.MASTER])
def test_an_unknown_outcome_is_read_before_it_is_decided_again(kind: Kind) -> None:
    state = joined(STOPPING, pending=frozenset({kind.value}))
    state, out = run(state, words.Wrote(1.0, kind, Round(4), INC, None))
    assert said(out) == ["reread"]
    state, out = run(state, words.Tick(1.3))
    assert out == []
    _, out = run(state, words.Rereading(1.4, True, 30, kv(STOPPING, 10), own(4, mod=6), LEADER))
    assert out == []  # ready(4) had been applied: there is nothing to say any more


def test_a_stop_is_tried_again_while_the_round_runs() -> None:
    state, out = run(in_round(), words.FencedHere(110.0, Round(3), INC))
    state, out = run(state, words.Wrote(112.0, Kind.STOP, Round(3), INC, None))
    assert said(out) == ["reread"]
    _, out = run(state, words.Rereading(112.3, True, 30, kv(MEETING, 10), own(3), LEADER))
    assert said(out) == ["stop(3)"]


def test_a_stop_that_came_too_late_leaves_it_at_that() -> None:
    state, _ = run(in_round(), words.FencedHere(110.0, Round(3), INC))
    late = TxnResult(False, 30, (Range((kv(STOPPING, 12),), 30),))
    state, out = run(state, words.Wrote(110.2, Kind.STOP, Round(3), INC, late))
    assert out == []
    assert state.job == Seen(STOPPING, 12)


def test_an_answer_that_the_watch_has_overtaken_brings_no_leader_back() -> None:
    state, out = run(joined(FORMING, leader=None, leader_at=29, pending=frozenset({"reread", "lead"})))
    state, out = run(
        state, words.LeaderSeen(1.0, None, 31), words.Rereading(1.1, True, 30, kv(FORMING, 10), own(3), LEADER)
    )
    assert state.leader is None
    _, out = run(state, words.Wrote(1.2, Kind.LEAD, Round(0), INC, TxnResult(True, 32)), words.Tick(2.0))
    assert said(out) == ["lead(0)"]


# --- leading --------------------------------------------------------------------------------------------------------
def test_leads_when_the_key_is_its_own() -> None:
    state, out = run(joined(FORMING, ready=Round(3)), words.LeaderSeen(1.0, None, 19), words.Tick(1.1))
    assert said(out) == ["lead(0)"]
    mine = KeyValue(KEYS.leader, b"a@7", 31, 31, INC)
    state, out = run(state, ok(1.2, Kind.LEAD, 0), words.LeaderSeen(1.3, mine, 31))
    assert out == [words.Lead(31)]
    _, out = run(state, words.LeaderSeen(1.4, mine, 31))
    assert out == []


# --- waiting --------------------------------------------------------------------------------------------------------
ELSEWHERE = Roster(Round(3), (MEMBERS[1],))


def told(actions: list[words.Action]) -> list[str]:
    return [a.sentence for a in actions if isinstance(a, words.Tell)]


def test_says_once_that_a_round_waits_and_who_leads() -> None:
    state, out = run(joined(FORMING, stands_since=10.0), words.Tick(12.0))
    assert told(out) == []
    state, out = run(state, words.Tick(13.0), words.Tick(99.0))
    assert told(out) == ["round 3 waits for nodes, 1 to 2 are wanted; node b leads and says which are there"]
    _, out = run(joined(FORMING, leader=replace_lease(LEADER, INC), leading=3), words.Tick(99.0))
    assert told(out) == []  # who leads says more
    _, out = run(joined(FORMING, leader=None, campaign_at=1e9), words.Tick(99.0))
    assert told(out) == []


def replace_lease(kv: KeyValue, lease: Incarnation) -> KeyValue:
    return kv._replace(value=b"a@%x" % lease, lease=lease)


def test_a_spare_says_so_and_why_it_is_held_back() -> None:
    spare = {"ready": Round(4), "roster": ELSEWHERE, "seen": Round(3)}
    _, out = run(joined(MEETING, **spare), words.Tick(1.0), words.Tick(2.0))
    assert told(out) == ["this node stands by: round 3 runs on others"]
    bad = replace(MEETING, flaps=((mark(ME, "m-a"), FLAPS),))
    _, out = run(joined(bad, **spare), words.Tick(1.0))
    assert told(out)[0].endswith("; it has ended 3 rounds by coming and going, and is taken in when others are too few")
    _, out = run(in_round(), words.Tick(110.0))
    assert told(out) == []


def test_who_had_not_answered_before_the_round_closed_without_it_answers_then() -> None:
    _, out = run(joined(MEETING, ready=Round(2), roster=ELSEWHERE, seen=Round(3)), words.Tick(1.0))
    assert decode_node(put(written(out, Kind.READY), KEYS.node(ME))).ready == 3
    _, out = run(in_round(ready=Round(3)), words.Tick(110.0))
    assert said(out) == []
    _, out = run(joined(MEETING, ready=Round(2), roster=replace_round(ELSEWHERE, 2), seen=Round(3)), words.Tick(1.0))
    assert Kind.READY not in [a.write.kind for a in out if isinstance(a, words.Submit)]  # it may be a member


def replace_round(roster: Roster, n: int) -> Roster:
    return roster._replace(round=Round(n))


# --- leaving --------------------------------------------------------------------------------------------------------
def test_leaves_after_the_round_is_stopped_and_its_ranks_are_dead() -> None:
    state, out = run(in_round(), words.LeaveAsked(110.0, 15))
    assert said(out) == ["terminate", "stop(3)"]
    assert decode_job(put(written(out, Kind.STOP), KEYS.job)).cause == Cause("leave", ME, INC)
    left = replace(STOPPING, cause=Cause("leave", ME, INC))
    state, out = run(state, ok(110.1, Kind.STOP, 3, kv(left, 11)), words.Tick(115.0))
    assert said(out) == ["kill"]
    state, out = run(state, words.NothingLeft(115.1, Round(3)))
    assert said(out) == ["collect"]
    state, out = run(state, words.Collected(115.2, Round(3), b"words"), ok(115.3, Kind.EVIDENCE, 3))
    assert said(out) == ["evidence(3)", "exit"]
    assert out[-1] == words.Exit(143, "this node was asked to leave", True)


def test_who_runs_nothing_leaves_at_once() -> None:
    _, out = run(joined(FORMING), words.LeaveAsked(1.0, 0))
    assert out == [words.Exit(0, "this node was asked to leave", True)]


def test_a_process_that_cannot_be_killed_ends_the_agent_and_keeps_the_lease() -> None:
    state, _ = run(in_round(), words.JobSeen(110.0, kv(STOPPING, 11)))
    _, out = run(state, words.NothingLeft(120.0, Round(3), (4242,)))
    assert [(a.code, a.revoke) for a in out if isinstance(a, words.Exit)] == [(75, False)]
    assert "4242" in out[0].sentence  # type: ignore[union-attr]
