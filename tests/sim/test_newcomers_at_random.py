"""Random schedules of jobs that take newcomers into a running round; and wrong readings of that, planted and caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sim.agents import Agent
from sim.chunks import CHUNK, chunks, total
from sim.invariants import Violation
from sim.plants import sees
from sim.rules import Actions, Rules, altered
from sim.scene import Scene
from sim.test_plants import caught_by
from sim.world import Config, drawn

from remuster.rendezvous import leader
from remuster.rendezvous.admission import Admit
from remuster.rendezvous.leader_state import Leader
from remuster.rendezvous.leader_words import Limits, Submit, Tick, Wake
from remuster.rendezvous.membership import Order
from remuster.rendezvous.records import Phase, Round, decode_job, decode_node, encode
from remuster.rendezvous.store import KeyValue

SCHEDULES = 100
PLANTED = 150
RULE = "14 newcomers"


def of_seed(seed: int) -> Config:
    """Draw a job that has room to grow, and time."""
    rng = Random(-7 - seed)
    admit, order = rng.choice((Admit.NOW, Admit.NOW, Admit.CHECKPOINT)), rng.choice(tuple(Order))
    limits = Limits(2.0, 60.0, 3.0, admit, rng.uniform(1.0, 5.0), order)
    nodes = rng.randint(2, 4)
    cfg = replace(drawn(rng), nodes=nodes, min_nodes=rng.randint(1, 2), max_nodes=nodes + 1, limits=limits)
    return replace(cfg, steps=300, fault_phase_s=300.0, faults=25, budget=8)


played = chunks(of_seed)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    played(first)


def test_no_invariant_holds_by_default() -> None:
    faults, stats = total(played(first) for first in range(0, SCHEDULES, CHUNK))
    least = {
        "rounds formed": 400,
        "rounds ended for a newcomer": 60,
        "rounds ended at a checkpoint": 20,
        "comes and goes, and is needed": 10,
        "orders checked": 100,
        "launches ended DONE": 30,
    }
    assert {name: stats[name] for name, count in least.items() if stats[name] < count} == {}
    assert min(faults["coming and going"], faults["late join"], faults["leave"]) >= 30


def unguarded(action: Any) -> Any:
    """Take from a write the guard over the members' ends, which holds whatever the leader sees."""
    if not isinstance(action, Submit):
        return action
    txn = action.write.txn
    return altered(
        action, write=altered(action.write, txn=altered(txn, guards=tuple(g for g in txn.guards if not g.end)))
    )


def seen_through(change: Any, write: Any = unguarded) -> Any:
    """Make a leader that decides about newcomers, and about nothing else, on a picture altered by ``change``."""

    def step(_agent: Agent, s: Leader, event: Any) -> tuple[Leader, Actions]:
        arrived = s.arrived
        s, actions = leader.step(s, event)
        seen = s.view.job()
        if not s.token or seen is None or seen.job.phase is not Phase.RUNNING or seen.mod == s.busy:
            return s, actions
        tree = {key: kv for key, kv in ((kv.key, change(kv)) for kv in s.view.tree.values()) if kv is not None}
        other, more = leader.step(altered(s, view=altered(s.view, tree=tree), arrived=arrived), Tick(event.at))
        if any(isinstance(a, Submit) and a.write.reason.endswith("can join") for a in more):
            return altered(other, view=s.view), tuple(write(a) for a in more)
        return altered(s, arrived=other.arrived), (*actions, *(a for a in more if isinstance(a, Wake)))

    return step


def _anybody(kv: KeyValue) -> KeyValue:
    if "/nodes/" not in kv.key:
        return kv
    return altered(kv, value=encode(altered(decode_node(kv.value), ready=Round(10**6))))


def _finished(kv: KeyValue) -> KeyValue | None:
    return None if "/finished/" in kv.key else kv


def _forgiven(_agent: Agent, kv: KeyValue) -> KeyValue:
    return altered(kv, value=encode(altered(decode_job(kv.value), flaps=()))) if kv.key.endswith("/job") else kv


def _with(**changes: Any) -> Any:
    """Make a leader that has other limits than the launch was given."""

    def step(_agent: Agent, s: Leader, event: Any) -> tuple[Leader, Actions]:
        return leader.step(altered(s, limits=altered(s.limits, **changes)), event)

    return step


PLANTS = (
    (Rules("those that come and go are not held back", leader=sees(_forgiven)), RULE),
    (Rules("a round is ended as soon as it runs", leader=_with(admit_after_s=0.0)), RULE),
    (Rules("a round is ended for one that has just come", leader=_with(gather_s=0.0)), RULE),
    (Rules("the checkpoint is not waited for", leader=_with(admit=Admit.NOW)), RULE),
    (Rules("host names are not looked at", leader=_with(order=Order.STICKY)), "15 order"),
)


def _slow_spare(rules: Rules) -> Scene:
    """A spare stands still while a round closes without it, though there is room."""
    scene = Scene({"n0": 1, "n1": 1, "n2": 1}, 1, 2, admit=Admit.NOW, rules=rules)
    scene.world.cfg = replace(scene.world.cfg, limits=scene.world.cfg.limits._replace(admit_after_s=0.5, gather_s=0.5))
    scene.world.work.steps = 200
    scene.until_training(1)
    scene.agent("n2").pause()
    scene.leave("n1")
    scene.until(lambda: scene.job()[-1] == "R(2) from a checkpoint on n0")
    scene.until(scene.world.now + 4.0)
    return scene


def _one_has_finished(rules: Rules) -> Scene:
    """The ranks of one member have ended, and those of the other still save, say, when a newcomer is there."""
    scene = Scene({"n0": 1, "n1": 1}, 2, 3, admit=Admit.NOW, rules=rules)
    scene.world.work.steps = 300
    scene.until_training(1)
    scene.world.work.end(next(r for r in scene.world.work.living() if r.agent.name == "n1"), 0)
    scene.begin("n2", at=scene.world.now + 1.0)
    scene.until(scene.world.now + 60.0)
    return scene


RARE = (
    (_slow_spare, _anybody, "R(2) from a checkpoint on n0"),
    (_one_has_finished, _finished, "R(1) on n0 n1"),
)


@pytest.mark.parametrize(("story", "change", "stands"), RARE)
def test_what_chance_seldom_finds(story: Callable[[Rules], Scene], change: Any, stands: str) -> None:
    assert story(Rules()).job()[-1] == stands
    with pytest.raises(Violation, match=RULE):
        story(Rules("planted", leader=seen_through(change)))


def test_a_leader_that_sees_no_end_ends_no_round_that_has_one() -> None:
    """The store compares it once more: a view may be late."""
    blind = Rules("late", leader=seen_through(_finished, write=lambda action: action))
    assert _one_has_finished(blind).job()[-1] == "R(1) on n0 n1"


def test_a_spare_that_was_too_slow_for_a_round_joins_when_it_answers() -> None:
    scene = _slow_spare(Rules())
    scene.agent("n2").thaw()
    scene.until_training(3)
    assert scene.job()[-3:] == ["S(2) admit on n2", "F(3)", "R(3) from a checkpoint on n0 n2"]


@pytest.mark.parametrize(("rules", "by"), PLANTS, ids=lambda value: getattr(value, "name", ""))
def test_plant_is_caught(rules: Rules, by: str) -> None:
    for seed in range(PLANTED):
        caught = caught_by(rules, seed, of_seed(seed))
        if caught:
            print(f"{rules.name}: seed {seed} caught by [{caught.name}]")
            assert caught.name == by, caught
            return
    pytest.fail(f"{rules.name}: not caught in {PLANTED} schedules")
