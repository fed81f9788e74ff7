"""The node machine: nodes that wait, stand by, or leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_tables import (
    FORMING,
    INC,
    KEYS,
    LEADER,
    ME,
    MEETING,
    MEMBERS,
    STOPPING,
    in_round,
    joined,
    kv,
    ok,
    put,
    run,
    said,
    written,
)

from remuster.agent import node_words as words
from remuster.health.evidence import Left
from remuster.rendezvous.admission import FLAPS, mark
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Roster,
    Round,
    decode_job,
    decode_node,
)
from remuster.rendezvous.store import KeyValue
from remuster.rendezvous.writes import Kind

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
    assert out[-1] == words.Exit(143, "this node was asked to leave, by SIGTERM", True)


@pytest.mark.parametrize(("most", "signum", "code"), [(2, 0, 0), (1, 0, 75), (1, 15, 143), (2, 15, 143)])
def test_who_runs_nothing_leaves_at_once(most: int, signum: int, code: int) -> None:
    """A job of one node has ended then, and is not done."""
    _, out = run(joined(replace(FORMING, max_nodes=most)), words.LeaveAsked(1.0, signum))
    how = ", by SIGTERM" if signum else ""
    assert out == [words.Exit(code, f"this node was asked to leave{how}", True)]


def test_a_node_that_is_no_longer_the_schedulers_leaves_and_says_why() -> None:
    """As one that is asked to: with 0, or srun would call a job failed that the others have finished."""
    why = "Slurm has taken node1 from job 7"
    state, out = run(in_round(), words.LeaveAsked(110.0, 0, why))
    assert said(out) == ["terminate", "stop(3)"]
    assert state.facts[-1] == Left(0, why)
    _, out = run(joined(FORMING), words.LeaveAsked(1.0, 0, why))
    assert out == [words.Exit(0, f"this node leaves: {why}", True)]


def test_a_process_that_cannot_be_killed_ends_the_agent_and_keeps_the_lease() -> None:
    state, _ = run(in_round(), words.JobSeen(110.0, kv(STOPPING, 11)))
    _, out = run(state, words.NothingLeft(120.0, Round(3), (4242,)))
    assert [(a.code, a.revoke) for a in out if isinstance(a, words.Exit)] == [(75, False)]
    assert "4242" in out[0].sentence  # type: ignore[union-attr]
