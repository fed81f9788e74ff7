"""Ranks that outlive their lease (``--on-store-loss=hold``): at random, as stories, and with wrong readings planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from sim.agents import Agent, Machine
from sim.chunks import CHUNK, chunks, total
from sim.invariants import Violation
from sim.plants import sees
from sim.rules import Rules, altered
from sim.scene import Scene
from sim.world import Config, World, drawn, held, in_places

from remuster.rendezvous.records import StoreLoss, decode_node, decode_roster, encode
from remuster.rendezvous.store import KeyValue

SCHEDULES = 100
PLANTED = 300
TWO = {"n0": 1, "n1": 1}


def of_seed(seed: int) -> Config:
    return held(in_places(drawn(Random(seed)), Random(-1 - seed)))


played = chunks(of_seed)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    played(first)


def test_no_invariant_holds_by_default() -> None:
    faults, stats = total(played(first) for first in range(0, SCHEDULES, CHUNK))
    least = {
        "closed rosters checked": 50,
        "held while the store was silent": 15,
        "rounds formed": 150,
        "closes after a member was gone": 100,
        "lease lost by a living agent": 100,
        "launches ended DONE": 30,
    }
    assert {name: stats[name] for name, count in least.items() if stats[name] < count} == {}
    assert min(faults["partition"], faults["store outage"], faults["namesake"], faults["hang"], faults["pause"]) >= 20


@pytest.mark.parametrize("seed", range(20))
def test_a_store_that_is_down_ends_no_round(seed: int) -> None:
    """Its leases stand still with it, as those of an etcd that is started again: whatever it lasts, nothing stops."""
    rng = Random(1000 + seed)
    cfg = replace(held(drawn(Random(seed))), faults=0, patience_s=900.0, fault_phase_s=700.0, steps=400)
    world = World(seed, None, cfg)
    world.net.calm()
    world.injector.launch = 3  # and no further one
    at = 40.0  # the first round has formed
    for _ in range(6):
        at += rng.uniform(1, 60)
        world.at(at, lambda: world.store.go_out(down=True))
        at += rng.uniform(1, 90)
        world.at(at, world.store.come_back)
    world.play()
    assert world.truth.job is not None
    steps = [line[8:].partition(" ")[0].rstrip(",") for line in world.truth.chronicle]
    assert set(steps) == {"F(1)", "R(1)", "D(1)"}, world.story()
    assert world.stats["exit 0"] == cfg.nodes
    assert world.stats["fenced"] == 0


# --- stories ----------------------------------------------------------------------------------------------------------
def ranks_of(scene: Scene, name: str) -> list[int]:
    return [rank.round for rank in scene.world.work.living() if rank.agent.name == name]


def test_a_node_that_is_cut_off_is_waited_for_and_not_replaced() -> None:
    scene = Scene({**TWO, "n2": 1}, 2, 2, hold=True)
    scene.until_training(1)
    scene.cut_off("n1")
    scene.until(lambda: "S(1) lost on n1" in scene.job())
    scene.until(scene.world.now + 30.0)
    assert scene.job()[-1] == "F(2), charge +1"
    assert ranks_of(scene, "n1") == [1]
    leader = scene.agent("n0").seat
    assert leader is not None
    assert "ranks may still live on n1 (machine m1), which must come back" in leader.said
    scene.heal("n1")
    scene.until_over()
    assert scene.job()[-2:] == ["R(2) from a checkpoint on n0 n1", "D(2) exit 0"]


def test_a_node_that_never_comes_back_ends_the_job_in_words() -> None:
    scene = Scene({**TWO, "n2": 1}, 2, 2, hold=True)
    scene.until_training(1)
    scene.power_off("n1")
    scene.until_over()
    assert scene.job()[-3:] == ["S(1) lost on n1", "F(2), charge +1", "X(2) exit 75"]
    words = scene.last_words("n0")
    assert words.startswith(
        "ranks may still live on n1 (machine m1), which must come back (--on-store-loss=hold) and did"
    )
    assert words.endswith("switched off and start the job under another --rdzv-id")


def test_a_node_that_was_booted_anew_is_back() -> None:
    scene = Scene(TWO, 2, 2, hold=True)
    scene.until_training(1)
    machine = scene.agent("n1").machine
    scene.power_off("n1")
    machine.boot += 1
    scene.begin("n1", at=scene.world.now + 1.0)
    scene.until_over()
    assert scene.job()[-2:] == ["R(2) from a checkpoint on n0 n1", "D(2) exit 0"]


def test_another_machine_of_the_same_name_is_not() -> None:
    scene = Scene(TWO, 2, 2, hold=True)
    scene.until_training(1)
    scene.power_off("n1")
    scene.world.injector.bring("n1", 1.0, Machine("another", 5.0, 1.0))
    scene.until_over()
    assert scene.job()[-2:] == ["F(2), charge +1", "X(2) exit 75"]


def launched_again_without_hold(rules: Rules | None = None) -> tuple[Scene, Agent]:
    scene = Scene({**TWO, "n2": 1}, 2, 2, hold=True, rules=rules)
    scene.until_training(1)
    scene.cut_off("n1")
    held_by = scene.agent("n1")
    scene.until(lambda: "X(2) exit 75" in scene.job())
    scene.until(lambda: [a.name for a in scene.world.living()] == ["n1"])
    scene.world.injector.hold = False
    scene.world.injector.launch += 1
    for name in ("n0", "n2"):
        scene.begin(name, at=scene.world.now + 1.0, fresh=True)
    scene.until(scene.world.now + 30.0)
    return scene, held_by


def test_the_next_launch_waits_as_well_whatever_it_says() -> None:
    scene, held_by = launched_again_without_hold()
    assert scene.job()[-1] == "F(3), charge -1, launch-2"
    assert ranks_of(scene, "n1") == [1]
    scene.heal("n1")  # it hears that its launch has ended
    scene.until(lambda: not held_by.alive)
    scene.begin("n1", at=scene.world.now + 1.0)
    scene.until_over()
    assert scene.job()[-2:] == ["R(3) from a checkpoint on n0 n2 spare n1", "D(3) exit 0"]


def test_what_is_done_holds_nothing() -> None:
    scene = Scene(TWO, 2, 2, hold=True)
    scene.until_over()
    del scene.world.injector.home["n1"]
    scene.world.injector.place("n9")
    scene.launch_again(fresh=True)
    scene.until_over()
    assert scene.job()[-2:] == ["R(2) from a checkpoint on n0 n9", "D(2) exit 0"]


def test_who_has_finished_waits_for_a_silent_store_no_longer_than_one_who_is_outside() -> None:
    scene = Scene(TWO, 2, 2, hold=True)
    scene.until_training(1)
    scene.world.store.go_out(down=True)
    scene.until_over()
    assert scene.exits() == {"n0": 75, "n1": 75}
    assert "the store could not be reached for 90 s: the outcome of the job is unknown" in scene.last_words("n0")
    assert scene.world.now > 60.0 + 90.0


def test_what_a_rank_said_while_the_store_was_silent_is_told_when_it_is_back() -> None:
    scene = Scene(TWO, 2, 2, hold=True)
    scene.until_training(1)
    scene.world.store.go_out(down=True)
    scene.until(scene.world.now + 20.0)
    scene.fail_rank("n1")
    scene.until(scene.world.now + 30.0)
    assert scene.job()[-1] == "R(1) on n0 n1"
    scene.world.store.come_back()
    scene.until_over()
    assert scene.job()[-4:] == [
        "S(1) failed on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n1",
        "D(2) exit 0",
    ]


# --- wrong readings ---------------------------------------------------------------------------------------------------
def _released(_agent: Agent, kv: KeyValue) -> KeyValue:
    """A lost lease proves the ranks dead, as where they are fenced."""
    if "/rounds/" not in kv.key:
        return kv
    return altered(kv, value=encode(decode_roster(kv.value)._replace(store_loss=StoreLoss.FENCE)))


def _as_this_launch_says(agent: Agent, kv: KeyValue) -> KeyValue:
    """The present launch decides, not the one under which the round had formed."""
    job = agent.world.truth.job
    return kv if job is None or job.store_loss is StoreLoss.HOLD else _released(agent, kv)


def test_a_next_launch_that_goes_by_its_own_word_is_caught() -> None:
    with pytest.raises(Violation, match=r"n1@[0-9a-f]+"):
        launched_again_without_hold(Rules("the present launch decides", leader=sees(_as_this_launch_says)))


def _by_name(agent: Agent, kv: KeyValue) -> KeyValue:
    """Who has the name of a member is that member."""
    world = agent.world
    if not kv.key.startswith(world.cfg.keys.nodes):
        return kv
    name, rosters = kv.key[len(world.cfg.keys.nodes) :], world.truth.rosters
    last = rosters[max(rosters)].members if rosters else ()
    machine = next((m.machine for m in last if m.node == name), None)
    return kv if machine is None else altered(kv, value=encode(altered(decode_node(kv.value), machine=machine)))


def _min_below_max(seed: int) -> Config:
    cfg = drawn(Random(seed))
    return replace(cfg, hold=True, nodes=max(3, cfg.nodes), min_nodes=1, max_nodes=max(2, cfg.max_nodes))


DEAD_FIRST = {"1 one world", "8 resume", "13 closed roster"}
PLANTS: tuple[tuple[Rules, Callable[[int], Config], set[str]], ...] = (
    (Rules("a lost lease releases a member", leader=sees(_released)), of_seed, DEAD_FIRST),
    (Rules("fewer may go on where min < max", leader=sees(_released)), _min_below_max, DEAD_FIRST),
    (
        Rules("a member is replaced by its namesake", leader=sees(_by_name)),
        of_seed,
        DEAD_FIRST,
    ),
)


@pytest.mark.parametrize(("rules", "config", "by"), PLANTS, ids=lambda value: getattr(value, "name", ""))
def test_plant_is_caught(rules: Rules, config: Callable[[int], Config], by: set[str]) -> None:
    caught = next(filter(None, (caught_by(rules, seed, config(seed)) for seed in range(PLANTED))), None)
    assert caught, f"{rules.name}: not caught in {PLANTED} schedules"
    print(f"{rules.name}: caught by {caught.args[0].partition(chr(10))[0]}")
    assert caught.name in by


def caught_by(rules: Rules, seed: int, config: Config) -> Violation | None:
    """Play one schedule under ``rules``; return the invariant that did not hold."""
    try:
        World(seed, rules, config).play()
    except Violation as violation:
        return violation
    return None
