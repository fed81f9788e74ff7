"""Whether all nodes can load a checkpoint, and what follows: tables of the pure core, and the job machine over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuster.rendezvous import leader as machine
from remuster.rendezvous import leader_words as words
from remuster.rendezvous.agreement import Agreement, Bar, Verdict, left_out, refused, sights, weigh
from remuster.rendezvous.asked import (
    HOOKS,
    MAX_BYTES,
    MOST_STEPS,
    Asked,
    Found,
    Sight,
    decode_sight,
    encode_sight,
)
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.records import (
    Incarnation,
    Job,
    Member,
    Node,
    NodeId,
    Phase,
    ResumePoint,
    Round,
    decode_job,
    encode,
)
from remuster.rendezvous.snapshot import Report, Snapshot
from remuster.rendezvous.store import Delete, KeyValue, Put, Range, TxnResult, WatchBatch, WatchEvent
from remuster.rendezvous.writes import Kind, Own, Write

KEYS = Keys("run")
A, B, C, D = (NodeId(name) for name in "abcd")
INC = {A: Incarnation(1), B: Incarnation(2), C: Incarnation(3), D: Incarnation(4)}
TOKEN = 9
N = Round(2)
ASKED = Asked(TOKEN, 1, "step-20", 20, "manifest", 3, 300, "d", "1@2")
CAN, LACKS, DIFFERS, UNKNOWN = Found.CAN, Found.LACKS, Found.DIFFERS, Found.UNKNOWN


def member(node: NodeId) -> Member:
    return Member(node, INC[node], f"m-{node}", 1, "10.0.0.1")


def weighed(answers: dict[NodeId, Sight], *known: str, asked: Asked = ASKED) -> Verdict:
    return weigh(asked, (member(B), member(C)), {(n, INC[n]): sight for n, sight in answers.items()}, known)


def sight(found: Found, why: str = "", *steps: int, mark: tuple[int, int] = ASKED.mark) -> Sight:
    return Sight(mark, found, why, tuple((f"step-{step}", step) for step in steps))


# --- the words --------------------------------------------------------------------------------------------------------
def test_question_and_answer_survive_their_bytes() -> None:
    job = Job(Phase.FORMING, N, 1, 3, "one", asked=ASKED)
    assert decode_job(encode(job)) == job
    assert decode_job(encode(replace(job, asked=None))).asked is None
    told = sight(LACKS, "4 of 8 files are not there", 10, 5)
    assert decode_sight(encode_sight(told)) == told


def test_records_of_agents_that_ask_nothing_are_read() -> None:
    old = encode(Job(Phase.RUNNING, N, 1, 3, "one", formed=N, resume=ResumePoint("/c/s", 3)))
    for name in (b'"asked":null,', b'"name":"",'):
        assert name in old
        old = old.replace(name, b"")
    job = decode_job(old)
    assert job.asked is None
    assert job.resume == ResumePoint("/c/s", 3)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"v":1}',
        b'{"v":1,"token":1,"number":1,"found":"maybe","why":"","steps":[]}',
        b'{"v":1,"token":1,"number":1,"found":"can","why":"","steps":[["a"]]}',
        b'{"v":1,"token":-1,"number":1,"found":"can","why":"","steps":[]}',
        b" " * (MAX_BYTES + 1),
    ],
)
def test_what_is_no_answer_is_passed_over(raw: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_sight(raw)
    assert sights({(B, INC[B]): Report(raw, 1)}, ASKED) == {}


@given(st.text(max_size=400), st.lists(st.tuples(st.text(max_size=300), st.integers(0, 2**62)), max_size=80))
def test_answers_are_bounded(why: str, steps: list[tuple[str, int]]) -> None:
    raw = encode_sight(Sight((1, 2), LACKS, why, tuple(steps)))
    if len(raw) <= MAX_BYTES:
        assert len(decode_sight(raw).steps) <= MOST_STEPS


@pytest.mark.parametrize("mark", [(TOKEN, 2), (TOKEN + 1, 1), (TOKEN - 1, 1)])
def test_answers_to_another_question_do_not_count(mark: tuple[int, int]) -> None:
    reports = {(B, INC[B]): Report(encode_sight(sight(CAN, mark=mark)), 1)}
    assert sights(reports, ASKED) == {}


# --- weighing ---------------------------------------------------------------------------------------------------------
def test_who_can_who_cannot_who_is_silent() -> None:
    assert weighed({B: sight(CAN), C: sight(CAN)}) == Verdict()
    assert weighed({B: sight(CAN)}).silent == (member(C),)
    v = weighed({B: sight(LACKS, "2 of 3 files are not there", 10, 5), C: sight(CAN, "", 20)})
    assert v.within == ("step-10", "step-5")
    assert v.unable == (Bar((B, INC[B]), "node b lacks it: 2 of 3 files are not there", True),)
    (bar,) = weighed({B: sight(DIFFERS, "'w' has 3 bytes; its manifest says 4"), C: sight(CAN)}).unable
    assert bar == Bar((B, INC[B]), "node b has a bad one, or another: 'w' has 3 bytes; its manifest says 4")
    v = weighed({B: sight(UNKNOWN, "no answer"), C: sight(CAN)})
    assert v.unsure == (Bar((B, INC[B]), "node b cannot tell: no answer"),)


def test_the_next_one_is_one_that_all_who_could_not_have() -> None:
    v = weighed({B: sight(LACKS, "", 15, 10, 5), C: sight(DIFFERS, "", 20, 10, 5)})
    assert v.within == ("step-10", "step-5")
    a = refused(Agreement(number=4), ASKED, v, ())
    assert a is not None
    assert (a.number, a.within) == (5, ("step-10", "step-5"))
    assert [name for name, _ in a.against] == ["step-20"]
    again = refused(
        a, ASKED._replace(name="step-10", step=10), weighed({B: sight(LACKS, "", 5), C: sight(CAN)}), a.against
    )
    assert again is not None
    assert again.within == ("step-5",)
    assert {bar.who[0] for bar in again.unable} == {B, C}
    assert refused(again, ASKED, weighed({B: sight(LACKS), C: sight(CAN)}), again.against) is None, (
        "nothing older that B has"
    )
    apart = left_out(again, again.unable)
    assert (apart.against, apart.within, {bar.who[0] for bar in apart.apart}) == ((), None, {B, C})


def test_what_others_have_and_the_leader_has_not_seen() -> None:
    answers = {B: sight(CAN, "", 30, 20), C: sight(CAN, "", 40, 30, 20)}
    assert weighed(answers).newer == (("step-40", 40, C), ("step-30", 30, B))
    assert weighed(answers, "step-40", "step-30").newer == (), "the leader has refused them for itself"
    nothing = Asked(TOKEN, 1)
    assert weighed({B: sight(CAN, "", 5), C: sight(CAN)}, asked=nothing).newer == (("step-5", 5, B),)


# --- the job machine --------------------------------------------------------------------------------------------------
class Led:
    """A leader on ``a`` with some nodes in F(2), and the store's changes that it makes."""

    def __init__(self, *nodes: NodeId, low: int = 2, high: int = 0) -> None:
        self.revision, self.at, self.out = 20, 0.0, list[words.Action]()
        self.limits = words.Limits(1.0, 60.0, 8.0, look_s=100.0)
        self.state = Leader(Own(A, INC[A]), self.limits, Snapshot(KEYS))
        job = Job(Phase.FORMING, N, low, high or len(nodes), "one", first=N)
        self.tree = {KEYS.job: KeyValue(KEYS.job, encode(job), 4, 8)}
        self.tree[KEYS.leader] = KeyValue(KEYS.leader, b"a@1", TOKEN, TOKEN, INC[A])
        for node in nodes:
            self.tree[KEYS.node(node)] = self.node(node)
        self.take(words.Elected(0.0, TOKEN, Range(tuple(self.tree.values()), 20)))

    def node(self, node: NodeId) -> KeyValue:
        record = Node(INC[node], f"m-{node}", "b", "10.0.0.1", 1, N)
        return KeyValue(KEYS.node(node), encode(record), 5, 5, INC[node])

    def take(self, event: words.Event) -> None:
        self.state, actions = machine.step(self.state, event)
        self.out += actions

    def pop(self, kind: type[Any]) -> Any:
        found = [action for action in self.out if isinstance(action, kind)]
        assert found, self.out
        self.out = []
        return found[-1]

    def wait(self, seconds: float) -> None:
        self.at += seconds
        self.take(words.Tick(self.at))

    def search(self) -> words.SelectResume:
        self.wait(2.0)
        return self.pop(words.SelectResume)

    def choose(self, step: int, *refused: str) -> None:
        name = f"step-{step}" if step >= 0 else ""
        question = Asked(0, 0, name, step, "manifest", 3, 300, "d", "1@2") if name else Asked()
        point = ResumePoint(f"/c/{name}", step, "manifest", name=name) if name else ResumePoint()
        passed = tuple((one, "torn") for one in refused)
        self.take(words.Resumed(self.at, N, point, passed, question=question))

    def write(self, kind: Kind) -> Write:
        write: Write = self.pop(words.Submit).write
        assert write.kind is kind
        self.revision += 1
        put = write.txn.then[0]
        assert isinstance(put, Put)
        kv = KeyValue(put.key, put.value, 4, self.revision, put.lease or 0)
        self.take(words.Wrote(self.at, kind, TxnResult(True, self.revision, ())))
        self.see(kv)
        return write

    def see(self, kv: KeyValue) -> None:
        self.revision = max(self.revision, kv.mod_revision)
        self.take(words.Changed(self.at, WatchBatch((WatchEvent(kv.key, kv.mod_revision, kv),))))

    def ask(self) -> Asked:
        write = self.write(Kind.ASK)
        assert {(g.key, g.value) for g in write.txn.guards} >= {(KEYS.leader, TOKEN)}
        asked = decode_job(write.txn.then[0].value).asked  # type: ignore[union-attr]
        assert asked is not None
        return asked

    def answers(self, asked: Asked, **found: Sight) -> None:
        for name, one in found.items():
            node = NodeId(name)
            raw = encode_sight(one._replace(mark=asked.mark))
            self.revision += 1
            self.see(KeyValue(KEYS.report("looked", N, node, INC[node]), raw, self.revision, self.revision))

    def closed(self) -> Job:
        write = self.write(Kind.CLOSE)
        assert Delete(*KEYS.reports("looked", N)) in write.txn.then
        job = decode_job(write.txn.then[0].value)  # type: ignore[union-attr]
        assert job.asked is None
        return job

    def failed(self) -> tuple[int, str, str]:
        outcome = decode_job(self.write(Kind.FAIL).txn.then[0].value).outcome  # type: ignore[union-attr]
        assert outcome is not None
        return outcome.exit_code, outcome.cls, outcome.sentence


def test_a_round_closes_when_all_others_can() -> None:
    led = Led(A, B, C)
    led.search()
    led.choose(20)
    asked = led.ask()
    assert (asked.token, asked.name) == (TOKEN, "step-20")
    led.answers(asked, b=sight(CAN))
    assert not any(isinstance(a, words.Submit) for a in led.out), "c has not answered"
    led.answers(asked, c=sight(CAN))
    assert led.closed().resume == ResumePoint("/c/step-20", 20, "manifest", name="step-20")


def test_one_node_alone_asks_nobody() -> None:
    led = Led(A, low=1)
    led.search()
    led.choose(20)
    assert led.closed().resume.step == 20  # type: ignore[union-attr]


def test_without_a_directory_nothing_is_asked() -> None:
    led = Led(A, B)
    led.search()
    led.take(words.Resumed(led.at, N, ResumePoint()))
    assert led.closed().resume == ResumePoint()


def test_an_older_one_is_taken_when_one_node_lacks_the_newest() -> None:
    led = Led(A, B, C)
    led.search()
    led.choose(20)
    led.answers(led.ask(), b=sight(CAN, "", 20, 10), c=sight(LACKS, "it is not there (3 files)", 10, 5))
    ask = led.search()
    assert ask.within == ("step-10", "step-5")
    why = "node c lacks it: it is not there (3 files); is its mount away, or is the directory local to each node?"
    assert ask.against == (("step-20", why),)
    led.choose(10, "step-20")
    second = led.ask()
    assert second.number == 2
    led.answers(second, b=sight(CAN, "", 20, 10), c=sight(CAN, "", 10, 5))
    assert led.closed().resume.step == 10  # type: ignore[union-attr]


def test_it_never_begins_from_nothing_because_a_node_sees_nothing() -> None:
    led = Led(A, B)
    led.search()
    led.choose(20)
    led.answers(led.ask(), b=sight(LACKS, "it is not there (3 files)"))
    led.wait(2.0)
    code, cls, why = led.failed()
    assert (code, cls) == (75, "fs_transient")
    assert (
        "b cannot load a checkpoint that others have: node b lacks it: it is not there (3 files); is its mount away"
        in why
    )


def test_none_of_what_they_have_in_common_verifies() -> None:
    led = Led(A, B)
    led.search()
    led.choose(20)
    led.answers(led.ask(), b=sight(LACKS, "it is not there (3 files)", 10))
    led.search()
    led.choose(-1, "step-20", "step-10")
    led.wait(2.0)
    assert led.failed()[:2] == (75, "fs_transient")


def test_who_sees_nothing_is_left_out_where_others_suffice() -> None:
    led = Led(A, B, C, low=2, high=2)
    led.search()
    led.choose(20)
    asked = led.ask()
    led.answers(asked, b=sight(LACKS, "it is not there (3 files)"), c=sight(CAN, "", 20))
    led.wait(1.0)
    asked = led.ask()
    assert (asked.number, asked.name) == (2, "step-20"), "it is not verified again"
    led.answers(asked, c=sight(CAN, "", 20))
    assert led.closed().resume.step == 20  # type: ignore[union-attr]


def test_several_that_have_not_answered_are_named_together() -> None:
    led = Led(A, B, C)
    led.search()
    led.choose(20)
    led.ask()
    assert "waiting for b and c to say whether they can load step-20" in led.pop(words.Wake).reason


def test_who_does_not_answer_is_named_and_left_out_when_time_is_over() -> None:
    led = Led(A, B)
    led.search()
    led.choose(20)
    led.ask()
    led.wait(99.0)
    wake = led.pop(words.Wake)
    assert "waiting for b to say whether it can load step-20" in wake.reason
    led.wait(1.5)
    led.wait(1.0)
    code, _, why = led.failed()
    assert code == 75
    assert "gave no answer in time" in why


def test_a_newer_one_is_looked_for_once_and_then_passed_over_in_words() -> None:
    led = Led(A, B)
    led.search()
    led.choose(20)
    led.answers(led.ask(), b=sight(CAN, "", 30, 20))
    assert led.search().hints == (("step-30", 30, B),)
    led.choose(20)
    led.answers(led.ask(), b=sight(CAN, "", 30, 20))
    write = led.write(Kind.CLOSE)
    history = next(op.value for op in write.txn.then if isinstance(op, Put) and op.key == KEYS.history(N))
    assert b"node b has it, and the node that chooses does not see it" in history


def test_a_leader_that_sees_none_begins_nothing_while_another_has_one() -> None:
    led = Led(A, B)
    led.search()
    led.choose(-1)
    asked = led.ask()
    assert asked.name == ""
    led.answers(asked, b=sight(CAN, "", 30))
    led.search()
    led.choose(-1)
    led.answers(led.ask(), b=sight(CAN, "", 30))
    code, cls, why = led.failed()
    assert (code, cls) == (75, "fs_transient")
    assert "node b has step-30, and node a, which chooses, sees no checkpoint it could resume" in why


def test_from_nothing_when_no_node_has_any_that_the_leader_did_not_refuse() -> None:
    led = Led(A, B)
    led.search()
    led.choose(-1, "step-30")
    led.answers(led.ask(), b=sight(CAN, "", 30))
    assert led.closed().resume == ResumePoint()


def test_another_leaders_question_is_asked_anew_and_its_answers_do_not_count() -> None:
    led = Led(A, B)
    job = Job(Phase.FORMING, N, 2, 2, "one", first=N, asked=ASKED._replace(token=3))
    led.see(KeyValue(KEYS.job, encode(job), 4, 21))
    old = KeyValue(KEYS.report("looked", N, B, INC[B]), encode_sight(sight(CAN, mark=(3, 1))), 22, 22)
    led.see(old)
    led.search()
    led.choose(20)
    asked = led.ask()
    assert asked.token == TOKEN
    assert not any(isinstance(a, words.Submit) for a in led.out), "what was said to another leader does not count"
    led.answers(asked, b=sight(CAN))
    led.closed()


def test_a_node_that_joins_after_the_question_is_waited_for() -> None:
    led = Led(A, B, low=2, high=3)
    led.search()
    led.choose(20)
    asked = led.ask()
    led.see(led.node(C)._replace(mod_revision=30))
    led.answers(asked, b=sight(CAN))
    assert not any(isinstance(a, words.Submit) for a in led.out), "c is a member now, and has not answered"
    led.answers(asked, c=sight(CAN))
    led.closed()


def test_a_node_that_joins_late_has_its_whole_time_for_the_answer() -> None:
    """Red when the time counts from the question."""
    led = Led(A, B)
    led.search()
    led.choose(20)
    asked = led.ask()
    led.wait(50.0)
    led.see(led.node(B)._replace(value=encode(Node(INC[C], "m", "b", "10.0.0.1", 1, N)), lease=INC[C], mod_revision=30))
    led.wait(99.0)
    assert not any(isinstance(a, words.Submit) for a in led.out), "it has one second more"
    raw = encode_sight(sight(CAN, mark=asked.mark))
    led.see(KeyValue(KEYS.report("looked", N, B, INC[C]), raw, 31, 31))
    led.closed()


def test_what_the_leader_has_refused_for_itself_is_not_read_again() -> None:
    led = Led(A, B)
    led.search()
    led.choose(20, "step-30")
    led.answers(led.ask(), b=sight(LACKS, "", 10))
    assert [name for name, _ in led.search().against] == ["step-30", "step-20"]


def test_a_path_of_a_hook_that_one_node_lacks() -> None:
    led = Led(A, B)
    led.search()
    question = Asked(0, 0, "/scratch/one", 7, HOOKS)
    led.take(words.Resumed(led.at, N, ResumePoint("/scratch/one", 7), question=question))
    led.answers(led.ask(), b=sight(LACKS, "there is no '/scratch/one'", 7))
    led.wait(2.0)
    assert "there is no '/scratch/one'" in led.failed()[2]
