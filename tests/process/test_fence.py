"""The guardian's rule, as a table and against a model."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuster.agent.fence import Fence

OPEN = Fence(7, 10.0)
LATCHED = OPEN.fenced()


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (Fence(), lambda f: f.lease(7, 10.0), OPEN),
        (OPEN, lambda f: f.lease(7, 12.0), Fence(7, 12.0)),
        (OPEN, lambda f: f.lease(7, 9.0), OPEN),
        (OPEN, lambda f: f.lease(8, 9.0), Fence(8, 9.0)),
        (OPEN, lambda f: f.lease(7, math.inf), Fence(7, math.inf)),
        (OPEN, lambda f: f.acknowledge(7), OPEN),
        (OPEN, lambda f: f.fenced(), Fence(7, 10.0, latched=True)),
        (LATCHED, lambda f: f.lease(7, 99.0), LATCHED),
        (LATCHED, lambda f: f.lease(8, 9.0), Fence(8, 9.0)),
        (LATCHED, lambda f: f.fenced(), LATCHED),
        (LATCHED, lambda f: f.acknowledge(8), LATCHED),
        (LATCHED, lambda f: f.acknowledge(7).lease(7, 10.0), Fence(7, 10.0, latched=True, known=True)),
        (LATCHED, lambda f: f.acknowledge(7).lease(7, 10.5), Fence(7, 10.5)),
        (LATCHED, lambda f: f.lease(7, 99.0).acknowledge(7), Fence(7, 10.0, latched=True, known=True)),
    ],
)
def test_changes(before, change, after):
    assert change(before) == after


@pytest.mark.parametrize(
    ("fence", "inc", "now", "words"),
    [
        (OPEN, 7, 9.999, None),
        (OPEN, 7, 10.0, "deadline passed"),
        (OPEN, 8, 1.0, "present one is 7"),
        (LATCHED, 7, 1.0, "was fenced"),
        (LATCHED.acknowledge(7), 7, 1.0, "was fenced"),
        (Fence(), 7, 1.0, "not told the guardian of any lease"),
        (Fence(), 0, 1.0, "not told the guardian of any lease"),
        (Fence(7, math.inf), 7, 1e12, None),
    ],
)
def test_starts(fence, inc, now, words):
    said = fence.may_start(inc, now)
    assert said is None if words is None else words in said


def test_due():
    assert not OPEN.due(9.9)
    assert OPEN.due(10.0)
    assert not LATCHED.due(11.0)
    assert not Fence().due(1e12)


incs = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("lease"), incs, st.one_of(st.integers(0, 40).map(float), st.just(math.inf))),
    st.tuples(st.just("acknowledge"), incs),
    st.tuples(st.just("clock"), st.integers(1, 10)),
)


@settings(database=None)  # CI repeats these as a user who may not write here
@given(st.lists(steps, max_size=40))
def test_nothing_starts_past_a_deadline_or_after_a_fence_that_the_agent_does_not_know(history):
    fence, now = Fence(), 0.0
    best: dict[int, float] = {}  # latest deadline told per incarnation, since it became the present one
    fenced_at: float | None = None
    known = False
    for step in history:
        match step:
            case ("lease", inc, deadline):
                opens = fenced_at is not None and known and deadline > fenced_at
                if inc != fence.inc or opens:
                    best, fenced_at, known = {inc: deadline}, None, False
                elif fenced_at is None:
                    best[inc] = max(best[inc], deadline)
                fence = fence.lease(inc, deadline)
            case ("acknowledge", inc):
                known = known or (inc == fence.inc and fenced_at is not None)
                fence = fence.acknowledge(inc)
            case ("clock", ahead):
                now += ahead
        if fence.due(now):
            fenced_at, known = fence.deadline_s, False
            fence = fence.fenced()
        for inc in (1, 2, 3):
            allowed = fence.may_start(inc, now) is None
            assert allowed == (inc in best and fenced_at is None and now < best[inc])
        assert not fence.due(now)
