"""A node's word that its ranks go on from where they resumed: written once, while they run."""

from __future__ import annotations

from node_tables import INC, KEYS, ME, in_round, ok, put, run, said, written

from remuster.agent import node_words as words
from remuster.agent.node_state import Ranks
from remuster.rendezvous.records import Round
from remuster.rendezvous.store import Compare, Field
from remuster.rendezvous.writes import Kind

WORD = words.Reentered(110.0, Round(3), b'{"v":1,"steps":20,"by":"steps"}')
KEY = KEYS.report("reentered", Round(3), ME, INC)


def test_it_is_written_once() -> None:
    state, out = run(in_round(), WORD, words.Tick(110.1))
    assert said(out) == ["reentered(3)"]
    write = written(out, Kind.REENTERED)
    assert put(write, KEY) == WORD.words
    assert write.txn.guards == (Compare(KEYS.node(ME), Field.LEASE, INC),)
    state, out = run(state, ok(110.2, Kind.REENTERED, 3), words.Tick(110.3))
    assert (out, state.reentered) == ([], b"")


def test_it_is_written_again_when_nobody_knows_what_became_of_it() -> None:
    state, _ = run(in_round(), WORD)
    state, out = run(state, words.Wrote(110.2, Kind.REENTERED, Round(3), INC, None), words.Tick(120.0))
    assert said(out) == ["reentered(3)"]


def test_word_of_another_round_or_of_dead_ranks_is_dropped() -> None:
    _, out = run(in_round(), WORD._replace(round=Round(2)))
    assert out == []
    _, out = run(in_round(ranks=Ranks.NONE, told=True, facts=()), WORD)
    assert "reentered(3)" not in said(out)


def test_a_lost_lease_takes_it_along() -> None:
    state, _ = run(in_round(pending=frozenset({"reentered"})), WORD, words.LeaseLost(111.0))
    assert state.reentered == b""
