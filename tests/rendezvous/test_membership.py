"""Who runs in which place, and who may join how: tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.rendezvous.membership import Candidate, Over, Standing, choose, standing
from remuster.rendezvous.records import (
    Incarnation,
    Job,
    Member,
    Memory,
    NodeId,
    Outcome,
    Phase,
    Roster,
    Round,
)


def member(word: str) -> Member:
    """Read "a", "a:2" (slots) or "a'" (a later incarnation of a)."""
    name, _, slots = word.partition(":")
    node = name.rstrip("'")
    return Member(
        NodeId(node), Incarnation(ord(node) * 10 + name.count("'")), f"m-{node}", int(slots or 1), f"10.0.0.{node}"
    )


def names(members: tuple[Member, ...]) -> str:
    return " ".join(m.node + "'" * (m.inc % 10) for m in members)


@pytest.mark.parametrize(
    ("last", "ready", "most", "members", "spares"),
    [
        (None, "a b c", 3, "a b c", ""),
        (None, "a b c", 2, "a b", "c"),
        (None, "", 2, "", ""),
        ("a b c", "c b a", 3, "a b c", ""),  # ranks are sticky, whatever the order of joining
        ("a b c", "a c d", 3, "a d c", ""),  # the hole is filled
        ("a b c", "a d e", 3, "a d e", ""),  # holes in join order
        ("a b c", "a d c e", 3, "a d c", "e"),
        ("a b c", "a c", 3, "a c", ""),  # nobody for the hole: the others move up
        ("a b c", "d e b'", 3, "d b' e", ""),  # a later incarnation of the same node has its place
        ("a b", "a d:2", 2, "a", "d"),  # a spare replaces only with its slots
        ("a b:2", "a c d:2", 2, "a d", "c"),
        ("a b", "a b c d", 3, "a b c", "d"),  # growth takes anybody in join order
        ("a b", "a b c:2", 3, "a b c", ""),
        ("a b", "a c:2 d", 3, "a d c", ""),
        ("a b c", "a b c", 2, "a b", "c"),  # fewer are wanted than ran last
    ],
)
def test_choose(last: str | None, ready: str, most: int, members: str, spares: str) -> None:
    before = None if last is None else Roster(Round(1), tuple(member(w) for w in last.split()))
    candidates = tuple(Candidate(member(word), joined) for joined, word in enumerate(ready.split()))
    chosen = choose(before, candidates, most)
    assert (names(chosen.members), names(chosen.spares)) == (members, spares)
    assert choose(before, tuple(reversed(candidates)), most) == chosen


def job(phase: Phase, launch: str = "one") -> Job:
    outcome = Outcome(3, "a bug in the script") if phase.over else None
    memory = Memory("ValueError", 7, 1)
    return Job(phase, Round(4), 1, 2, launch, formed=Round(3), outcome=outcome, spent=(("user", 2),), memory=memory)


BEGIN = Job(Phase.FORMING, Round(1), 2, 3, "two")
CARRIED = replace(
    BEGIN,
    round=Round(5),
    first=Round(5),
    formed=Round(3),
    spent=(("user", 2),),
    memory=Memory("ValueError", 7, 1),
    past=("one",),
)
CLEARED = replace(CARRIED, spent=(), memory=Memory())


@pytest.mark.parametrize(
    ("there", "fresh", "expected"),
    [
        (None, False, Standing(Round(1), BEGIN)),
        (job(Phase.FORMING), False, Standing(Round(4))),
        (job(Phase.RUNNING), False, Standing(Round(5))),
        (job(Phase.STOPPING), False, Standing(Round(5))),
        (job(Phase.RUNNING), True, Standing(Round(5))),  # fresh begins nothing anew while the job runs
        (job(Phase.FAILED), False, Standing(Round(5), CARRIED)),  # rounds, members and spent go on
        (job(Phase.FAILED), True, Standing(Round(5), CLEARED)),
        (job(Phase.DONE), True, Standing(Round(5), CLEARED)),
    ],
)
def test_standing(there: Job | None, fresh: bool, expected: Standing) -> None:
    assert standing(there, BEGIN, fresh) == expected


def test_a_launch_before_the_last_does_not_begin_the_run_again() -> None:
    later = replace(job(Phase.FAILED, "three"), past=("two", "one"))
    assert isinstance(standing(later, BEGIN, False), Over)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("phase", [Phase.DONE, Phase.FAILED])
def test_a_launch_that_has_ended_is_not_begun_again(phase: Phase, fresh: bool) -> None:
    how = standing(job(phase, "two"), BEGIN, fresh)
    assert isinstance(how, Over)
    assert how.outcome.exit_code == 3
    assert how.sentence.startswith("this launch has already ended: a bug in the script; ")
    assert "launch_id=NAME" in how.sentence


def test_a_done_run_is_refused_unless_fresh() -> None:
    how = standing(job(Phase.DONE), BEGIN, False)
    assert isinstance(how, Over)
    assert "--fresh" in how.sentence
