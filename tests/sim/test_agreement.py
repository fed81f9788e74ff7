"""Machines that see different checkpoints: stories of a round's resume point, random schedules, and planted faults."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sim.agents import Agent
from sim.chunks import CHUNK, chunks, total
from sim.plants import sees
from sim.rules import Actions, Rules, altered
from sim.scene import Scene
from sim.test_plants import caught_by
from sim.views import RULE
from sim.world import Config, World, drawn, held, in_places, with_newcomers

from remuster.agent import node
from remuster.agent import node_words as words
from remuster.agent.node_state import NodeState
from remuster.rendezvous import leader, leader_state, leader_words
from remuster.rendezvous.agreement import Agreement
from remuster.rendezvous.asked import Asked, Found, Sight, decode_sight, encode_sight
from remuster.rendezvous.records import ResumePoint
from remuster.rendezvous.store import KeyValue, Range, WatchBatch

SCHEDULES = 60
PLANTED = 100
THREE = {"n0": 1, "n1": 1, "n2": 1}


def viewed(nodes: dict[str, int], low: int, high: int, **kinds: str) -> Scene:
    """Play a job whose machines see the checkpoints as ``kinds`` says once round 1 has saved some."""
    scene = Scene(nodes, low, high)
    limits = scene.world.cfg.limits._replace(look_s=20.0)
    scene.world.cfg = replace(scene.world.cfg, views=1.0, fixed_views=True, limits=limits, steps=400)
    scene.world.work.steps = 400
    scene.until_training(1)
    scene.until(lambda: len(scene.world.work.checkpoints) >= 3)
    for name, kind in kinds.items():
        scene.world.views.kinds[scene.world.injector.home[name].name] = kind
    return scene


def lacks(scene: Scene, name: str, *which: int) -> None:
    """Let a machine lack some of the checkpoints, counted from the newest."""
    machine = scene.world.injector.home[name].name
    scene.world.views.kinds[machine] = "local"
    steps = list(reversed(scene.world.work.checkpoints))
    for i, step in enumerate(steps):
        scene.world.views.states[machine, step] = "lacks" if i in which else "has"


def resumed(scene: Scene) -> int:
    job = scene.world.truth.job
    assert job is not None
    assert job.resume is not None
    return job.resume.step


def fail_still(scene: Scene, name: str) -> list[int]:
    """End the round without another checkpoint; return what there is, newest first."""
    scene.world.work.groups[1].broken_at = scene.world.now
    steps = list(reversed(scene.world.work.checkpoints))
    scene.fail_rank(name)
    return steps


def test_the_newest_that_every_member_has() -> None:
    scene = viewed(THREE, 3, 3)
    steps = fail_still(scene, "n1")
    lacks(scene, "n2", 0, 1)
    scene.until_training(2)
    assert resumed(scene) == steps[2]
    assert scene.world.stats["look: lacks"] == 1, "what it lacks besides is not asked about"


def test_a_replacement_that_lacks_the_newest() -> None:
    scene = viewed(THREE, 2, 2)
    steps = list(reversed(scene.world.work.checkpoints))
    lacks(scene, "n2", 0)
    scene.power_off("n1")
    scene.until_training(2)
    assert scene.job()[-1].startswith("R(2) from a checkpoint on n0 n2")
    assert resumed(scene) == steps[1]


def test_nothing_for_all_ends_the_job_in_words() -> None:
    scene = viewed({"n0": 1, "n1": 1}, 2, 2, n1="away")
    scene.fail_rank("n0")
    scene.until_over()
    assert scene.job()[-1] == "X(2) exit 75"
    assert "node n1 lacks it" in scene.last_words("n0")


def test_who_has_none_is_left_out_where_a_spare_stands_by() -> None:
    scene = viewed(THREE, 2, 2, n1="away")
    scene.fail_rank("n0")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n2"


def test_one_that_does_not_answer_hangs_nobody() -> None:
    scene = viewed(THREE, 2, 3, n1="hangs")
    scene.fail_rank("n0")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n2"
    scene = viewed({"n0": 1, "n1": 1}, 2, 2, n1="hangs")
    scene.fail_rank("n0")
    scene.until_over()
    assert scene.job()[-1] == "X(2) exit 75"
    assert "n1 cannot load a checkpoint that others have: node n1 gave no answer in time" in scene.last_words("n0")


def test_a_leader_that_sees_none() -> None:
    scene = viewed({"n0": 1, "n1": 1}, 2, 2, n0="away")
    assert scene.leader() == "n0"
    scene.fail_rank("n1")
    scene.until_over()
    assert scene.job()[-1] == "X(2) exit 75"
    assert "which chooses, sees no checkpoint it could resume" in scene.last_words("n1")


def asked_now(scene: Scene, after: int = 0) -> bool:
    job = scene.world.truth.job
    return job is not None and job.asked is not None and job.asked.token > after


def test_a_leader_that_dies_midway_is_followed_by_one_that_asks_anew() -> None:
    scene = viewed(THREE, 3, 3)
    steps = fail_still(scene, "n1")
    lacks(scene, "n1", 0)
    first = scene.leader()
    scene.until(lambda: asked_now(scene))
    assert scene.world.truth.job is not None
    assert scene.world.truth.job.asked is not None
    token = scene.world.truth.job.asked.token
    scene.power_off(first)
    scene.begin(first, at=scene.world.now + 25.0)
    scene.until(lambda: asked_now(scene, token))
    scene.until_training(2)
    assert resumed(scene) == steps[1]


@pytest.mark.parametrize("how", ["power", "partition"])
def test_a_node_that_goes_midway_is_replaced_by_one_that_is_asked(how: str) -> None:
    scene = viewed(THREE, 2, 2)
    steps = fail_still(scene, "n0")
    lacks(scene, "n2", 0)
    scene.world.views.kinds[scene.world.injector.home["n1"].name] = "hangs"  # so that it is midway
    scene.until(lambda: asked_now(scene))
    (scene.power_off if how == "power" else scene.cut_off)("n1")
    scene.until_training(2)
    assert scene.job()[-1].startswith("R(2) from a checkpoint on n0 n2")
    assert resumed(scene) == steps[1]


def of_seed(seed: int) -> Config:
    """Draw a job whose machines see different checkpoints."""
    rng = Random(-17 - seed)
    cfg = with_newcomers(in_places(drawn(rng), rng), rng)
    cfg = held(cfg) if rng.random() < 0.2 else cfg
    limits = cfg.limits._replace(look_s=rng.choice((6.0, 20.0)))
    return replace(cfg, limits=limits, views=rng.choice((0.2, 0.6)), budget=8)


played = chunks(of_seed)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    played(first)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_soak(first: int) -> None:
    for seed in range(first, first + 100):
        World(seed, None, of_seed(seed)).play()


def test_no_invariant_holds_by_default() -> None:
    _, stats = total(played(first) for first in range(0, SCHEDULES, CHUNK))
    least = {
        "rounds formed": 100,
        "answers checked": 100,
        "look: lacks": 20,
        "look: differs": 10,
        "looks that hang": 5,
        "resumed from an older one": 5,
        "launches ended DONE": 5,
    }
    assert {name: stats[name] for name, count in least.items() if stats[name] < count} == {}


# --- plants -----------------------------------------------------------------------------------------------------------
def _asks_nobody(_agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    return leader.step(s, altered(event, question=None) if isinstance(event, leader_words.Resumed) else event)


def _all_agree(_agent: Agent, kv: KeyValue) -> KeyValue:
    if "/looked/" not in kv.key:
        return kv
    return altered(kv, value=encode_sight(decode_sight(kv.value)._replace(found=Found.CAN)))


def _nothing_will_do(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    """Begin from nothing where no checkpoint is left for all."""
    s, actions = leader.step(s, event)
    seen = s.view.job()
    if s.agreement.apart and s.resumed is None and seen:
        every = tuple((f"step-{step:06d}", "not for all") for step in agent.world.work.checkpoints)
        nothing = leader_words.Resumed(event.at, seen.job.round, ResumePoint(), every, question=Asked())
        s = altered(s, agreement=Agreement(s.agreement.number), resumed=nothing)
    return s, actions


def _any_question(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    """Count what was said to another question, of an earlier leader's or about another checkpoint."""
    job, keys = s.view.job(), agent.world.cfg.keys
    asked = job.job.asked if job else None
    if asked is None or job is None:
        return leader.step(s, event)

    def taken(kv: KeyValue) -> KeyValue:
        if "/looked/" not in kv.key:
            return kv
        return altered(kv, value=encode_sight(decode_sight(kv.value)._replace(mark=asked.mark)))

    tree = {key: taken(kv) for key, kv in s.view.tree.items()}
    assert keys.job in tree
    s = altered(s, view=altered(s.view, tree=tree))
    match event:
        case leader_words.Elected(found=found):
            event = altered(event, found=Range(tuple(map(taken, found.items)), found.revision))
        case leader_words.Changed(batch=batch):
            event = altered(event, batch=WatchBatch(tuple(altered(e, kv=e.kv and taken(e.kv)) for e in batch.events)))
        case _:
            pass
    return leader.step(s, event)


def _blindly(_agent: Agent, s: NodeState, event: Any) -> tuple[NodeState, Actions]:
    """Answer before the look."""
    s, actions = node.step(s, event)
    for action in actions:
        if isinstance(action, words.Look):
            s, more = node.step(s, words.Looked(event.at, action.round, Sight(action.asked.mark, Found.CAN)))
            return s, (*(a for a in actions if a is not action), *more)
    return s, actions


def _silence_agrees(agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    """Take whoever has not answered when time is over for one that can."""
    s, actions = leader.step(s, event)
    seen = s.view.job()
    if s.agreement.apart and s.resumed is None and seen and seen.job.asked and seen.job.asked.name:
        asked, keys = seen.job.asked, agent.world.cfg.keys
        tree = dict(s.view.tree)
        for (name, inc), *_ in s.agreement.apart:
            mark = (asked.token, s.agreement.number)
            key = keys.report("looked", seen.job.round, name, inc)
            tree[key] = KeyValue(key, encode_sight(Sight(mark, Found.CAN)), 1, 1)
        s = altered(s, view=altered(s.view, tree=tree), agreement=altered(s.agreement, apart=()))
    return s, actions


PLANTS = (
    Rules("agreement: nobody is asked", leader=_asks_nobody),
    Rules("agreement: from nothing where none is left for all", leader=_nothing_will_do),
    Rules("agreement: whoever answers agrees", leader=sees(_all_agree)),
    Rules("agreement: answers to any question count", leader=_any_question),
    Rules("agreement: who is silent agrees", leader=_silence_agrees),
    Rules("agreement: nodes answer before they look", node=_blindly),
)


@pytest.mark.parametrize("rules", PLANTS, ids=lambda rules: rules.name)
def test_plant_is_caught(rules: Rules) -> None:
    caught = next(filter(None, (caught_by(rules, seed, of_seed(seed)) for seed in range(PLANTED))), None)
    assert caught, f"{rules.name}: not caught in {PLANTED} schedules"
    assert caught.name == RULE, caught
