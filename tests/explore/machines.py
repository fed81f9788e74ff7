"""The product's two machines behind numbers: each (state, event) is stepped once, and its answer is remembered.

States are first brought into one form: times are "now" or "long ago", and what no rule looks at (the text of facts,
stamps for records) is left out. That form is a value of the product's own state class, so the next step is the
product's, too.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from remuster.agent import node
from remuster.agent.node_state import NodeState, Settings
from remuster.health.evidence import Fault
from remuster.rendezvous import leader_words
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.records import Incarnation, Job, NodeId, Phase, Round
from remuster.rendezvous.records import Node as Record
from remuster.rendezvous.snapshot import Snapshot
from remuster.rendezvous.writes import Own, Write

from .rules import Rules
from .setting import Setting
from .values import KEYS, NOW, OVERDUE, Pool

GRACE_S, WAIT_S, LEAVE_S, NEVER_S = 2.0, 5.0, 15.0, 1e6
SAID = (Fault("something"),)
LIMITS = leader_words.Limits(last_call_s=WAIT_S, join_timeout_s=NEVER_S, gather_s=WAIT_S)

Answer = tuple[int, tuple[Any, ...]]


def form(s: NodeState) -> NodeState:
    """Bring a node's state into the one form. Its short pauses are over: their Tick is sent in the same step."""
    return replace(
        s,
        facts=SAID if s.facts else (),
        words=b"words" if s.words else b"",
        waits=None,
        not_before=0.0,
        campaign_at=0.0,
        out_since=NOW,
        stands_since=NOW,
        held_since=NOW,
        started_at=NOW,
        leave_by=NOW + LEAVE_S if s.leaving else 0.0,
        kill_at=NOW + GRACE_S if s.kill_at else 0.0,
    )


def leader_form(s: Leader, at: float) -> Leader:
    """Bring a leader's state into the one form, after an event at ``at``."""

    def since(when: float) -> float:
        return NOW if when == at else OVERDUE if at - when >= WAIT_S else when

    n = s.phase[1] if s.phase else 0
    return replace(
        s,
        since=since(s.since),
        enough_since=None if s.enough_since is None else since(s.enough_since),
        stamps=leader_words.Stamps(),
        asked=s.asked if s.asked and s.asked[1] >= n else None,
        concluded=s.concluded if s.concluded and s.concluded.round >= n else None,
        resumed=s.resumed if s.resumed and s.resumed.round >= n else None,
        view=replace(s.view, revision=0),
    )


class Machines:
    """One search's machines, under one set of rules."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self.rules = rules
        self.nodes: Pool[NodeState] = Pool()
        self.leaders: Pool[Leader] = Pool()
        self.writes: Pool[Write] = Pool()
        self.values: Pool[Any] = Pool()  # keys, batches, events and asks that are on their way
        self.settings = tuple(self._settings(setting, i) for i in range(len(setting.nodes)))
        self._node_steps: dict[Any, Answer] = {}
        self._leader_steps: dict[Any, Answer] = {}
        self.steps = 0  # really taken

    def _settings(self, setting: Setting, i: int) -> Settings:
        name, later = setting.names[i], setting.nodes[i] in setting.later
        record = Record(Incarnation(0), f"machine-{i}", "boot", name, 1, Round(0))
        begin = Job(Phase.FORMING, Round(1), setting.low, setting.high, "2" if later else "1")
        return Settings(
            *(KEYS, NodeId(name), record, begin, later),
            grace_s=GRACE_S if setting.grace else 0.0,
            patience_s=NEVER_S,
            held_s=NEVER_S,
            stall_s=NEVER_S,
        )

    def value(self, value: Any) -> int:
        return self.values.number(value, (type(value), value))

    # -- the node machine

    def begin(self, i: int) -> Answer:
        state, actions = node.begin(self.settings[i], NOW)
        return self.nodes.number(form(state)), actions

    def node(self, number: int, event: Any) -> Answer:
        key = (number, type(event), event)  # tuples of two types may be equal
        known = self._node_steps.get(key)
        if known is None:
            self.steps += 1
            state, actions = self.rules.node(self.nodes[number], event)
            known = self._node_steps[key] = self.nodes.number(form(state)), actions
        return known

    # -- the job machine

    def elected(self, own: Own) -> int:
        return self._lead(Leader(own, LIMITS, Snapshot(KEYS)), NOW)

    def leader(self, number: int, event: Any) -> Answer:
        key = (number, type(event), event)
        known = self._leader_steps.get(key)
        if known is None:
            self.steps += 1
            state, actions = self.rules.leader(self.leaders[number], event)
            known = self._leader_steps[key] = self._lead(state, event.at), actions
        return known

    def _lead(self, state: Leader, at: float) -> int:
        s = leader_form(state, at)
        tree = s.view.tree
        seen = tuple(tree[key] for key in sorted(tree))
        s = replace(s, view=replace(s.view, tree=MappingProxyType({kv.key: kv for kv in seen})))
        waited = (s.since, s.enough_since, s.asked, s.concluded, s.resumed)
        return self.leaders.number(s, (s.own, s.token, s.busy, s.writing, s.phase, *waited, seen))
