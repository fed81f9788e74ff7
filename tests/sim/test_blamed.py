"""Nodes that a verdict blames: stories of their check, random schedules, and wrong readings, planted and caught."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from sim.agents import Agent
from sim.chunks import CHUNK, chunks, total
from sim.plants import sees
from sim.rules import Rules, altered
from sim.scene import Scene
from sim.test_plants import caught_by
from sim.world import Config, World, drawn, held, in_places, with_newcomers

from remuster.rendezvous.records import Round, decode_job, decode_node, encode
from remuster.rendezvous.store import KeyValue

SCHEDULES = 100
PLANTED = 100
RULE = "17 gate"
THREE = {"n0": 1, "n1": 1, "n2": 1}


def blaming(nodes: dict[str, int], low: int, high: int, check: str, limit_s: float = 30.0) -> Scene:
    """Play a job in which every failure is laid on its node, whose check ends as ``check`` says."""
    scene = Scene(nodes, low, high)
    limits = scene.world.cfg.limits._replace(check_s=limit_s)
    scene.world.cfg = replace(scene.world.cfg, blames=1.0, check=check, limits=limits)
    scene.until_training(1)
    return scene


def forming_s(scene: Scene, n: int) -> float:
    """Return how long round ``n`` took to form."""
    times = {line[8:].split()[0].rstrip(","): float(line[:6]) for line in reversed(scene.world.truth.chronicle)}
    return times[f"R({n})"] - times[f"F({n})"]


def test_a_blamed_node_takes_part_when_its_check_has_passed() -> None:
    scene = blaming({"n0": 1, "n1": 1}, 2, 2, "passes")
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n1"
    assert scene.world.stats["runs after its check"] == 1
    assert scene.world.truth.job is not None
    assert scene.world.truth.job.blamed == ()


def test_a_spare_takes_its_place_while_it_is_checked() -> None:
    scene = blaming(THREE, 2, 2, "is slow")
    scene.world.work.steps = 400
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n2"
    assert forming_s(scene, 2) < 15.0  # of a pause of up to 8 s
    scene.until(scene.world.now + 60.0)  # its check has passed meanwhile
    scene.power_off("n2")
    scene.until_training(3)
    assert scene.job()[-1] == "R(3) from a checkpoint on n0 n1"
    assert scene.world.stats["runs after its check"] == 1


def test_a_check_that_never_ends_is_not_waited_for_longer_than_its_limit() -> None:
    scene = blaming({"n0": 1, "n1": 1}, 2, 2, "hangs")
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n1"
    assert 29.0 <= forming_s(scene, 2) < 41.0
    assert scene.world.stats["runs unchecked when time is over"] == 1


def test_a_limit_beyond_the_join_timeout_ends_no_job() -> None:
    scene = blaming({"n0": 1, "n1": 1}, 2, 2, "hangs", limit_s=200.0)  # the join timeout is 60 s
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n1"


def test_a_node_that_fails_its_check_is_never_chosen_and_is_named() -> None:
    scene = blaming({"n0": 1, "n1": 1}, 2, 2, "fails")
    scene.fail_rank("n1")
    scene.until_over()
    assert scene.job()[-1] == "X(2) exit 75"
    assert "only 1 of at least 2 nodes were ready after 60 s" in scene.last_words("n0")
    assert "n1 failed the node check (GPU 0 does not answer)" in scene.last_words("n0")
    scene = blaming(THREE, 2, 2, "fails")
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1].startswith("R(2) from a checkpoint on n0 n2")


def test_a_successor_of_the_leader_waits_for_the_check_anew() -> None:
    scene = blaming(THREE, 3, 3, "hangs")
    scene.fail_rank("n1")
    scene.until(scene.world.now + 15.0)
    assert scene.job()[-1].startswith("F(2)")
    scene.power_off("n0")
    assert scene.agent("n1")
    scene.begin("n0", at=scene.world.now + 20.0)
    scene.until_training(2)
    assert scene.world.stats["runs unchecked when time is over"] >= 1


def test_a_node_that_comes_back_is_checked_before_it_takes_part_again() -> None:
    scene = blaming({"n0": 1, "n1": 1}, 2, 2, "passes")
    scene.power_off("n1")
    scene.until(scene.world.now + 30.0)
    assert scene.job()[-1].startswith("F(2)")
    scene.begin("n1", at=scene.world.now)
    scene.until_training(2)
    assert scene.world.stats["runs after its check"] == 1


def test_who_stands_aside_is_taken_when_others_are_too_few() -> None:
    scene = blaming(THREE, 2, 3, "passes")
    scene.world.cfg = replace(scene.world.cfg, asides=1.0)
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n2 spare n1"
    scene.power_off("n2")
    scene.until_training(3)
    assert scene.job()[-1] == "R(3) from a checkpoint on n0 n1"


def of_seed(seed: int) -> Config:
    """Draw a job whose failures are mostly laid on nodes."""
    rng = Random(-11 - seed)
    cfg = with_newcomers(in_places(drawn(rng), rng), rng)
    cfg = held(cfg) if rng.random() < 0.2 else cfg
    return replace(cfg, limits=cfg.limits._replace(check_s=rng.choice((5.0, 30.0))), blames=0.7, budget=8)


played = chunks(of_seed)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    played(first)


def test_a_node_of_a_launch_that_has_ended_takes_no_part_in_another() -> None:
    """Its join's answer is lost, and when it looks again another launch has begun with another command line."""
    World(469, None, of_seed(469)).play()


def test_no_invariant_holds_by_default() -> None:
    _, stats = total(played(first) for first in range(0, SCHEDULES, CHUNK))
    least = {
        "rounds formed": 300,
        "blamed": 100,
        "runs after its check": 50,
        "runs unchecked when time is over": 10,
        "a check that fails": 10,
        "a check that hangs": 10,
        "launches ended DONE": 10,
    }
    assert {name: stats[name] for name, count in least.items() if stats[name] < count} == {}


def _nobody_is_blamed(_agent: Agent, kv: KeyValue) -> KeyValue:
    return altered(kv, value=encode(altered(decode_job(kv.value), blamed=()))) if kv.key.endswith("/job") else kv


def _all_are_fit(_agent: Agent, kv: KeyValue) -> KeyValue:
    return altered(kv, value=encode(altered(decode_node(kv.value), unfit=""))) if "/nodes/" in kv.key else kv


def _no_pause(_agent: Agent, kv: KeyValue) -> KeyValue:
    return altered(kv, value=encode(altered(decode_job(kv.value), pause=0))) if kv.key.endswith("/job") else kv


def _checked_already(_agent: Agent, kv: KeyValue) -> KeyValue:
    if "/nodes/" not in kv.key:
        return kv
    return altered(kv, value=encode(altered(decode_node(kv.value), checked=Round(10**6))))


PLANTS = (
    Rules("gate: nobody is blamed", leader=sees(_nobody_is_blamed)),
    Rules("gate: whoever is here has been checked", leader=sees(_checked_already)),
    Rules("gate: who fails is let pass", leader=sees(_all_are_fit)),
    Rules("gate: no pause", leader=sees(_no_pause)),
)


@pytest.mark.parametrize("rules", PLANTS, ids=lambda rules: rules.name)
def test_plant_is_caught(rules: Rules) -> None:
    caught = next(filter(None, (caught_by(rules, seed, of_seed(seed)) for seed in range(PLANTED))), None)
    assert caught, f"{rules.name}: not caught in {PLANTED} schedules"
    assert caught.name == RULE, caught
