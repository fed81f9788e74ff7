"""Who runs in which place, and who may join how: tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.rendezvous.membership import (
    Candidate,
    Order,
    Over,
    Standing,
    choose,
    disagreement,
    lack,
    returned,
    standing,
    vacant,
)
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
    Terms,
)


def member(word: str) -> Member:
    """Read "a", "a:2" (slots), "a'" (a later incarnation of a) or "a@0" (that asks for place 0)."""
    word, _, place = word.partition("@")
    name, _, slots = word.partition(":")
    node = name.rstrip("'")
    inc = Incarnation(ord(node) * 10 + name.count("'"))
    return Member(NodeId(node), inc, f"m-{node}", int(slots or 1), f"10.0.0.{node}", int(place or -1))


def roster(words: str) -> Roster:
    return Roster(Round(1), tuple(member(w) for w in words.split()))


def ready(words: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(member(word), joined) for joined, word in enumerate(words.split()))


def names(members: tuple[Member, ...]) -> str:
    return " ".join(m.node + "'" * (m.inc % 10) for m in members)


@pytest.mark.parametrize(
    ("last", "here", "most", "members", "spares"),
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
def test_choose(last: str | None, here: str, most: int, members: str, spares: str) -> None:
    check_choice(last, here, most, members, spares)


def check_choice(last: str | None, here: str, most: int, members: str, spares: str) -> None:
    before = None if last is None else roster(last)
    chosen = choose(before, ready(here), most)
    assert (names(chosen.members), names(chosen.spares)) == (members, spares)
    assert choose(before, tuple(reversed(ready(here))), most) == chosen


def host(name: str, slots: int = 1) -> Candidate:
    return Candidate(Member(NodeId(name), Incarnation(1 + len(name)), "m", slots, name), 1)


@pytest.mark.parametrize(
    ("last", "chosen", "members"),
    [
        ("a b", "b' a'", "a' b'"),
        ("a b c", "d' c' a'", "a' d' c'"),  # who is new has the hole
        ("a b c", "c' b'", "c' b'"),  # fewer: c's place is none now
        ("a b", "d' b' c' a'", "a' b' d' c'"),
        ("a b", "b':2 a", "a b'"),  # with other ranks, too: nobody is refused for them
        ("a b", "c d", "c d"),
        ("a b", "b'@0 a'@1", "b' a'"),  # as they ask for it
    ],
)
def test_a_later_launch_seats_nodes_where_they_sat(last: str, chosen: str, members: str) -> None:
    assert names(returned(roster(last), roster(chosen)).members) == members


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ("node10 node9 node2", "node2 node9 node10"),
        ("b10 a2 b9 a11", "a2 a11 b9 b10"),
        ("10.0.0.10 10.0.0.9 9.255.0.1", "9.255.0.1 10.0.0.9 10.0.0.10"),
        ("n n2 n-2 2n", "2n n n2 n-2"),
        ("n01 n1 n001", "n001 n01 n1"),  # the same number: by the name itself
        ("n#2 n n#10", "n n#2 n#10"),
    ],
)
def test_by_host_name(here: str, expected: str) -> None:
    ready = tuple(host(name) for name in here.split())
    assert " ".join(m.node for m in choose(None, ready, 9, Order.HOSTNAME).members) == expected
    sticky = choose(None, ready, 9).members
    assert " ".join(m.node for m in choose(Roster(Round(1), sticky), ready, 9, Order.HOSTNAME).members) == expected


def test_by_host_name_the_same_nodes_are_chosen() -> None:
    """A name comes first in the order and not in the choice: survivors stay, and a hole wants its slots."""
    last = Roster(Round(1), tuple(c.member for c in (host("n5"), host("n7", 3))))
    ready = (host("n5"), host("n1"), host("n4", 3))
    assert [m.node for m in choose(last, ready, 2, Order.HOSTNAME).members] == ["n4", "n5"]
    places = tuple(Candidate(c.member._replace(place=i), 1) for i, c in enumerate(ready))
    assert [m.node for m in choose(None, places, 3, Order.HOSTNAME).members] == ["n5", "n1", "n4"]


@pytest.mark.parametrize("name", ["9" * 5000, "²", "", "٣"])
def test_any_name_can_be_compared(name: str) -> None:
    ready = (host(name), host("n1"), host("1"))
    assert len(choose(None, ready, 3, Order.HOSTNAME).members) == 3


@pytest.mark.parametrize(
    ("last", "here", "most", "members", "spares"),
    [
        (None, "a@2 b@0 c@1", 3, "b c a", ""),
        (None, "a@0 b@0", 2, "a", "b"),  # the first that asks
        (None, "b@1 a@1 c@0", 2, "c b", "a"),
        ("a@0 b@1", "b@1 c@0 a@0", 2, "a b", "c"),  # who sat there, whenever the others joined
        ("a@0 b@1", "c@1 a@0 b'@1", 2, "a b'", "c"),  # … or a later start of its node
        ("a@0 b@1", "d@0 c@1 a@0", 2, "a c", "d"),  # a lost node is replaced by one that asks for its place
        ("a@0 b@1", "a@0 c@2", 3, "a c", ""),  # nobody asks for it: holes close up
        ("a@0 b@2", "b@2 a@0 c@1", 3, "a c b", ""),
        ("a@0 b:2@1", "a@0 c@1", 2, "a", "c"),  # with the slots of the one it replaces, or not at all
        ("a@0 b:2@1", "a@0 c@1 d:2@1", 2, "a d", "c"),
        (None, "a@0 b:2@1", 2, "a b", ""),
        (None, "a@0 b@7", 2, "a", "b"),  # there is no such place
        (None, "a@1 b", 2, "a", "b"),  # one that does not ask, among those that do
    ],
)
def test_choose_by_place(last: str | None, here: str, most: int, members: str, spares: str) -> None:
    check_choice(last, here, most, members, spares)


@pytest.mark.parametrize(
    ("last", "here", "least", "most", "missing", "says"),
    [
        (None, "a b", 3, 3, (), ""),  # nobody asks for places
        (None, "", 2, 2, (), ""),
        (None, "a@1 b@0", 2, 2, (), ""),
        (None, "b@0 a@0", 2, 2, (1,), "no node with --node-rank 1 yet; --node-rank 0 is given by b and a"),
        (None, "a@2", 4, 4, (0, 1, 3), "no node with --node-rank 0, 1 and 3 yet"),
        (None, "a@9", 10**6, 10**6, (0, 1, 2, 3), "no node with --node-rank 0, 1, 2 and more yet"),
        (None, "a@1 b@2", 2, 3, (0,), "no node with --node-rank 0 yet"),
        (None, "a@0 b@2", 2, 3, (), ""),
        (None, "a@0 b@0 c@0 d@0", 2, 3, (), "--node-rank 0 is given by a, b, c and more"),
        ("a@0 b:2@1", "a@0 c@1", 2, 2, (1,), "c with --node-rank 1 has another number of ranks than the node it would "
         "replace"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    last: str | None, here: str, least: int, most: int, missing: tuple[int, ...], says: str
) -> None:
    chosen = choose(None if last is None else roster(last), ready(here), most)
    assert vacant(chosen, least, most) == missing
    assert lack(chosen, missing) == says


def test_what_is_missing_fits_into_the_job_record() -> None:
    many = tuple(Candidate(member("a@0")._replace(node=NodeId(f"{i}" * 250)), i) for i in range(1, 9))
    chosen = choose(None, many, 8)
    assert len(lack(chosen, vacant(chosen, 8, 8))) < 400


GIVEN = (("--nnodes", "2"), ("the script", "train.py"))


def test_what_differs_is_said_with_both_values() -> None:
    assert disagreement(GIVEN, Terms(NodeId("a"), GIVEN)) == ""
    assert disagreement(GIVEN, Terms(NodeId("a"), GIVEN[::-1])) == ""
    assert disagreement(GIVEN, Terms(NodeId("a"), (GIVEN[0], ("the script", "-m x")))) == (
        "this node was given the script train.py, the run (begun by node a) has -m x; "
        "give all nodes the same command line, or this one another --rdzv-id"
    )


@pytest.mark.parametrize("said", [GIVEN[:1], (*GIVEN, ("--colour", "red")), ()])
def test_terms_of_another_version_are_refused(said: tuple[tuple[str, str], ...]) -> None:
    why = disagreement(GIVEN, Terms(NodeId("a"), said))
    assert "was begun by another version of remuster" in why
    assert "install the same version on all nodes" in why


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
