"""A pause that a verdict asks for is over before anything else of the next round begins, on the leader's own clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.rendezvous import leader
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.leader_words import Concluded, Elected, Limits, SelectResume, Submit, Tick, Wake
from remuster.rendezvous.records import (
    MAX_PAUSE_S,
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
from remuster.rendezvous.writes import Charge, Own

KEYS, A = Keys("run"), NodeId("a")
OWN = Own(A, Incarnation(7))
MEMBER = Member(A, Incarnation(7), "m", 1, "10.0.0.1")
FORMING = Job(Phase.FORMING, Round(9), 1, 2, "one", Round(1), Round(8))


def found(job: Job, ready: int = 9) -> Range:
    node = Node(Incarnation(7), "m", "b", "10.0.0.1", 1, Round(ready))
    kvs = {
        KEYS.job: (encode(job), 0),
        KEYS.node(A): (encode(node), 7),
        KEYS.leader: (b"a@7", 7),
        KEYS.roster(Round(8)): (encode(Roster(Round(8), (MEMBER,))), 0),
    }
    return Range(tuple(KeyValue(key, value, 5, 5, lease) for key, (value, lease) in kvs.items()), 9)


def waits(job: Job, begins: float = 100.0) -> list[tuple[float, str]]:
    """Return until when a leader that sees ``job`` at ``begins`` waits, and for what, until it begins to close."""
    s = Leader(OWN, Limits(5.0, 60.0, 3.0), Snapshot(KEYS))
    s, actions = leader.step(s, Elected(begins, 5, found(job)))
    out: list[tuple[float, str]] = []
    while not any(isinstance(action, SelectResume) for action in actions):
        (wake,) = actions
        assert isinstance(wake, Wake)
        early, actions = leader.step(s, Tick(wake.at - 0.01))
        assert actions == (wake,)
        out.append((wake.at - begins, wake.reason))
        s, actions = leader.step(early, Tick(wake.at))
    return out


def test_a_pause_comes_first_and_a_last_call_begins_after_it() -> None:
    assert waits(replace(FORMING, max_nodes=1)) == []
    paused = waits(replace(FORMING, max_nodes=1, pause=12))
    assert paused == [(12.0, "round 9: a pause of 12 s after what ended the last one")]
    # The node that is here was a member, so no last call is held; a first round of a launch holds one.
    called = waits(replace(FORMING, first=Round(9), pause=12))
    assert [at for at, _ in called] == [12.0, 17.0]


def test_a_successor_waits_anew_and_no_longer() -> None:
    assert [at for at, _ in waits(replace(FORMING, max_nodes=1, pause=12), begins=5000.0)] == [12.0]


@pytest.mark.parametrize("retry", [True, False])
def test_it_is_written_with_the_verdict_and_is_gone_with_the_close(retry: bool) -> None:
    stopping = replace(FORMING, phase=Phase.STOPPING, round=Round(8), cause=Cause("failed", "a", 7))
    s = Leader(OWN, Limits(5.0, 60.0, 3.0), Snapshot(KEYS))
    s, _ = leader.step(s, Elected(100.0, 5, found(stopping)))
    charge = Charge((), 1, Memory(backed=2, quick=3))
    s, actions = leader.step(s, Concluded(101.0, Round(8), retry, charge, Outcome(1, "x"), b"{}", pause_s=12))
    (submit,) = actions
    assert isinstance(submit, Submit)
    new = next(decode_job(op.value) for op in submit.write.txn.then if isinstance(op, Put) and op.key == KEYS.job)
    assert (new.phase, new.pause) == ((Phase.FORMING, 12) if retry else (Phase.FAILED, 0))
    assert not retry or new.memory == charge.memory


def test_whoever_writes_into_the_store_holds_nobody_for_ever() -> None:
    with pytest.raises(BadRecord, match="'pause' is 3601"):
        decode_job(encode(replace(FORMING, pause=MAX_PAUSE_S + 1)))
