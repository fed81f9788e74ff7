"""The node machine where the store does not have what the copy beside the checkpoints has: it waits, or refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import Kept, NodeState, Settings
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.mirrored import GAP, Mirrored
from remuster.rendezvous.records import Incarnation, Job, Node, NodeId, Outcome, Phase, Round, encode
from remuster.rendezvous.store import KeyValue

KEYS = Keys("run")
RECORD = Node(Incarnation(0), "m-a", "boot", "10.0.0.1", 2, Round(0))
BEGIN = Job(Phase.FORMING, Round(1), 1, 2, "two")
COPY = replace(BEGIN, phase=Phase.RUNNING, round=Round(50), formed=Round(50), launch="one")
DONE = replace(COPY, phase=Phase.DONE, outcome=Outcome(0, "done"))
HELD_S = 17.0


def reading(copy: Job, there: Job | None, at: float, fresh: bool = False) -> tuple[NodeState, list[words.Action]]:
    """Return what an agent that has a lease since 0 s makes of the store at ``at``."""
    kept = Kept(Mirrored(copy))
    settings = Settings(KEYS, NodeId("a"), RECORD, BEGIN, fresh, 5.0, 60.0, held_s=HELD_S)._replace(kept=kept)
    state = NodeState(settings, inc=Incarnation(7), pending=frozenset({"reread"}))
    job = None if there is None else KeyValue(KEYS.job, encode(there), 3, 3)
    state, actions = node.step(state, words.Rereading(at, True, 9, job))
    return state, list(actions)


def joined(actions: list[words.Action]) -> bool:
    return any(isinstance(a, words.Submit) for a in actions)


def test_it_waits_until_no_lease_of_the_lost_store_can_live() -> None:
    """In another store an incarnation that is absent says nothing: its ranks may run until their fence."""
    state, actions = reading(COPY, None, 1.0)
    assert not joined(actions)
    assert any(isinstance(a, words.Wake) and a.at == HELD_S for a in actions)
    _, early = node.step(state, words.Tick(HELD_S - 0.1))
    assert not any(isinstance(a, words.Reread) for a in early)
    _, then = node.step(state, words.Tick(HELD_S))
    assert any(isinstance(a, words.Reread) for a in then)
    state, actions = reading(COPY, None, HELD_S)
    assert joined(actions)
    assert state.ready == 50 + GAP


def test_a_done_run_has_no_ranks_to_wait_for() -> None:
    assert joined(reading(DONE, None, 1.0, fresh=True)[1])


@pytest.mark.parametrize(("there", "refused"), [(2, True), (49, True), (50, False), (51, False)])
def test_a_store_that_is_behind_its_copy_is_refused(there: int, refused: bool) -> None:
    _, actions = reading(COPY, replace(COPY, round=Round(there), formed=Round(there), launch="two"), HELD_S)
    (end,) = [a for a in actions if isinstance(a, words.Exit)] or [None]
    assert (end is not None and "the store was restored, or is another one" in end.sentence) is refused
    assert not refused or (end is not None and end.code == 75 and f"at round {there} of this run" in end.sentence)
