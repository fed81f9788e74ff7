"""Who is held back, who would join a running round, and when the leader ends one for a newcomer: tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuster.rendezvous import leader
from remuster.rendezvous.admission import (
    CALM_S,
    FLAPS,
    MOST,
    Admit,
    after,
    calmed,
    held_back,
    mark,
    muster,
    newcomers,
    pardon_s,
)
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.leader_words import (
    AwaitCheckpoint,
    Changed,
    CheckpointSeen,
    Elected,
    Limits,
    Submit,
    Tick,
    Wake,
)
from remuster.rendezvous.membership import Candidate, Order
from remuster.rendezvous.records import (
    MAX_FLAPS,
    Cause,
    Incarnation,
    Job,
    Member,
    Node,
    NodeId,
    Phase,
    Roster,
    Round,
    decode_job,
    encode,
)
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import KeyValue, Put, Range, WatchBatch, WatchEvent
from remuster.rendezvous.writes import Kind, Own


def member(word: str) -> Member:
    """Read "a" or "a:2" (slots)."""
    name, _, slots = word.partition(":")
    return Member(NodeId(name), Incarnation(ord(name[0])), f"m{name}-boot", int(slots or 1), f"10.0.0.{name}")


def roster(words: str) -> Roster:
    return Roster(Round(1), tuple(member(w) for w in words.split()))


def ready(words: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(member(word), joined) for joined, word in enumerate(words.split()))


def names(members: tuple[Member, ...]) -> str:
    return " ".join(m.node for m in members)


def flaps(words: str) -> tuple[tuple[str, int], ...]:
    """Read "a3 b1": so often has that node ended a round."""
    return tuple((mark(member(w[0]).node, member(w[0]).machine), int(w[1:])) for w in words.split())


@pytest.mark.parametrize(
    ("before", "kind", "node", "lasted", "then"),
    [
        ("", "lost", "a", 0.0, "a1"),
        ("", "leave", "b", 0.0, "b1"),
        ("", "fenced", "b", 0.0, "b1"),
        ("a1", "failed", "a", 0.0, "a1"),  # its program failed: that is the verdict's
        ("a1", "guardian", "a", 0.0, "a1"),
        ("a1", "admit", "c", 0.0, "a1"),
        ("b2", "lost", "a", 0.0, "a1 b2"),  # the last offender first
        ("b2 a1", "lost", "a", 0.0, "a2 b2"),
        ("a2 b3", "lost", "a", CALM_S, "a2 b2"),  # a calm while lowers all counts, then this one is added
        ("a1 b3", "failed", "b", 3 * CALM_S - 1, "b1"),
        ("a6", "lost", "a", 0.0, "a6"),
    ],
)
def test_counts(before: str, kind: str, node: str, lasted: float, then: str) -> None:
    who = member(node)
    assert after(flaps(before), Cause(kind, who.node, who.inc), roster("a b"), lasted) == flaps(then)


def test_another_incarnation_is_not_blamed_and_no_cause_is_no_offence() -> None:
    assert after((), Cause("lost", "a", 7), roster("a b"), 0.0) == ()
    assert after(flaps("a1"), None, roster("a b"), 0.0) == flaps("a1")


def test_counts_are_bounded() -> None:
    many = roster(" ".join("abcdefghijkl"))
    counts: tuple[tuple[str, int], ...] = ()
    for m in many.members * 2:
        counts = after(counts, Cause("lost", m.node, m.inc), many, 0.0)
    assert [who for who, _ in counts] == [mark(m.node, m.machine) for m in many.members[: -MAX_FLAPS - 1 : -1]]
    for _ in range(9):
        counts = after(counts, Cause("lost", "a", ord("a")), many, 0.0)
    assert counts[0] == (mark(NodeId("a"), "ma"), MOST)


def test_a_reboot_does_not_make_another_node_and_another_machine_does() -> None:
    assert mark(NodeId("a"), "m1-boot1-f0") == mark(NodeId("a"), "m1-boot2-f0")
    assert mark(NodeId("a"), "m1-boot1-f0") != mark(NodeId("a"), "m2-boot1-f0")
    assert mark(NodeId("a"), "m1") != mark(NodeId("b"), "m1")


@pytest.mark.parametrize(
    ("count", "lasted", "held"),
    [
        (FLAPS - 1, 0.0, False),
        (FLAPS, 0.0, True),
        (FLAPS, CALM_S - 1, True),
        (FLAPS, CALM_S, False),
        (FLAPS + 2, 2 * CALM_S, True),
        (MOST, (MOST - FLAPS + 1) * CALM_S, False),
    ],
)
def test_who_is_held_back_and_until_when(count: int, lasted: float, held: bool) -> None:
    counts = flaps(f"a{count}")
    here = ready("b a")
    assert held_back(calmed(counts, lasted), here) == (here[1:] if held else ())
    assert pardon_s(counts, member("b")) == 0.0
    assert (lasted < pardon_s(counts, member("a"))) is held


@pytest.mark.parametrize(
    ("last", "here", "size", "counts", "members", "spares"),
    [
        ("a b", "a b c", (1, 3), "", "a b c", ""),
        ("a b", "a b c", (1, 3), "c3", "a b", "c"),  # it stands by
        ("a b", "a b c", (3, 3), "c3", "a b c", ""),  # … unless there are too few without it
        ("a b", "a c d", (2, 2), "c3", "a d", "c"),
        ("a b", "a c d", (3, 4), "c3 d3", "a c d", ""),
        ("a", "a c d", (2, 4), "c3 d3", "a c", "d"),  # no more of them than are needed
        ("a b", "a b", (1, 2), "b3", "a", "b"),  # a member that was fenced again and again
        ("a b:2", "a c", (2, 2), "c3", "a", "c"),  # slots are what they are
        (None, "a b", (1, 2), "a3", "b", "a"),
    ],
)
def test_muster(last: str | None, here: str, size: tuple[int, int], counts: str, members: str, spares: str) -> None:
    held = held_back(flaps(counts), ready(here))
    chosen = muster(None if last is None else roster(last), ready(here), size, Order.STICKY, held)
    assert (names(chosen.members), names(chosen.spares)) == (members, spares)


@pytest.mark.parametrize(
    ("running", "here", "most", "new"),
    [
        ("a b", "a b", 4, ""),
        ("a b", "a b c", 4, "c"),
        ("a b", "a b c d e", 4, "c d"),
        ("a b", "a b c", 2, ""),  # it is full: c is a spare
        ("a:1 b:3", "a:1 b:3 c:2", 3, "c"),  # growth takes anybody
    ],
)
def test_newcomers(running: str, here: str, most: int, new: str) -> None:
    assert names(newcomers(roster(running), ready(here), most, Order.STICKY)) == new


def test_a_newcomer_that_asks_for_a_place_is_one_if_it_is_free() -> None:
    a, b, c = (member(w)._replace(place=p) for w, p in (("a", 0), ("b", 2), ("c", 1)))
    running, here = Roster(Round(1), (a, b)), (Candidate(c, 3),)
    assert newcomers(running, here, 3, Order.STICKY) == (c,)
    assert newcomers(running, (Candidate(c._replace(place=2), 3),), 3, Order.STICKY) == ()


# --- the leader -------------------------------------------------------------------------------------------------------
KEYS = Keys("run")
A, B, C = (member(name) for name in "abc")
JOB = Job(Phase.RUNNING, Round(5), 1, 3, "one", formed=Round(5), master="a:1")
NOW = Limits(1.0, 60.0, 5.0, Admit.NOW, 30.0)
AT_CHECKPOINT = NOW._replace(admit=Admit.CHECKPOINT)


def node(m: Member, ready_for: int, mod: int = 7) -> KeyValue:
    record = Node(m.inc, m.machine, "boot", m.address, m.slots, Round(ready_for))
    return KeyValue(KEYS.node(m.node), encode(record), mod, mod, m.inc)


def led(limits: Limits, job: Job = JOB, **late: int) -> Leader:
    """Return a leader that has seen, at 100.0, a and b start round 5."""
    kvs = [KeyValue(KEYS.job, encode(job), 1, 20), KeyValue(KEYS.leader, b"a@61", 6, 6, A.inc), node(A, 5), node(B, 5)]
    kvs.append(KeyValue(KEYS.roster(Round(5)), encode(Roster(Round(5), (A, B))), 20, 20))
    kvs += [KeyValue(KEYS.report("started", Round(5), m.node, m.inc), b"{}", 21, 21) for m in (A, B)]
    found = Range(tuple(sorted(kvs, key=lambda kv: kv.key)), 30)
    state, actions = leader.step(Leader(Own(A.node, A.inc), limits, Snapshot(KEYS)), Elected(100.0, 6, found))
    assert actions == ()
    return state


def change(at: float, *kvs: KeyValue, gone: tuple[str, ...] = (), revision: int = 40) -> Changed:
    events = [WatchEvent(kv.key, revision, kv) for kv in kvs] + [WatchEvent(key, revision, None) for key in gone]
    return Changed(at, WatchBatch(tuple(events)))


def play(state: Leader, *events: Any) -> tuple[Leader, list[Any]]:
    actions: list[Any] = []
    for event in events:
        state, new = leader.step(state, event)
        actions += new
    return state, actions


def ended_for(actions: list[Any]) -> str:
    """Return the node for which a round was ended, '' when none was."""
    writes = [a.write for a in actions if isinstance(a, Submit)]
    for write in writes:
        assert (write.kind, write.round) == (Kind.STOP, 5)
        put = write.txn.then[0]
        assert isinstance(put, Put)
        job = decode_job(put.value)
        assert (job.phase, job.cause and job.cause.kind) == (Phase.STOPPING, "admit")
        assert job.cause
        return str(job.cause.node)
    return ""


@pytest.mark.parametrize(
    ("limits", "job", "ready_for", "at", "expected"),
    [
        (NOW, JOB, 6, 131.0, "c"),
        (NOW, JOB, 5, 131.0, "c"),  # it stood by when the round closed
        (NOW, JOB, 4, 131.0, ""),  # it has not yet said that its old ranks are dead
        (NOW, JOB, 6, 129.0, ""),  # the round has run for less than 30 s
        (NOW._replace(admit=Admit.RESTART), JOB, 6, 500.0, ""),
        (NOW, replace(JOB, max_nodes=2), 6, 500.0, ""),
        (NOW, replace(JOB, flaps=flaps("c3")), 6, 500.0, ""),
        (NOW, replace(JOB, flaps=flaps("c3")), 6, 100.0 + CALM_S, "c"),
        (NOW, replace(JOB, flaps=flaps("c2")), 6, 131.0, "c"),
    ],
)
def test_now(limits: Limits, job: Job, ready_for: int, at: float, expected: str) -> None:
    _, actions = play(led(limits, job), change(110.0, node(C, ready_for)), Tick(at))
    assert ended_for(actions) == expected


def test_a_newcomer_is_alive_before_a_round_is_ended_for_it() -> None:
    state, actions = play(led(NOW), change(200.0, node(C, 6)), Tick(204.9))
    assert ended_for(actions) == ""
    assert [a.at for a in actions if isinstance(a, Wake)][-1] == 205.0
    _, actions = play(state, Tick(205.0))
    assert ended_for(actions) == "c"
    gone, actions = play(state, change(204.95, gone=(KEYS.node(C.node),), revision=41), Tick(300.0))
    assert actions == []
    _, actions = play(gone, change(300.0, node(C, 6), revision=42), Tick(304.0))  # it has come again: from the start
    assert ended_for(actions) == ""


def test_no_round_is_ended_for_a_newcomer_once_a_member_has_finished() -> None:
    finished = KeyValue(KEYS.report("finished", Round(5), B.node, B.inc), b"{}", 41, 41)
    _, actions = play(led(NOW), change(110.0, node(C, 6), finished), Tick(500.0))
    assert actions == []


def test_a_round_of_which_not_all_have_started_is_not_ended_for_a_newcomer() -> None:
    state = led(NOW)
    tree = {key: kv for key, kv in state.view.tree.items() if "/started/" not in key or "/b@" not in key}
    state = replace(state, view=replace(state.view, tree=tree), stamps=state.stamps._replace(started=None))
    _, actions = play(state, change(110.0, node(C, 6)), Tick(500.0))
    assert actions == []


def test_who_is_held_back_is_named_with_the_time_of_its_pardon() -> None:
    _, actions = play(led(NOW, replace(JOB, flaps=flaps("c4"))), change(110.0, node(C, 6)))
    (wake,) = actions
    assert (wake.at, wake.reason) == (
        100.0 + 2 * CALM_S,
        "round 5: c stands by: it has ended too many rounds by coming and going",
    )


def test_at_the_next_checkpoint_after_the_newcomer_was_seen() -> None:
    state, actions = play(led(AT_CHECKPOINT), change(110.0, node(C, 6)), Tick(131.0))
    assert [(a.round, a.again) for a in actions if isinstance(a, AwaitCheckpoint)] == [(5, False)]
    state, actions = play(state, Tick(132.0))
    assert actions == []  # one look at a time
    state, (again,) = play(state, CheckpointSeen(133.0, Round(5), 100))  # it was there before
    assert (again.again, ended_for([again])) == (True, "")
    state, (again,) = play(state, CheckpointSeen(138.0, Round(5), None))  # a hung file system
    state, (again,) = play(state, CheckpointSeen(143.0, Round(5), 100))
    _, actions = play(state, CheckpointSeen(148.0, Round(5), 150))
    assert ended_for(actions) == "c"


def test_the_first_checkpoint_of_all_is_the_next_one() -> None:
    state, _ = play(led(AT_CHECKPOINT), change(110.0, node(C, 6)), Tick(131.0), CheckpointSeen(133.0, Round(5), -1))
    _, actions = play(state, CheckpointSeen(138.0, Round(5), 50))
    assert ended_for(actions) == "c"


def test_a_look_that_fails_is_not_what_stood_before() -> None:
    state, _ = play(led(AT_CHECKPOINT), change(110.0, node(C, 6)), Tick(131.0))
    state, (again,) = play(state, CheckpointSeen(133.0, Round(5), None))
    assert again.again
    assert again.reason.endswith("; the checkpoints could not be looked at")
    state, actions = play(state, CheckpointSeen(138.0, Round(5), 100))
    assert ended_for(actions) == ""


def test_looking_ends_with_the_newcomer_and_begins_anew_with_the_next() -> None:
    state, _ = play(led(AT_CHECKPOINT), change(110.0, node(C, 6)), Tick(131.0), CheckpointSeen(133.0, Round(5), 100))
    state, actions = play(state, change(134.0, gone=(KEYS.node(C.node),), revision=41))
    state, more = play(state, CheckpointSeen(138.0, Round(5), 150))  # the answer to the last look
    assert actions + more == []
    state, actions = play(state, change(140.0, node(C, 6), revision=42), Tick(145.0))
    assert [a.again for a in actions if isinstance(a, AwaitCheckpoint)] == [False]
    state, actions = play(state, CheckpointSeen(146.0, Round(5), 150))
    assert ended_for(actions) == ""
