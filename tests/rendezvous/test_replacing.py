"""A copy of a state with some fields changed: what ``dataclasses.replace`` makes, sooner."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.agent.node_state import NodeState
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.replacing import replace


@dataclass(frozen=True, slots=True)
class State:
    a: int
    b: str = "b"
    c: frozenset[int] = field(default_factory=lambda: frozenset[int]())


@given(st.builds(State, st.integers(), st.text()), st.dictionaries(st.sampled_from("abc"), st.integers()))
def test_as_the_standard_library(state: State, changes: dict[str, int]) -> None:
    assert replace(state, **changes) == dataclasses.replace(state, **changes)


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError, match="d"):
        replace(State(1), d=2)


@pytest.mark.parametrize("kind", [NodeState, Leader])
def test_the_states_have_no_field_that_it_does_not_know(kind: type[NodeState] | type[Leader]) -> None:
    assert all(one.init and not one.kw_only for one in dataclasses.fields(kind))
    assert not hasattr(kind, "__post_init__")
