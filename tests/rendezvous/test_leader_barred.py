"""What the job machine makes of hosts in quarantine: who is chosen, what is said, and what is not ended for anybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuster.rendezvous import leader as machine
from remuster.rendezvous import leader_words as words
from remuster.rendezvous.admission import Admit, mark
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.records import Incarnation, Job, Member, Node, NodeId, Phase, Roster, Round, encode
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.store import KeyValue, Range
from remuster.rendezvous.writes import Kind, Own

KEYS = Keys("run")
A, B, C = (NodeId(name) for name in "abc")
INC = {A: Incarnation(1), B: Incarnation(2), C: Incarnation(3)}
LIMITS = words.Limits(5.0, 60.0, 8.0, Admit.NOW, 10.0)
FORMING = Job(Phase.FORMING, Round(1), 1, 3, "one")
RUNNING = replace(FORMING, phase=Phase.RUNNING, formed=Round(1), master="10.0.0.1:500")
TOKEN = 9


def member(node: NodeId) -> Member:
    return Member(node, INC[node], f"m-{node}", 1, "10.0.0.1")


def elected(
    job: Job, nodes: tuple[NodeId, ...], ready: int, *more: KeyValue, checked: int = 0, unfit: str = ""
) -> words.Elected:
    """Let the agent of ``a`` lead at 0 s; ``checked`` and ``unfit`` is what ``c`` has said."""
    records: list[KeyValue] = []
    for n in nodes:
        node = Node(INC[n], f"m-{n}", "b", "10.0.0.1", 1, Round(ready), host=f"h{n}~")
        node = replace(node, checked=Round(checked), unfit=unfit) if n == C else node
        records.append(KeyValue(KEYS.node(n), encode(node), 5, 5, INC[n]))
    leader = KeyValue(KEYS.leader, b"a@1", TOKEN, TOKEN, INC[A])
    return words.Elected(0.0, TOKEN, Range((KeyValue(KEYS.job, encode(job), 4, 8), leader, *records, *more), 20))


def after(*events: words.Event) -> list[words.Action]:
    """Return all that the machine wants."""
    state, out = Leader(Own(A, INC[A]), LIMITS, Snapshot(KEYS)), list[words.Action]()
    for event in events:
        state, actions = machine.step(state, event)
        out += actions
    return out


def barred(*nodes: NodeId, at: float = 0.0) -> words.Barred:
    return words.Barred(at, frozenset(f"h{node}~" for node in nodes))


def ends_round(actions: list[words.Action]) -> bool:
    return any(isinstance(a, words.Submit) and a.write.kind is Kind.STOP for a in actions)


def running(job: Job = RUNNING, *, checked: int = 0, unfit: str = "") -> words.Elected:
    """Round 1 runs on a and b since 0 s; c stands by and is ready."""
    roster = KeyValue(KEYS.roster(Round(1)), encode(Roster(Round(1), (member(A), member(B)))), 7, 7)
    started = [KeyValue(KEYS.report("started", Round(1), n, INC[n]), b"{}", 10, 10) for n in (A, B)]
    return elected(job, (A, B, C), 2, roster, *started, checked=checked, unfit=unfit)


def test_a_round_is_ended_for_a_newcomer_once_it_has_run_and_stood_by() -> None:
    assert not ends_round(after(running(), words.Tick(9.0)))
    assert ends_round(after(running(), words.Tick(9.0), words.Tick(20.0)))


def test_it_is_not_ended_while_a_member_is_barred_for_the_group_would_not_grow() -> None:
    kept = (barred(B), running(), words.Tick(9.0), words.Tick(20.0))
    assert not ends_round(after(*kept))
    assert ends_round(after(*kept, barred(at=21.0), words.Tick(40.0)))


def test_a_barred_newcomer_ends_nothing() -> None:
    assert not ends_round(after(barred(C), running(), words.Tick(9.0), words.Tick(20.0)))


@pytest.mark.parametrize(
    ("checked", "unfit", "ends"),
    [(0, "", False), (1, "", True), (1, "GPU 3 is lost", False)],
    ids=["owes", "", "unfit"],
)
def test_a_blamed_newcomer_ends_a_round_only_when_its_check_lets_it_in(checked: int, unfit: str, ends: bool) -> None:
    """Red when ``admit`` does not ask whether a newcomer owes its check."""
    blamed = replace(RUNNING, blamed=((mark(C, "m-c"), 1),))
    newcomer = running(blamed, checked=checked, unfit=unfit)
    assert ends_round(after(newcomer, words.Tick(9.0), words.Tick(20.0))) is ends


def test_one_that_stands_aside_ends_nothing() -> None:
    apart = replace(RUNNING, aside=(mark(C, "m-c"),))
    assert not ends_round(after(running(apart), words.Tick(9.0), words.Tick(20.0)))


def test_barred_hosts_are_not_chosen_and_are_named_while_they_are_waited_for() -> None:
    forming = elected(replace(FORMING, min_nodes=2), (A, B, C), 1)

    def chosen(*events: words.Event) -> set[NodeId]:
        (ask,) = (a for a in after(*events) if isinstance(a, words.SelectResume))
        return {m.node for m in ask.roster.members}

    assert chosen(forming) == {A, B, C}
    assert chosen(barred(B), forming, words.Tick(6.0)) == {A, C}
    (wait,) = after(barred(B, C), forming)
    assert isinstance(wait, words.Wake)
    assert "1 of 2 nodes are ready; in quarantine: hb~, hc~" in wait.reason
