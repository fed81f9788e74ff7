"""Machines that hold the files of their own ranks alone: random schedules, those that found something, plants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sim.agents import Agent
from sim.chunks import CHUNK, chunks, total
from sim.parted import FILES, FIRST, NOTHING, WROTE, Parted, Save
from sim.plants import sees
from sim.rules import Actions, Rules, altered
from sim.scene import Scene
from sim.test_plants import caught_by
from sim.world import Config, World, drawn, in_places, with_newcomers

from remuster.rendezvous import leader, leader_state, leader_words
from remuster.rendezvous.asked import Found, Sight, decode_sight, encode_sight
from remuster.rendezvous.reader import LARGEST
from remuster.rendezvous.store import KeyValue

SCHEDULES = 60
PLANTED = 300


def of_seed(seed: int) -> Config:
    """Draw a job of more than one node, whose machines keep what their own ranks have written."""
    rng = Random(-19 - seed)
    cfg = with_newcomers(in_places(drawn(rng), rng), rng)
    most = max(2, cfg.max_nodes)
    least = most if cfg.static and cfg.min_nodes == cfg.max_nodes else cfg.min_nodes
    limits = cfg.limits._replace(look_s=20.0)
    cfg = replace(cfg, nodes=max(cfg.nodes, most), min_nodes=least, max_nodes=most)
    return replace(cfg, limits=limits, views=1.0, parted=True, budget=8)


played = chunks(of_seed)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    played(first)


@pytest.mark.drill  # for its length
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_more(first: int) -> None:
    for seed in range(first, first + 100):
        World(seed, None, of_seed(seed)).play()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(10_000, 14_000, 100))
def test_soak(first: int) -> None:
    for seed in range(first, first + 100):
        World(seed, None, of_seed(seed)).play()


FOUND = {
    14: "two agents of one machine share its files, and the rest lies on another one",
    52: "who chooses ran in the last round, which an earlier save knew nothing of",
    433: "one directory, where a torn first save lacks the file of the rank that chooses alone",
    599: "a node joined between choice and close, and went again",
    670: "of another number of ranks: one of its own two files is not a torn save",
}


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.get)
def test_found(seed: int) -> None:
    World(seed, None, of_seed(seed)).play()


def test_a_torn_first_save_of_which_who_chooses_has_nothing() -> None:
    """The file of rank 0 alone, where nothing records how many ranks there were, is not taken for all of it."""
    scene = Scene({"n0": 1, "n1": 1}, 2, 2, places={"n0": 1, "n1": 0})
    world = scene.world
    world.cfg = replace(world.cfg, views=1.0, parted=True, steps=400)
    world.views = views = Parted(world)
    views.shared = views.recorded = False
    scene.until(lambda: 1 in world.work.groups and world.work.groups[1].began_at is not None)
    assert scene.leader() == "n0"
    views.saves = {5: Save(5, 1, 2, ranks={views.disk(world.injector.home["n1"]): {0}})}
    scene.fail_rank("n1")
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) on n1 n0"


def test_no_invariant_holds_by_default() -> None:
    _, stats = total(played(first) for first in range(0, SCHEDULES, CHUNK))
    least = {
        "rounds formed": 100,
        "complete over all nodes": 300,
        "torn": 50,
        "parts chosen": 100,
        "runs with a part": 40,
        "own files checked": 100,
        "look: lacks": 100,
        "look: differs": 3,
        "ended for its checkpoints": 20,
        "begins from nothing, past a torn one": 2,
        "launches ended DONE": 20,
    }
    assert {name: stats[name] for name, count in least.items() if stats[name] < count} == {}


# --- plants -----------------------------------------------------------------------------------------------------------
def _answers(change: Callable[[Sight], Sight]) -> Any:
    """Make a leader that reads every answer about a part through ``change``."""

    def read(agent: Agent, kv: KeyValue) -> KeyValue:
        job = agent.world.truth.job
        if "/looked/" not in kv.key or job is None or job.asked is None or not (job.asked.name and job.asked.part):
            return kv
        return altered(kv, value=encode_sight(change(decode_sight(kv.value))))

    return sees(read)


def _all_of_it(sight: Sight) -> Sight:
    return sight._replace(ranks=((0, LARGEST),)) if sight.ranks else sight


def _never_torn(sight: Sight) -> Sight:
    """Let a node that holds nothing look as one that holds the files of others: nothing was interrupted there."""
    lacks = sight.found is Found.LACKS
    return sight._replace(found=Found.CAN, ranks=((LARGEST, LARGEST),)) if lacks else sight


def _always_torn(sight: Sight) -> Sight:
    return sight._replace(found=Found.DIFFERS) if sight.found is Found.LACKS else sight


def _any_number(_agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    if isinstance(event, leader_words.Resumed):
        event = altered(event, held=event.held._replace(wrote=0))
    return leader.step(s, event)


def _as_chosen(_agent: Agent, s: leader_state.Leader, event: Any) -> tuple[leader_state.Leader, Actions]:
    return leader.step(s, altered(event, world=0) if isinstance(event, leader_words.Resumed) else event)


PLANTS = (  # each with the rule that it breaks, and with the seed from which on it is searched: some show seldom
    (Rules("parts: too few of its files will do", leader=_answers(_all_of_it)), FILES, 0),
    (Rules("parts: what was chosen for other ranks stands", leader=_as_chosen), FILES, 280),
    (Rules("parts: of any number of ranks", leader=_any_number), WROTE, 120),
    (Rules("parts: a survivor that has nothing is as a newcomer", leader=_answers(_never_torn)), FIRST, 170),
    (Rules("parts: a newcomer that has nothing is as a survivor", leader=_answers(_always_torn)), NOTHING, 0),
)


@pytest.mark.parametrize(("rules", "name", "first"), PLANTS, ids=[rules.name for rules, *_ in PLANTS])
def test_plant_is_caught(rules: Rules, name: str, first: int) -> None:
    caught = (caught_by(rules, seed, of_seed(seed)) for seed in range(first, first + PLANTED))
    assert next((one for one in caught if one and one.name == name), None), f"{rules.name}: not caught"
