"""A checkpoint of which each node holds the files of its own ranks: who can load it, and what follows if not."""

from __future__ import annotations

import json

import pytest
from rendezvous.test_agreement import CAN, DIFFERS, INC, KEYS, LACKS, TOKEN, A, B, C, D, Led, N, member, sight

from remuster.rendezvous import leader_words as words
from remuster.rendezvous.agreement import weigh
from remuster.rendezvous.asked import MAX_BYTES, Asked, Held, Ranges, Sight, decode_sight, encode_sight, ranges
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.history import sized
from remuster.rendezvous.mirrored import Mirrored, decode, to_value
from remuster.rendezvous.parts import short, shortage, spans
from remuster.rendezvous.records import Job, NodeId, Phase, ResumePoint, Roster, decode_job, encode
from remuster.rendezvous.snapshot import Who
from remuster.rendezvous.store import WatchBatch, WatchEvent

# Three nodes of two ranks; a chooses.
ROSTER = Roster(N, tuple(member(node)._replace(slots=2) for node in (A, B, C)))
ASKED = Asked(TOKEN, 1, "step-20", 20, "dcp", part=6)
ME = (A, INC[A])
ALL = ROSTER  # of the last round, too
NOBODY = None
MINE = Held(((0, 1),))


def holds(*rows: tuple[int, int], found: str = "can") -> Sight:
    what = {"can": CAN, "lacks": LACKS, "differs": DIFFERS}[found]
    return sight(what, "" if what is CAN else f"it {found}")._replace(ranks=rows)


GOOD = {B: holds((2, 3)), C: holds((4, 5))}


def weighed(
    answers: dict[NodeId, Sight], held: Held = MINE, last: Roster | None = ALL, roster: Roster = ROSTER, me: Who = ME
) -> tuple[bool, list[str]] | None:
    """Return whether it was interrupted, and what is said of whom; None when everybody can load it."""
    found = {(node, INC[node]): one for node, one in answers.items()}
    others = [m for m in roster.members if m.who != me]
    v = weigh(ASKED, others, found, (), lambda m, one: short(spans(roster)[m.who], one.ranks))
    lack = shortage(roster, me, held, v, found, last)
    return None if lack is None else (lack.torn, [bar.why for bar in lack.bars])


@pytest.mark.parametrize(
    ("ranks", "rows"),
    [((), ()), ((3,), ((3, 3),)), ((0, 1, 2), ((0, 2),)), ((0, 1, 4, 6, 7), ((0, 1), (4, 4), (6, 7)))],
)
def test_ranks_as_rows(ranks: tuple[int, ...], rows: Ranges) -> None:
    assert ranges(ranks) == rows


def test_an_answer_survives_its_bytes_and_is_bounded() -> None:
    told = holds((2, 3), (6, 6))._replace(parts=(("step-20", 20),))
    assert decode_sight(encode_sight(told)) == told
    many = holds(*((n, n) for n in range(0, 10**6, 2)))
    assert len(encode_sight(many)) <= MAX_BYTES
    assert len(decode_sight(encode_sight(many)).ranks) == 256


@pytest.mark.parametrize("ranks", ["[1]", "[[1]]", '[["0", 1]]', "[[0, -1]]", "{}", "[[0, 1, 2]]"])
def test_what_is_no_row_of_ranks_is_refused(ranks: str) -> None:
    raw = encode_sight(holds((2, 3)))
    assert b'"ranks":[[2,3]]' in raw
    with pytest.raises(BadRecord):
        decode_sight(raw.replace(b"[[2,3]]", ranks.encode()))


def test_a_number_of_ranks_that_nobody_has_is_none() -> None:
    """Whoever reaches the store may have written it, and each rank's file would be looked for."""
    job = encode(Job(Phase.FORMING, N, 1, 3, "one", asked=ASKED))
    assert b'"part":6' in job
    with pytest.raises(BadRecord, match="'part'"):
        decode_job(job.replace(b'"part":6', b'"part":4611686018427387904'))
    for world in (b"4611686018427387904", b"true"):
        assert sized(((N, b'{"step":5,"world":%s}' % world),)) == ()
    copy = to_value("run", Mirrored(Job(Phase.FORMING, N, 1, 3, "one"), ((N, 5),), None, ((N, 2**62),)))
    with pytest.raises(BadRecord, match="'resumed_worlds'"):
        decode("run", json.dumps(copy).encode())


def test_everybody_has_what_its_ranks_need() -> None:
    assert weighed(GOOD) is None
    assert weighed({B: holds((0, 5)), C: holds((4, 5), (2, 2))}) is None, "more does no harm"
    assert weighed(GOOD, Held(((0, 1),), 6)) is None


def test_a_member_that_was_interrupted_shows_that_nobody_ever_had_all_of_it() -> None:
    for answers in (
        {**GOOD, C: holds(found="differs")},
        {**GOOD, C: holds((4, 4))},
        {**GOOD, C: holds(found="lacks")},
    ):
        found = weighed(answers)
        assert found is not None
        assert found[0], answers
        assert found[1][0].startswith("node c ")
    for answers in ({**GOOD, C: holds((4, 4))}, {B: holds(found="lacks"), C: holds((4, 4))}):
        found = weighed(answers, last=NOBODY)
        assert found is not None
        assert found[0], "its part is of the place that it has, whatever another one has"
    assert weighed(GOOD, Held(((1, 1),))) == (
        True,
        ["node a lacks it: it is to run ranks 0 to 1, and holds the files of rank 1"],
    )


def test_in_a_directory_that_all_share_it_is_torn() -> None:
    """Whoever takes part: they all have the same ranks' files, and those of others are nowhere."""
    seen = holds((0, 1), (4, 5))
    found = weighed({B: seen, C: seen}, Held(((0, 1), (4, 5))), last=NOBODY)
    assert found == (True, ["node b lacks it: it is to run ranks 2 to 3, and holds the files of ranks 0 to 1, 4 to 5"])


@pytest.mark.parametrize(
    ("answers", "held", "words"),
    [
        ({**GOOD, C: holds(found="lacks")}, MINE, "node c lacks it: it lacks"),
        ({B: holds((4, 5)), C: holds((2, 3))}, MINE, "holds the files of ranks 4 to 5"),
        ({B: holds((4, 5)), C: holds(found="lacks")}, MINE, "holds the files of ranks 4 to 5"),
        ({B: holds((0, 1)), C: holds((4, 5))}, Held(((2, 3),)), "node a lacks it: it is to run ranks 0 to 1"),
        (GOOD, Held(((0, 1),), 8), "node a lacks it: 8 ranks wrote it, each node its own, and 6 are to come"),
    ],
    ids=["replaced", "exchanged", "exchanged and replaced", "its own exchanged", "of another number"],
)
def test_what_had_been_whole_is_not_called_torn(answers: dict[NodeId, Sight], held: Held, words: str) -> None:
    found = weighed(answers, held, NOBODY)
    assert found is not None
    assert not found[0]
    assert any(words in why for why in found[1])


def test_places_that_moved_up_when_a_node_went() -> None:
    """b and c go on without a: survivors, and each has the files of the ranks that it ran."""
    left = Roster(N, ROSTER.members[1:])
    found = weighed({C: holds((4, 5))}, Held(((2, 3),)), ALL, left, (B, INC[B]))
    assert found is not None
    assert not found[0]


def roster_of(slots: int, *nodes: NodeId) -> Roster:
    return Roster(N, tuple(member(node)._replace(slots=slots) for node in nodes))


def test_nodes_that_run_more_ranks_than_before_do_not_make_it_torn() -> None:
    """Two ranks a node wrote it, and four are to come on each: the rank files do not record that."""
    for held in (MINE, Held(((0, 1),), 4)):
        found = weighed({B: holds((2, 3))}, held, NOBODY, roster_of(4, A, B))
        assert found is not None
        assert not found[0], held


def test_a_leader_that_is_no_member_sees_that_another_number_wrote_it() -> None:
    found = weighed(GOOD, Held(((6, 7),), 8), NOBODY, me=(D, INC[D]))
    assert found == (False, ["node d lacks it: 8 ranks wrote it, each node its own, and 6 are to come"])
    found = weighed({**GOOD, C: holds(found="differs")}, Held(((6, 7),), 8), NOBODY, me=(D, INC[D]))
    assert found is not None
    assert found[0], "and it was interrupted"


# a and b share a machine and its disk, c and d another one, each with one rank
FOUR = roster_of(1, A, B, C, D)


@pytest.mark.parametrize("last", [FOUR, NOBODY], ids=["survivors", "another launch"])
@pytest.mark.parametrize(
    ("one", "two", "who"), [((0, 1), (2, 2), "d"), ((1, 1), (2, 3), "a")], ids=["not the leader", "the leader"]
)
def test_nodes_that_share_a_machine_and_a_rank_that_did_not_save(
    last: Roster | None, one: tuple[int, int], two: tuple[int, int], who: str
) -> None:
    """In another launch a node may have come in place of one that had it."""
    found = weighed({B: holds(one), C: holds(two), D: holds(two)}, Held((one,)), last, FOUR)
    assert found is not None
    assert found[0] is (last is not NOBODY)
    assert [why[:7] for why in found[1]] == [f"node {who} "]


def test_nodes_that_share_a_machine_and_have_changed_places_with_others() -> None:
    """a and b hold ranks 0 to 3, and b is to run what c holds; or c has come in place of who held it."""
    for there in (holds((4, 5)), holds(found="lacks")):
        found = weighed({B: holds((0, 3)), C: there}, Held(((0, 3),)), NOBODY, roster_of(2, A, C, B))
        assert found is not None
        assert not found[0], there


# --- the job machine --------------------------------------------------------------------------------------------------
class Parted(Led):
    """Nodes of one rank each, with their own parts; none of them was a member before."""

    def choose_part(self, step: int, *ranks: int, wrote: int = 0, refused: tuple[str, ...] = ()) -> None:
        world = len(self.tree) - 2
        point = ResumePoint(f"/c/step-{step}", step, "dcp", name=f"step-{step}")
        question = Asked(0, 0, point.name, step, "dcp", part=world)
        passed = tuple((one, "torn") for one in refused)
        held = Held(ranges(ranks), wrote)
        self.take(words.Resumed(self.at, N, point, passed, question=question, world=world, held=held))

    def choose_nothing(self, *refused: str) -> None:
        passed = tuple((one, "torn") for one in refused)
        self.take(words.Resumed(self.at, N, ResumePoint(), passed, question=Asked(part=len(self.tree) - 2)))


def test_a_round_closes_on_parts_that_lie_where_they_are_needed() -> None:
    led = Parted(A, B)
    led.search()
    led.choose_part(20, 0)
    asked = led.ask()
    assert (asked.part, asked.files, asked.digest) == (2, 0, "")
    led.answers(asked, b=holds((1, 1)))
    assert led.closed().resume == ResumePoint("/c/step-20", 20, "dcp", name="step-20")


def test_the_one_before_is_taken_when_a_save_was_interrupted() -> None:
    led = Parted(A, B)
    led.search()
    led.choose_part(20, 0)
    led.answers(led.ask(), b=holds(found="differs"))
    ask = led.search()
    assert (ask.within, dict(ask.against)) == (None, {"step-20": "node b has a bad one, or another: it differs"})
    led.choose_part(10, 0, refused=("step-20",))
    led.answers(led.ask(), b=holds((1, 1)))
    assert led.closed().resume.step == 10  # type: ignore[union-attr]


def test_a_first_save_that_was_interrupted_keeps_nobody_from_beginning() -> None:
    led = Parted(A, B)
    led.search()
    led.choose_part(20, 0)
    led.answers(led.ask(), b=holds(found="differs"))
    led.search()
    led.choose_nothing("step-20")
    led.answers(led.ask(), b=sight(CAN)._replace(parts=(("step-20", 20),)))
    assert led.closed().resume == ResumePoint()


def test_parts_that_lie_elsewhere_end_the_job_and_nothing_is_begun_from_nothing() -> None:
    led = Parted(A, B)
    led.search()
    led.choose_part(20, 1)  # what b should have
    led.answers(led.ask(), b=holds((0, 0)))
    led.search()
    led.choose_nothing("step-20")
    code, cls, why = led.failed()
    assert (code, cls) == (75, "fs_transient")
    assert "node a lacks it: it is to run rank 0, and holds the files of rank 1" in why
    assert why.endswith("give each its old place (--node-rank)")


def test_a_node_that_chooses_and_is_new_does_not_begin_from_nothing() -> None:
    led = Parted(A, B)
    led.search()
    led.choose_nothing()
    led.answers(led.ask(), b=sight(CAN)._replace(parts=(("step-20", 20),)))
    assert "node b has step-20, and node a, which chooses, sees no checkpoint" in led.failed()[2]


def test_one_node_alone_does_not_go_on_from_a_part_of_more() -> None:
    led = Parted(A, low=1)
    led.search()
    led.choose_part(20, 0, wrote=2)
    led.search()
    led.choose_nothing("step-20")
    assert "2 ranks wrote it, each node its own, and 1 are to come" in led.failed()[2]


def test_a_new_member_without_its_part_is_left_out_where_others_suffice() -> None:
    led = Parted(A, B, C, low=2, high=3)
    led.search()
    led.choose_part(20, 0)
    led.answers(led.ask(), b=holds((1, 1)), c=holds(found="lacks"))
    led.wait(1.0)
    assert [m.node for m in led.search().roster.members] == [A, B], "the world is another one: it is chosen anew"


def test_a_member_that_goes_before_the_round_closes_makes_another_choice_of_it() -> None:
    """What two ranks saved each for itself was looked at for two; torch would load half of it for one."""
    led = Parted(A, B, low=1)
    led.search()
    led.choose_part(20, 0)
    led.ask()
    key = KEYS.node(B)
    led.take(words.Changed(led.at, WatchBatch((WatchEvent(key, led.revision + 1, None),))))
    assert led.search().roster.world_size == 1
