"""States, records and answers that the tables of the node machine's tests are made of. Not a test module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import NodeState, Ranks, Settings
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.records import (
    Cause,
    Incarnation,
    Job,
    Member,
    Node,
    NodeId,
    Outcome,
    Phase,
    ResumePoint,
    Roster,
    Round,
    Terms,
    encode,
)
from remuster.rendezvous.store import KeyValue, Put, Range, TxnResult
from remuster.rendezvous.writes import Kind, Seen, Write

KEYS = Keys("run")
ME, INC, OTHER = NodeId("a"), Incarnation(7), Incarnation(8)
RECORD = Node(Incarnation(0), "m-a", "boot", "10.0.0.1", 2, Round(0))
BEGIN = Job(Phase.FORMING, Round(1), 1, 2, "one")
SAID = (("--nnodes", "1:2"), ("the script", "train.py"))
SETTINGS = Settings(KEYS, ME, RECORD, BEGIN, fresh=False, grace_s=5.0, patience_s=60.0, held_s=17.0, terms=SAID)
FORMING = replace(BEGIN, round=Round(3), formed=Round(2))
RUNNING = replace(FORMING, phase=Phase.RUNNING, formed=Round(3), resume=ResumePoint("c", 1))
MEETING = replace(RUNNING, master="10.0.0.1:500")
STOPPING = replace(MEETING, phase=Phase.STOPPING, resume=None, cause=Cause("failed", "b", 8))
DONE = replace(RUNNING, phase=Phase.DONE, outcome=Outcome(0, "done"))
FAILED = replace(RUNNING, phase=Phase.FAILED, outcome=Outcome(3, "a bug"))
MEMBERS = (Member(ME, INC, "m-a", 2, "10.0.0.1"), Member(NodeId("b"), OTHER, "m-b", 1, "10.0.0.2"))
ROSTER = Roster(Round(3), MEMBERS)
SECOND = Roster(Round(3), MEMBERS[::-1])


def kv(job: Job, mod: int) -> KeyValue:
    return KeyValue(KEYS.job, encode(job), 1, mod)


def own(ready: int, lease: int = INC, mod: int = 5) -> KeyValue:
    record = replace(RECORD, inc=Incarnation(lease), ready=Round(ready))
    return KeyValue(KEYS.node(ME), encode(record), 4, mod, lease)


def terms(by: str = "b", **changed: str) -> KeyValue:
    said = tuple((what, changed.get(what.rpartition(" ")[2], value)) for what, value in SAID)
    return KeyValue(KEYS.terms, encode(Terms(NodeId(by), said)), 1, 1)


def roster_kv(roster: Roster) -> KeyValue:
    return KeyValue(KEYS.roster(roster.round), encode(roster), 11, 11)


LEADER = KeyValue(KEYS.leader, b"b@8", 3, 3, OTHER)


def joined(job: Job, **changes: Any) -> NodeState:
    """Return an agent that has joined, knows a leader, and sees ``job`` at revision 10."""
    state = NodeState(SETTINGS, inc=INC, mod=5, ready=Round(3), job=Seen(job, 10), leader=LEADER, launch=job.launch)
    return replace(state, **changes)


def in_round(job: Job = MEETING, roster: Roster = ROSTER, **changes: Any) -> NodeState:
    """Return a member of round 3 whose two ranks run."""
    live: dict[str, Any] = {
        "roster": roster,
        "seen": Round(3),
        "ranks": Ranks.LIVE,
        "round": Round(3),
        "started_at": 100.0,
        "alive": frozenset({0, 1}),
        "told": False,
    }
    return joined(job, **(live | changes))


def run(state: NodeState, *events: words.Event) -> tuple[NodeState, list[words.Action]]:
    """Give the machine the events in order; return all it wants but to be woken."""
    out: list[words.Action] = []
    for event in events:
        state, actions = node.step(state, event)
        out += [a for a in actions if not isinstance(a, words.Wake)]
    return state, out


def said(actions: list[words.Action]) -> list[str]:
    """Name the actions; a write by its row and round."""
    return [
        f"{a.write.kind.value}({a.write.round})" if isinstance(a, words.Submit) else type(a).__name__.lower()
        for a in actions
    ]


def written(actions: list[words.Action], kind: Kind) -> Write:
    return next(a.write for a in actions if isinstance(a, words.Submit) and a.write.kind is kind)


def put(write: Write, key: str) -> bytes:
    return next(op.value for op in write.txn.then if isinstance(op, Put) and op.key == key)


def ok(at: float, kind: Kind, n: int, *ranges: KeyValue | None, revision: int = 20) -> words.Wrote:
    found = tuple(Range((r,) if r else (), revision) for r in ranges)
    return words.Wrote(at, kind, Round(n), INC, TxnResult(True, revision, found))
