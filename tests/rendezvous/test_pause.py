"""A crash loop is slowed down before a round closes; first restarts, new launches and what is free are not."""

from __future__ import annotations

import pytest

from remuster.rendezvous import leader
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader import pause_s
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.leader_words import Elected, Limits, SelectResume, Tick, Wake
from remuster.rendezvous.records import Incarnation, Job, Member, Memory, Node, NodeId, Phase, Roster, Round, encode
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import KeyValue, Range
from remuster.rendezvous.writes import Own

KEYS, A = Keys("run"), NodeId("a")
OWN = Own(A, Incarnation(7))
MEMBER = Member(A, Incarnation(7), "m", 1, "10.0.0.1")


def forming(memory: Memory, charged: int, first: int = 1) -> Range:
    job = Job(Phase.FORMING, Round(9), 1, 1, "one", Round(first), Round(8), charged=charged, memory=memory)
    node = Node(Incarnation(7), "m", "b", "10.0.0.1", 1, Round(9))
    kvs = {
        KEYS.job: (encode(job), 0),
        KEYS.node(A): (encode(node), 7),
        KEYS.leader: (b"a@7", 7),
        KEYS.roster(Round(8)): (encode(Roster(Round(8), (MEMBER,))), 0),
    }
    return Range(tuple(KeyValue(key, value, 5, 5, lease) for key, (value, lease) in kvs.items()), 9)


def closes_after(memory: Memory, charged: int, first: int = 1) -> float:
    """Return how long after it sees the round form the leader begins to close it."""
    s = Leader(OWN, Limits(1.0, 60.0, 3.0), Snapshot(KEYS))
    s, actions = leader.step(s, Elected(100.0, 5, forming(memory, charged, first)))
    at = 100.0
    while not any(isinstance(action, SelectResume) for action in actions):
        (wake,) = actions
        assert isinstance(wake, Wake)
        assert "failures in a row and no newer checkpoint; a pause of" in wake.reason
        early, actions = leader.step(s, Tick(wake.at - 0.01))
        assert actions == (wake,)
        at = wake.at
        s, actions = leader.step(early, Tick(at))
    return at - 100.0


@pytest.mark.parametrize(
    ("row", "charged", "free", "first", "pause_s"),
    [
        (0, 0, 0, 1, 0), (1, 1, 0, 1, 0), (2, 2, 0, 1, 0), (3, 3, 0, 1, 1), (4, 4, 0, 1, 2), (9, 9, 0, 1, 60),
        (999, 999, 0, 1, 60),
        (9, 9, 1, 1, 0),  # the last one was free
        (9, 1, 0, 1, 0),  # the others were an earlier launch's
        (9, 0, 0, 9, 0),  # a launch begins
    ],
)  # fmt: skip
def test_the_pause(row: int, charged: int, free: int, first: int, pause_s: float) -> None:
    assert closes_after(Memory("x", -1, free, "user", row), charged, first) == pause_s


def test_it_grows_up_to_a_minute() -> None:
    assert [pause_s(row) for row in range(11)] == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10**18) == 60
