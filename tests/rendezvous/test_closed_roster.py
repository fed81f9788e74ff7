"""Who must be back before a round may form when ranks are held: the rule as a table."""

from __future__ import annotations

import pytest

from remuster.rendezvous.closed_roster import awaited, reunite, way_out
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.membership import Candidate
from remuster.rendezvous.records import (
    Incarnation,
    Job,
    Member,
    NodeId,
    Phase,
    Roster,
    Round,
    StoreLoss,
    decode_job,
    decode_roster,
    encode,
)

HOLD, FENCE = StoreLoss.HOLD, StoreLoss.FENCE


def member(node: str, inc: int, machine: str = "") -> Member:
    return Member(NodeId(node), Incarnation(inc), machine or f"id{node}-boot1-effffffc", 1, "10.0.0.1")


def ready(*members: Member) -> tuple[Candidate, ...]:
    return tuple(Candidate(m, i) for i, m in enumerate(members))


def job(size: int = 2, how: StoreLoss = HOLD) -> Job:
    return Job(Phase.FORMING, Round(2), size, size, "one", formed=Round(1), store_loss=how)


LAST = Roster(Round(1), (member("a", 1), member("b", 2)), store_loss=HOLD)


@pytest.mark.parametrize(
    ("last", "here", "now", "chosen_from", "missing"),
    [
        (None, "ab", job(), "ab", ""),
        (LAST._replace(store_loss=FENCE), "ac", job(), "ac", ""),
        (LAST, "ab", job(), "ab", ""),
        (LAST, "abc", job(), "ab", ""),
        (LAST, "ac", job(), "a", "b"),
        (LAST, "cd", job(), "", "ab"),
        (LAST, "", job(), "", "ab"),
        (LAST, "ac", job(how=FENCE), "a", "b"),  # a later launch
        (LAST, "abc", job(how=FENCE), "abc", ""),
        (LAST, "ac", job(3), "a", "b"),
        (LAST, "abc", job(3), "abc", ""),
    ],
)
def test_who_is_waited_for(last: Roster | None, here: str, now: Job, chosen_from: str, missing: str) -> None:
    found = reunite(last, ready(*(member(node, 10 + i) for i, node in enumerate(here))), now)
    assert "".join(c.member.node for c in found.ready) == chosen_from
    assert "".join(m.node for m in found.missing) == missing


@pytest.mark.parametrize(
    ("before", "now", "back"),
    [
        ("id-boot1-effffffc", "id-boot1-effffffc", True),
        ("id-boot1-effffffc", "id-boot2-effffffc", True),  # rebooted: nothing of before can live
        ("id-boot1-effffffc", "other-boot2-effffffc", False),
        ("id-boot1-effffffc", "id-boot1-f0000001", False),  # a container beside it sees nothing of it
        ("id-boot1-f0000001", "id-boot1-f0000002", False),
        ("id-boot1-f0000001", "id-boot2-f0000001", False),  # containers of one image, on two hosts
        ("-boot1-effffffc", "-boot1-effffffc", True),
        ("-boot1-effffffc", "-boot2-effffffc", False),  # a machine without an id
        ("m", "m", True),
        ("m", "n", False),
    ],
)
def test_the_same_machine(before: str, now: str, back: bool) -> None:
    last = Roster(Round(1), (member("a", 1, before),), store_loss=HOLD)
    assert reunite(last, ready(member("a", 5, now)), job(1)).missing == (() if back else last.members)


def test_a_namesake_beside_the_returned_one_is_not_chosen() -> None:
    other = member("a", 7, "elsewhere-boot1-effffffc")
    found = reunite(LAST, ready(other, member("a", 8), member("b", 9)), job())
    assert [c.member.inc for c in found.ready] == [8, 9]


def test_the_sentences() -> None:
    assert awaited(()) == ""
    assert awaited(LAST.members) == (
        "ranks may still live on a (machine ida) and b (machine idb), which must come back (--on-store-loss=hold)"
    )
    many = tuple(member("n" * 300 + str(i), i, "m" * 500) for i in range(1, 2000))
    assert len(awaited(many)) + len(way_out(many)) < 1000


def test_the_records_keep_the_mode() -> None:
    assert decode_job(encode(job())).store_loss is HOLD
    assert decode_roster(encode(LAST)) == LAST
    for raw, decode in ((encode(job()), decode_job), (encode(LAST), decode_roster)):
        assert decode(raw.replace(b'"store_loss":"hold",', b"")).store_loss is FENCE
        with pytest.raises(BadRecord, match="unknown store_loss 'quorum'"):
            decode(raw.replace(b'"store_loss":"hold"', b'"store_loss":"quorum"'))
