"""Whether parts on all nodes are a checkpoint, and what is told from a torn save: a table of the pure core."""

from __future__ import annotations

import pytest

from remuster.rendezvous.agreement import weigh
from remuster.rendezvous.asked import Asked, Found, Held, Ranges, Sight
from remuster.rendezvous.parts import Shortage, short, shortage, spans
from remuster.rendezvous.records import Incarnation, Member, NodeId, Roster, Round
from remuster.rendezvous.snapshot import Who

ASKED = Asked(9, 1, "step-20", 20, "sim", part=4)
A, B, C, D = ((NodeId(name), Incarnation(i)) for i, name in enumerate("abcd", 1))
ALL = frozenset((A, B, C, D))
ZERO, ONE, TWO, THREE, BOTH, NONE = ((0, 0),), ((1, 1),), ((2, 2),), ((3, 3),), ((0, 1),), ()
LACKS, DIFFERS = Found.LACKS, Found.DIFFERS


def judged(
    slots: dict[Who, int], held: Ranges, others: dict[Who, Ranges | Found], last: frozenset[Who] = ALL, wrote: int = 0
) -> Shortage | None:
    """Judge a round of nodes with so many ranks each; A chooses."""
    roster = Roster(Round(2), tuple(Member(node, inc, "m", n, "") for (node, inc), n in slots.items()))
    found = {
        who: Sight(ASKED.mark, has) if isinstance(has, Found) else Sight(ASKED.mark, Found.CAN, ranks=has)
        for who, has in others.items()
    }
    to_run = spans(roster)
    rest = [m for m in roster.members if m.who != A]
    v = weigh(ASKED, rest, found, (), lambda m, sight: short(to_run[m.who], sight.ranks))
    before = tuple(m for m in roster.members if m.who in last)
    more = tuple(Member(node, inc, "m", 1, "") for node, inc in sorted(last - slots.keys()))
    return shortage(roster, A, Held(held, wrote), v, found, Roster(Round(1), before + more))


TWO_OF_ONE, TWO_OF_TWO, THREE_OF_ONE = {A: 1, B: 1}, {A: 2, B: 2}, {A: 1, B: 1, C: 1}


def test_every_node_has_its_own() -> None:
    assert judged(TWO_OF_ONE, ZERO, {B: ONE}) is None
    assert judged(TWO_OF_ONE, ZERO, {B: ONE}, wrote=2) is None


@pytest.mark.parametrize(
    ("slots", "held", "others", "last", "wrote", "torn"),
    [
        (TWO_OF_ONE, ZERO, {B: LACKS}, ALL, 0, True),
        (TWO_OF_ONE, ZERO, {B: LACKS}, {A, C}, 0, False),  # B has come in place of C
        (TWO_OF_ONE, ZERO, {B: LACKS}, {B, C}, 0, False),  # A has it of a round before the last, which knew nothing
        (TWO_OF_ONE, ZERO, {B: DIFFERS}, {A}, 0, True),
        (TWO_OF_TWO, BOTH, {B: TWO}, ALL, 0, True),
        (TWO_OF_TWO, BOTH, {B: TWO}, ALL, 3, False),  # three ranks wrote it, and B was to have one of them
        (TWO_OF_TWO, ZERO, {B: ONE}, ALL, 0, False),  # … as a node shows that is to run others
        (TWO_OF_ONE, ONE, {B: ONE}, ALL, 0, True),  # one directory, without rank 0's file
        (THREE_OF_ONE, ZERO, {B: ZERO, C: TWO}, ALL, 0, True),  # A and B are of one machine, and B ran rank 1 there
        (THREE_OF_ONE, ZERO, {B: ZERO, C: TWO}, {A, C, D}, 0, False),  # … or another node did, on its own
        (TWO_OF_ONE, ONE, {B: ZERO}, ALL, 0, False),  # exchanged
    ],
)
def test_what_is_torn(
    slots: dict[Who, int], held: Ranges, others: dict[Who, Ranges | Found], last: set[Who], wrote: int, torn: bool
) -> None:
    lack = judged(slots, held, others, frozenset(last), wrote)
    assert lack is not None
    assert lack.torn is torn


def test_a_spare_that_chooses_says_by_how_many_ranks_it_was_written() -> None:
    """All members hold the files of their ranks, and it is one of another number of ranks all the same."""
    lack = judged({B: 1, C: 1}, TWO, {B: ZERO, C: ONE}, wrote=3)
    assert lack is not None
    assert [bar.who for bar in lack.own] == [A]
    assert "3 ranks wrote it, each node its own, and 2 are to come" in lack.bars[0].why
