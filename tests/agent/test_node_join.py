"""The node machine: how an agent enters a run, waits for its name, or is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_tables import (
    BEGIN,
    DONE,
    FAILED,
    FORMING,
    INC,
    KEYS,
    LEADER,
    ME,
    OTHER,
    RECORD,
    RUNNING,
    SAID,
    SETTINGS,
    STOPPING,
    joined,
    kv,
    ok,
    own,
    put,
    run,
    said,
    terms,
    written,
)

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import NodeState
from remuster.rendezvous.records import (
    Incarnation,
    Job,
    Round,
    Terms,
    decode_job,
    decode_node,
    decode_terms,
    encode,
)
from remuster.rendezvous.store import KeyValue
from remuster.rendezvous.writes import Kind


# --- joining --------------------------------------------------------------------------------------------------------
def test_joins_an_empty_run_and_makes_the_job() -> None:
    state, actions = node.begin(SETTINGS, 0.0)
    assert said(list(actions)) == ["grant"]
    state, out = run(state, words.Granted(0.1, INC))
    assert said(out) == ["reread"]
    state, out = run(state, words.Rereading(0.2, True, 1, None, None, None))
    assert said(out) == ["join(1)"]
    assert decode_job(put(written(out, Kind.JOIN), KEYS.job)) == BEGIN
    assert decode_terms(put(written(out, Kind.JOIN), KEYS.terms)) == Terms(ME, SAID)
    state, out = run(state, ok(0.3, Kind.JOIN, 1, kv(BEGIN, 2), None, revision=2))
    assert (said(out), state.joined, state.ready) == (["watch", "lead(0)"], True, 1)


@pytest.mark.parametrize(
    ("job", "ready"), [(FORMING, 3), (RUNNING, 4), (STOPPING, 4), (replace(FAILED, launch="zero"), 4)]
)
def test_joins_with_what_it_can_promise(job: Job, ready: int) -> None:
    state = NodeState(SETTINGS, inc=INC, pending=frozenset({"reread"}))
    _, out = run(state, words.Rereading(1.0, True, 9, kv(job, 9), None, None, terms()))
    record = decode_node(put(written(out, Kind.JOIN), KEYS.node(ME)))
    assert (record.ready, record.inc) == (ready, INC)


@pytest.mark.parametrize(
    ("job", "code"), [(DONE, 0), (FAILED, 3), (replace(DONE, launch="zero"), 2)], ids=["done", "failed", "another's"]
)
def test_a_run_that_is_over_is_not_joined(job: Job, code: int) -> None:
    state = NodeState(SETTINGS, inc=INC, pending=frozenset({"reread"}))
    _, out = run(state, words.Rereading(1.0, True, 9, kv(job, 9), None, None))
    assert [a.code for a in out if isinstance(a, words.Exit)] == [code]


REREADING = NodeState(SETTINGS, inc=INC, pending=frozenset({"reread"}))


def held(ready: int = 1, lease: int = OTHER, mod: int = 4) -> KeyValue:
    """Return this node's name in the hands of another machine."""
    record = replace(RECORD, inc=Incarnation(lease or 9), machine="m-z", address="10.0.0.9", ready=Round(ready))
    return KeyValue(KEYS.node(ME), encode(record), 4, mod, lease)


def ends(actions: list[words.Action]) -> list[tuple[int, str]]:
    return [(a.code, a.sentence) for a in actions if isinstance(a, words.Exit)]


def test_an_earlier_agent_of_the_same_machine_is_revoked() -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, None, own(1, OTHER), None))
    assert [a.inc for a in out if isinstance(a, words.RevokeOld)] == [OTHER]


def test_a_name_that_another_machine_holds_is_waited_for_as_long_as_a_lease() -> None:
    state, actions = node.step(REREADING, words.Rereading(1.0, True, 9, None, held(), None))
    waits = [a.reason for a in actions if isinstance(a, words.Wake)]
    assert waits[0] == "node name 'a' is held by another machine (10.0.0.9); waiting for 17 s until its lease ends"
    state, out = run(state, words.Tick(17.0), words.Rereading(17.1, True, 9, None, held(), None))
    assert said(out) == ["reread"]
    _, out = run(state, words.Tick(17.6), words.Rereading(17.9, True, 9, None, held(), None))
    ((code, sentence),) = ends(out)
    assert code == 69
    assert sentence == (
        "node name 'a' is held by another machine (10.0.0.9), whose agent is alive, and this one is 10.0.0.1; "
        "give this node another --local-addr, or stop the other one"
    )
    _, out = run(state, words.Tick(17.6), words.Rereading(17.9, True, 9, None, None, None))
    assert said(out) == ["reread", "join(1)"]


@pytest.mark.parametrize("later", [held(ready=2, mod=12), held(lease=99, mod=12)], ids=["wrote", "came"])
def test_a_holder_that_is_seen_to_live_is_not_waited_for(later: KeyValue) -> None:
    state, _ = run(REREADING, words.Rereading(1.0, True, 9, None, held(), None))
    _, out = run(state, words.Tick(1.3), words.Rereading(1.4, True, 12, None, later, None))
    assert [code for code, _ in ends(out)] == [69]


def test_what_the_store_was_away_for_does_not_count() -> None:
    state, _ = run(REREADING, words.Rereading(1.0, True, 9, None, held(), None), words.Tick(10.0))
    state, _ = run(state, words.Rereading(12.0, False), words.Tick(30.0))
    state, out = run(state, words.Rereading(30.1, True, 9, None, held(), None))
    assert ends(out) == []  # its lease began anew when the store came back
    _, out = run(state, words.Tick(59.8), words.Rereading(59.9, True, 9, None, held(), None))
    assert [code for code, _ in ends(out)] == [69]  # but nobody waits for ever


def test_a_name_that_hangs_on_no_lease_will_never_be_free() -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, None, held(lease=0), None))
    assert ends(out) == [
        (69, "/remuster/run/nodes/a hangs on no lease, so no agent wrote it: delete it and start again")
    ]


# --- what all nodes must be given alike -----------------------------------------------------------------------------
@pytest.mark.parametrize("job", [FORMING, RUNNING, STOPPING])
def test_another_command_line_is_refused_before_anything_else(job: Job) -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, kv(job, 9), held(), None, terms(script="other.py")))
    why = "this node was given the script train.py, the run (begun by node b) has other.py; give all nodes the same"
    ((code, sentence),) = ends(out)
    assert (code, sentence.startswith(why)) == (2, True)
    assert not [a for a in out if isinstance(a, words.Submit)]


def test_a_join_of_unknown_outcome_takes_nobody_into_another_launch() -> None:
    """It had been let into the launch before, whose end it never saw; what it was given, it was given for that one."""
    two = kv(replace(FORMING, launch="two"), 9)
    _, out = run(REREADING, words.Rereading(1.0, True, 9, two, own(3), LEADER, terms(script="other.py")))
    ((code, sentence),) = ends(out)
    assert (code, "has other.py; give all nodes the same" in sentence) == (2, True)
    state, out = run(REREADING, words.Rereading(1.0, True, 9, two, own(3), LEADER, terms()))
    assert (said(out), state.joined) == (["watch"], True)


def test_a_new_launch_has_its_own_terms() -> None:
    ended = replace(FAILED, launch="zero")
    _, out = run(REREADING, words.Rereading(1.0, True, 9, kv(ended, 9), None, None, terms(script="other.py")))
    assert decode_terms(put(written(out, Kind.JOIN), KEYS.terms)) == Terms(ME, SAID)


def test_terms_that_are_gone_let_nobody_in_but_those_that_were_in() -> None:
    _, out = run(REREADING, words.Rereading(1.0, True, 9, kv(FORMING, 9), None, None))
    ((code, sentence),) = ends(out)
    assert (code, "/remuster/run/terms is missing" in sentence) == (69, True)
    back = replace(REREADING, launch="one")
    _, out = run(back, words.Rereading(1.0, True, 9, kv(FORMING, 9), None, None))
    assert said(out) == ["join(3)"]


def test_an_answer_that_nobody_waits_for_joins_nothing() -> None:
    lost, out = run(joined(FORMING, pending=frozenset({"reread"})), words.LeaseLost(1.0))
    assert said(out) == ["grant"]
    _, out = run(lost, words.Rereading(1.1, True, 9, kv(FORMING, 9), None, None))
    assert out == []


def test_comes_back_to_its_own_launch_only() -> None:
    lost = NodeState(SETTINGS, inc=INC, launch="one", pending=frozenset({"reread"}))
    _, out = run(lost, words.Rereading(1.0, True, 9, kv(replace(FAILED, launch="two"), 9), None, None))
    assert [a.code for a in out if isinstance(a, words.Exit)] == [75]
    _, out = run(lost, words.Rereading(1.0, True, 9, kv(RUNNING, 9), None, None))
    assert said(out) == ["join(4)"]


def test_gives_up_when_the_store_stays_away() -> None:
    state, _ = node.begin(SETTINGS, 0.0)
    state, out = run(state, words.Granted(59.9, Incarnation(0)), words.Tick(60.1))
    assert [(a.code, a.revoke) for a in out if isinstance(a, words.Exit)] == [(69, False)]
