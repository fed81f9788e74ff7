"""The node machine: tables of (state, event) → actions, for the paths that an agent takes in rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from node_tables import (
    DONE,
    FAILED,
    FORMING,
    INC,
    KEYS,
    LEADER,
    ME,
    MEETING,
    MEMBERS,
    OTHER,
    ROSTER,
    RUNNING,
    STOPPING,
    in_round,
    joined,
    kv,
    ok,
    own,
    put,
    roster_kv,
    run,
    said,
    written,
)

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import Ranks
from remuster.health.evidence import Fault, Fenced, GuardianDied, RankExit, StartError
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Job,
    Roster,
    Round,
    decode_job,
    decode_node,
)
from remuster.rendezvous.store import KeyValue, Range, TxnResult
from remuster.rendezvous.writes import Kind, Seen


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


def test_a_stop_that_is_tried_again_does_not_replace_what_was_collected_meanwhile() -> None:
    """Its bytes are the first word alone, under the same key. Seen where etcd took a second to answer."""
    state, out = run(in_round(), words.FencedHere(110.0, Round(3), INC))
    assert said(out) == ["acknowledgefence", "collect", "stop(3)"]
    state, out = run(state, words.Collected(110.5, Round(3), b"words"))
    assert out == []
    state, out = run(state, words.Wrote(112.0, Kind.STOP, Round(3), INC, None))
    state, out = run(state, words.Rereading(112.3, True, 30, kv(MEETING, 10), own(3), LEADER))
    assert said(out) == ["stop(3)"]
    stopping = replace(STOPPING, cause=Cause("fenced", ME, INC))
    state, out = run(state, ok(112.4, Kind.STOP, 3, kv(stopping, 31)))
    assert said(out) == ["evidence(3)"]
    _, out = run(state, ok(112.5, Kind.EVIDENCE, 3))
    assert said(out) == ["ready(4)"]


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
