"""A node that is asked about a checkpoint: what the node machine does, and what its look at real files answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from node_tables import (
    FORMING,
    INC,
    KEYS,
    LEADER,
    ME,
    MEETING,
    ROSTER,
    in_round,
    joined,
    kv,
    ok,
    put,
    run,
    said,
    written,
)
from steps_on_disk import copied, published

from remuster.agent import node_words as words
from remuster.agent.reentry import Others
from remuster.agent.sight import Asking, answer
from remuster.checkpoint.layout import step_name
from remuster.rendezvous.agreement import NOT_FOR_ALL
from remuster.rendezvous.asked import HOOKS, Asked, Found, Held, Sight, decode_sight
from remuster.rendezvous.leader_words import SelectResume
from remuster.rendezvous.records import NodeId, ResumePoint, Round
from remuster.rendezvous.store import Compare, Field, Range, TxnResult
from remuster.rendezvous.writes import Kind

ASKED = Asked(3, 1, "step-20", 20, "manifest", 8, 128, "d", "1@2")
ASKING = replace(FORMING, asked=ASKED)
CAN = Sight(ASKED.mark, Found.CAN)
KEY = KEYS.report("looked", Round(3), ME, INC)


# --- the node machine -------------------------------------------------------------------------------------------------
def test_it_looks_once_and_says_what_it_sees_of_the_very_record_that_asked() -> None:
    state, out = run(joined(FORMING), words.JobSeen(1.0, kv(ASKING, 11)))
    assert out == [words.Look(Round(3), ASKED)]
    state, out = run(state, words.Tick(1.1), words.JobSeen(1.2, kv(replace(ASKING, notice="b"), 12)))
    assert out == [], "once, whatever else the record says"
    state, out = run(state, words.Looked(2.0, Round(3), CAN))
    assert said(out) == ["looked(3)"]
    write = written(out, Kind.LOOKED)
    assert decode_sight(put(write, KEY)) == CAN
    assert Compare(KEYS.job, Field.MOD, 12) in write.txn.guards
    state, out = run(state, ok(2.1, Kind.LOOKED, 3), words.Tick(2.2))
    assert out == [], "said"


def test_a_new_question_makes_the_answer_to_the_old_one_void() -> None:
    second = ASKED._replace(token=4)
    state, _ = run(joined(FORMING), words.JobSeen(1.0, kv(ASKING, 11)))
    state, out = run(state, words.JobSeen(1.1, kv(replace(ASKING, asked=second), 12)))
    assert out == [words.Look(Round(3), second)]
    state, out = run(state, words.Looked(1.2, Round(3), CAN))
    assert out == [], "it is the first one's"
    state, out = run(state, words.Looked(1.3, Round(3), Sight(second.mark, Found.LACKS, "gone")))
    assert decode_sight(put(written(out, Kind.LOOKED), KEY)).found is Found.LACKS


def test_an_answer_that_crosses_with_a_new_question_is_not_taken_for_its() -> None:
    third = ASKED._replace(number=2)
    state, out = run(joined(FORMING), words.JobSeen(1.0, kv(ASKING, 11)), words.Looked(1.1, Round(3), CAN))
    state, _ = run(state, words.JobSeen(1.2, kv(replace(ASKING, asked=third), 12)))
    state, out = run(state, words.Looked(1.3, Round(3), Sight(third.mark, Found.LACKS, "gone")))
    assert out == [], "a write is under way"
    state, out = run(state, ok(1.4, Kind.LOOKED, 3))
    assert decode_sight(put(written(out, Kind.LOOKED), KEY)).mark == third.mark


def test_an_answer_that_comes_too_late_is_dropped_and_one_that_was_refused_is_said_again() -> None:
    state, out = run(joined(FORMING), words.JobSeen(1.0, kv(ASKING, 11)), words.Looked(1.1, Round(3), CAN))
    noticed = kv(replace(ASKING, notice="b"), 12)
    refusal = words.Wrote(1.2, Kind.LOOKED, Round(3), INC, TxnResult(False, 13, (Range((noticed,), 13),)))
    _, out = run(state, refusal)
    assert Compare(KEYS.job, Field.MOD, 12) in written(out, Kind.LOOKED).txn.guards
    over = kv(replace(MEETING, master=""), 14)
    refusal = words.Wrote(1.2, Kind.LOOKED, Round(3), INC, TxnResult(False, 14, (Range((over,), 14),)))
    _, out = run(state, refusal)
    assert "looked(3)" not in said(out)


@pytest.mark.parametrize(
    "changes", [{"leading": 3, "leader": LEADER._replace(lease=INC, create_revision=3, value=b"a@7")}, {"mod": 0}]
)
def test_who_is_not_asked(changes: dict[str, object]) -> None:
    """The leader itself, and who has not joined."""
    _, out = run(joined(ASKING, pending=frozenset({"reread"}), **changes), words.Tick(1.0))
    assert not [a for a in out if isinstance(a, words.Look)]


def test_no_node_looks_while_its_ranks_live() -> None:
    _, out = run(in_round(MEETING), words.JobSeen(1.0, kv(replace(ASKING, round=Round(4), formed=Round(3)), 12)))
    assert not [a for a in out if isinstance(a, words.Look)]


# --- the look ---------------------------------------------------------------------------------------------------------
NAME = step_name(20)


def asking(directory: Path) -> Asking:
    return Asking(SelectResume(Round(2), 0, ROSTER, (), ""), directory)


def point(directory: Path, name: str = NAME) -> ResumePoint:
    return ResumePoint(str(directory / name), 20, "manifest", "", name=name)


async def test_the_leaders_question_and_another_nodes_answer(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    path = published(one, 20)
    asked = asking(one).question(point(one), Held())._replace(token=3, number=7)
    assert (asked.name, asked.step, asked.files) == (NAME, 20, 8)
    assert (await answer(asked, one, 60.0)).found is Found.CAN
    copied(path, two)
    published(two, 10, 1)
    published(two, 30, 1)
    found = await answer(asked, two, 60.0)
    assert found == Sight((3, 7), Found.CAN, "", ((step_name(30), 30), (NAME, 20), (step_name(10), 10)))
    (two / NAME / "part-1").unlink()
    assert (await answer(asked, two, 60.0)).found is Found.LACKS


async def test_a_look_without_end_is_unknown(tmp_path: Path) -> None:
    """What is absent is doubted for five seconds: this one has less."""
    published(tmp_path, 20)
    asked = asking(tmp_path).question(point(tmp_path), Held())
    (tmp_path / "empty").mkdir()
    found = await answer(asked, tmp_path / "empty", 0.2)
    assert (found.found, found.why) == (Found.UNKNOWN, "its file system gave no answer within 0.2 s")


async def test_where_no_checkpoint_was_found_and_where_a_hook_names_a_path(tmp_path: Path) -> None:
    published(tmp_path, 20)
    assert asking(tmp_path).question(ResumePoint(), Held()) == Asked(part=ROSTER.world_size)
    assert (await answer(Asked(1, 1), tmp_path, 60.0)).steps == ((NAME, 20),)
    assert (await answer(Asked(1, 1), None, 60.0)).found is Found.CAN
    assert (await answer(ASKED, None, 60.0)).why == "it was given no --checkpoint-dir"
    asked = asking(tmp_path).question(ResumePoint(str(tmp_path), 4), Held())
    assert asked == Asked(0, 0, str(tmp_path), 4, HOOKS)
    assert (await answer(asked, None, 60.0)).found is Found.CAN
    assert (await answer(asked._replace(name="/no/such"), None, 60.0)).why == "there is no '/no/such'"


def test_what_others_have_against_a_checkpoint(tmp_path: Path) -> None:
    ask = SelectResume(Round(2), 0, ROSTER, (), "", (("s20", "b lacks it"),), ("s10",), (("s30", 30, NodeId("b")),))
    objection = Asking(ask, tmp_path).objection
    assert [objection(name) for name in ("s20", "s15", "s10", "s30")] == ["b lacks it", NOT_FOR_ALL, "", ""]
    assert asking(tmp_path).objection("s15") == ""
    assert Others().objection("s20") == ""
    assert Others().question(point(tmp_path), Held()) is None
