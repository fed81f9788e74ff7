"""Ranks that exit 0 while others go on: told once, where it happened, when it has lasted."""

from __future__ import annotations

from node_tables import DONE, MEETING, ROSTER, SECOND, in_round, kv, run

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.early_leave import EARLY_S
from remuster.agent.node_state import NodeState
from remuster.rendezvous.records import Roster, Round

ALONE = Roster(Round(3), ROSTER.members[:1])
HERE = "rank 1 exited 0 30 s ago, and rank 2 of this node still runs: if they wait for what has left, they wait in vain"


def told(state: NodeState, *events: words.Event) -> tuple[NodeState, list[str]]:
    state, out = run(state, *events)
    return state, [action.sentence for action in out if isinstance(action, words.Tell)]


def left(at: float, local: int, status: int = 0) -> words.Exited:
    return words.Exited(at, Round(3), local, status, 900 + local)


def test_it_is_told_once_by_global_ranks_when_it_has_lasted() -> None:
    state = in_round(roster=SECOND, index=1)  # its ranks are 1 and 2
    state, actions = node.step(state, left(110.0, 0))
    assert [a.at for a in actions if isinstance(a, words.Wake)] == [110.0 + EARLY_S]
    state, said = told(state, words.Tick(109.9 + EARLY_S))
    assert said == []
    state, said = told(state, words.Tick(110.0 + EARLY_S))
    assert said == [HERE]
    _, said = told(state, words.Tick(500.0), left(600.0, 1), words.Tick(900.0))
    assert said == []


def test_a_normal_end_says_nothing() -> None:
    state, said = told(in_round(roster=ALONE), left(110.0, 0), left(139.0, 1), words.NothingLeft(139.1, Round(3)))
    _, more = told(state, words.JobSeen(139.2, kv(DONE, 11)), words.Tick(900.0))
    assert said + more == []


def test_a_failure_says_enough_by_itself() -> None:
    _, said = told(in_round(), left(110.0, 0), left(111.0, 1, 7), words.Tick(200.0))
    assert said == []


def test_a_whole_node_that_has_left() -> None:
    state, said = told(in_round(), left(110.0, 0), left(115.0, 1), words.NothingLeft(115.1, Round(3)))
    state, more = told(state, words.Tick(114.9 + EARLY_S))
    assert said + more == []
    state, said = told(state, words.Tick(115.0 + EARLY_S), words.Tick(900.0))
    assert [line.partition(":")[0] for line in said] == [
        "ranks 0-1 exited 0 30 s ago, and ranks of other nodes still run"
    ]


def test_every_round_by_itself() -> None:
    state, said = told(in_round(told_early=Round(2)), left(110.0, 0), words.Tick(200.0))
    assert len(said) == 1
    assert MEETING.round == state.told_early
