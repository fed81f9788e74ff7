"""The copy beside the checkpoints: what a launch goes on with, and that no file there makes it guess."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.checkpoint.select import Origin, judge, ranks_that_wrote
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.history import sized, steps
from remuster.rendezvous.membership import Over, Standing
from remuster.rendezvous.mirrored import (
    GAP,
    MAX_BYTES,
    MOST_ROUNDS,
    Mirrored,
    Resumes,
    decode,
    entries,
    go_on,
    held,
    needed,
    newer,
    to_value,
)
from remuster.rendezvous.quarantine import MOST_KEPT, Bar, worth_keeping
from remuster.rendezvous.records import (
    MAX_ROUND,
    Incarnation,
    Job,
    Member,
    Memory,
    NodeId,
    Outcome,
    Paid,
    Phase,
    Roster,
    Round,
    StoreLoss,
)

MEMORY = Memory("print", 150, 1, "hardware", 2, (Paid("hardware", (5, 6)),))
SPENT = (("hardware", 2),)


def job(phase: Phase, launch: str = "one", past: tuple[str, ...] = (), n: int = 4) -> Job:
    outcome = Outcome(3 * (phase is Phase.FAILED), "a bug in the script") if phase.over else None
    formed = Round(n - (phase is Phase.FORMING))
    return Job(phase, Round(n), 1, 2, launch, Round(2), formed, "", None, None, outcome, SPENT, 2, MEMORY, past)


BEGIN = Job(Phase.FORMING, Round(1), 2, 3, "two")
NEXT = replace(BEGIN, round=Round(4 + GAP), first=Round(4 + GAP), past=("one",), spent=SPENT, memory=MEMORY)
CLEARED = replace(NEXT, spent=(), memory=Memory())
CUT_SHORT = replace(NEXT, launch="one", past=(), charged=2)


@pytest.mark.parametrize(
    ("there", "begin", "fresh", "new"),
    [
        *((job(phase), BEGIN, False, NEXT) for phase in Phase if phase is not Phase.DONE),
        *((job(phase), BEGIN, True, CLEARED) for phase in Phase),
        # The store was lost in the middle of a launch: it goes on, with what it has paid, and --fresh is no way around.
        *((job(phase), replace(BEGIN, launch="one"), False, CUT_SHORT) for phase in Phase if not phase.over),
        (job(Phase.RUNNING), replace(BEGIN, launch="one"), True, CUT_SHORT),
        # Launches without an id: the store of the earlier one is gone, so this is another one.
        (job(Phase.FAILED, ""), replace(BEGIN, launch=""), False, replace(NEXT, launch="", past=())),
        (job(Phase.RUNNING, ""), replace(BEGIN, launch=""), True, replace(CLEARED, launch="", past=())),
    ],
)
def test_how_a_launch_goes_on(there: Job, begin: Job, fresh: bool, new: Job) -> None:
    assert go_on(Mirrored(there), begin, fresh) == Standing(Round(4 + GAP), new)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "there",
    [
        job(Phase.FAILED, "two"),
        job(Phase.DONE, "two"),
        job(Phase.FAILED, "three", ("two",)),
        job(Phase.RUNNING, "three", ("two",)),
    ],
)
def test_a_launch_that_has_ended_does_not_go_on(there: Job, fresh: bool) -> None:
    how = go_on(Mirrored(there), BEGIN, fresh)
    assert isinstance(how, Over)
    assert "this launch has already ended" in how.sentence
    assert "launch_id=NAME" in how.sentence


def test_a_done_run_is_refused_unless_fresh() -> None:
    how = go_on(Mirrored(job(Phase.DONE)), BEGIN, False)
    assert isinstance(how, Over)
    assert "--fresh" in how.sentence
    assert isinstance(go_on(Mirrored(job(Phase.DONE, "")), replace(BEGIN, launch=""), False), Over)


def test_steps_of_rounds_that_the_copy_has_missed_are_stale_afterwards() -> None:
    """The lost store may have formed more rounds than its copy tells of; ranks of one that was cut off can publish."""
    how = go_on(Mirrored(job(Phase.RUNNING)), BEGIN, False)
    assert isinstance(how, Standing)
    for missed in range(5, 9):
        assert not judge(Origin("run-7", missed, 900), "run-7", ((4, 100), (how.ready, 200))).accepted


def test_no_round_follows_the_last() -> None:
    with pytest.raises(BadRecord, match="no round can follow"):
        go_on(Mirrored(job(Phase.RUNNING, n=MAX_ROUND)), BEGIN, False)


HELD = Roster(Round(4), (Member(NodeId("a"), Incarnation(7), "m", 1, "10.0.0.1"),), (), StoreLoss.HOLD)


def test_nodes_whose_ranks_may_live_on_are_waited_for() -> None:
    there = replace(job(Phase.RUNNING), store_loss=StoreLoss.HOLD)
    how = go_on(Mirrored(there, (), HELD), BEGIN, False)
    assert how == Standing(Round(4 + GAP), replace(NEXT, formed=Round(4)))
    assert decode("run-7", raw("run-7", Mirrored(there, (), HELD))) == Mirrored(there, (), HELD)
    unknown = go_on(Mirrored(there), BEGIN, True)
    assert isinstance(unknown, Over)
    assert "its ranks may still live" in unknown.sentence
    assert isinstance(go_on(Mirrored(replace(job(Phase.DONE), store_loss=StoreLoss.HOLD)), BEGIN, True), Standing)
    assert held(HELD) == HELD
    assert held(HELD._replace(store_loss=StoreLoss.FENCE)) is held(None) is None
    with pytest.raises(BadRecord, match="the roster is that of 3"):
        decode("run-7", raw("run-7", Mirrored(there, (), HELD._replace(round=Round(3)))))


def test_larger_rounds_win_and_within_one_the_later_phase() -> None:
    order = [job(Phase.FORMING), job(Phase.RUNNING), job(Phase.STOPPING), job(Phase.FAILED), job(Phase.FORMING, n=5)]
    for i, a in enumerate(order):
        assert [newer(a, b) for b in order] == [i > k for k in range(len(order))]


HISTORIES = st.lists(
    st.tuples(st.integers(1, 40).map(Round), st.integers(-1, 30)), max_size=20, unique_by=lambda x: x[0]
)


@given(HISTORIES, st.integers(1, 40), st.integers(0, 31))
def test_what_is_left_out_tells_no_step_more(history: list[tuple[Round, int]], n: int, step: int) -> None:
    """A step is stale by the whole history exactly when it is by what is kept of it."""
    whole = tuple(sorted(history))
    origin = Origin("r", n, step)
    ruled = [judge(origin, "r", steps(entries(Mirrored(BEGIN, some)))).accepted for some in (whole, needed(whole))]
    assert ruled[0] == ruled[1]


@given(HISTORIES, st.integers(0, 31))
def test_what_is_left_out_tells_no_step_of_how_many_ranks_it_is(history: list[tuple[Round, int]], step: int) -> None:
    whole = tuple(sorted(history))
    sizes = tuple((n, 1 + n % 5) for n, _ in whole)
    kept = decode("r", raw("r", Mirrored(replace(BEGIN, round=Round(40)), whole, worlds=sizes)))
    wrote = [ranks_that_wrote(step, sized(entries(one))) for one in (Mirrored(BEGIN, whole, worlds=sizes), kept)]
    assert wrote[0] == wrote[1]


def test_a_copy_that_knows_no_numbers_of_ranks_is_read() -> None:
    value = to_value("r", Mirrored(job(Phase.FAILED), ((Round(1), -1),), worlds=((Round(1), 4),)))
    assert decode("r", json.dumps(value).encode()).worlds == ((Round(1), 4),)
    del value["resumed_worlds"]
    assert decode("r", json.dumps(value).encode()) == Mirrored(job(Phase.FAILED), ((Round(1), -1),))


def test_of_too_many_rounds_the_newest_are_kept() -> None:
    history: Resumes = tuple((Round(n), n) for n in range(1, 3 * MOST_ROUNDS))
    assert needed(history) == history[-MOST_ROUNDS:]


def raw(run_id: str, mirrored: Mirrored) -> bytes:
    return json.dumps(to_value(run_id, mirrored), indent=1).encode()


@pytest.mark.parametrize("phase", Phase)
def test_it_survives_its_bytes(phase: Phase) -> None:
    mirrored = Mirrored(job(phase), ((Round(1), -1), (Round(3), 150)))
    assert decode("run-7", raw("run-7", mirrored)) == mirrored
    later = Mirrored(mirrored.job, (*mirrored.history, (Round(9), 200)))  # it has closed since that state was seen
    assert decode("run-7", raw("run-7", later)) == mirrored


def test_what_is_held_against_hosts_survives_its_bytes() -> None:
    bar = Bar("gpu07~1", "gpu_ecc: x", 100, 3700, 1, 100, "run-7/3", 1)
    for bars in (None, (), (bar, bar._replace(host="gpu08~2", until=0))):
        mirrored = Mirrored(job(Phase.FAILED), bars=bars)
        assert decode("run-7", raw("run-7", mirrored)) == mirrored
    before = {name: value for name, value in to_value("run-7", mirrored).items() if name != "hosts"}
    assert decode("run-7", json.dumps(before).encode()).bars is None, "an older remuster knew of none"


def test_the_newest_that_count_are_kept() -> None:
    bars = [Bar(f"h{i}", "x", i, 0, 1, i, "r/1") for i in range(50)]
    lifted = Bar("h99", "x", 99, 0, 0, 99, "operator")  # with a clean record
    assert [bar.host for bar in worth_keeping([*bars, lifted])] == [f"h{i}" for i in range(49, 49 - MOST_KEPT, -1)]


GOOD_JOB: dict[str, Any] = json.loads(json.dumps(to_value("x", Mirrored(job(Phase.FAILED)))["job"]))
GOOD = to_value("run-7", Mirrored(job(Phase.FAILED), ((Round(1), -1), (Round(3), 150))))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"v": 2}, "written by a newer remuster"),
        ({"v": None}, "field 'v'"),
        ({"run_id": "other"}, "it is that of run 'other'"),
        ({"run_id": 7}, "field 'run_id' is int"),
        ({"job": None}, "it holds no job"),
        ({"job": []}, "field 'job' is list"),
        ({"job": {"v": 1}}, "job: field 'phase'"),
        ({"job": {**GOOD_JOB, "round": -1}}, "field 'round' is -1"),
        ({"job": {**GOOD_JOB, "spent": [["hardware", -5]]}}, "'spent' is -5"),
        ({"job": {**GOOD_JOB, "memory": {"fingerprint": "", "step": 1, "free": 0, "row": -1}}}, "field 'row' is -1"),
        ({"resumed_rounds": [1]}, "no list of rounds"),
        ({"resumed_rounds": [3, 1]}, "no list of rounds"),
        ({"resumed_rounds": [1, 5]}, "is 5, not one of 1 to 4"),
        ({"resumed_steps": [-2, 1]}, "is -2"),
        ({"resumed_steps": ["a", 1]}, "is str, expected int"),
        ({"resumed_rounds": list(range(1, 200))}, "has 199 entries"),
        ({"hosts": 7}, "field 'hosts' is int"),
        ({"hosts": ["gpu07"]}, "holds something else than objects"),
        ({"hosts": [{"host": "gpu07"}]}, "hosts: field 'since' is NoneType"),
        ({"hosts": [{}] * 99}, "has 99 entries"),
    ],
)
def test_what_is_no_copy_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRecord, match=says):
        decode("run-7", json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        b" " * (MAX_BYTES + 1),
        raw("run-7", Mirrored(job(Phase.DONE)))[:-40],
    ],
)
def test_torn_bytes_are_refused(bad: bytes) -> None:
    with pytest.raises(BadRecord):
        decode("run-7", bad)


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3),
)


@given(NONSENSE)
def test_nonsense_in_any_field_ends_in_words_or_in_a_job(nonsense: object) -> None:
    for name in GOOD:
        try:
            assert decode("run-7", json.dumps({**GOOD, name: nonsense}).encode()).job.round >= 1
        except BadRecord:
            continue
