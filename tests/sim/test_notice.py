"""A launch that was given notice: told by all nodes, ended with its present round, and gone on with by the next."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from sim.chunks import CHUNK
from sim.invariants import Violation
from sim.plants import sees
from sim.rules import Rules, altered
from sim.scene import Scene
from sim.world import Config, World, drawn

from remuster.agent import node_words as words
from remuster.rendezvous.records import decode_job, encode
from remuster.rendezvous.store import KeyValue

THREE = {"n0": 1, "n1": 1, "n2": 1}
SCHEDULES = 60


def told(scene: Scene) -> list[str]:
    """Return whose ranks were told, in order."""
    return [who for _, who, _, about in scene.world.trace if isinstance(about, words.Notify)]


def test_ranks_of_all_nodes_are_told_and_what_ends_well_is_not_done() -> None:
    scene = Scene(THREE, 3, 3)
    scene.until_training(1)
    scene.notice("n1")
    scene.until_over()
    assert scene.job() == ["F(1), launch-1", "R(1) on n0 n1 n2", "X(1) exit 75"]
    assert (told(scene)[0], sorted(told(scene))) == ("n1", ["n0", "n1", "n2"])
    assert scene.exits() == dict.fromkeys(THREE, 75)
    scene.world.work.steps += 50
    scene.launch_again()
    scene.until_over()
    assert [step[:20] for step in scene.job()[-3:]] == ["F(2), launch-2", "R(2) from a checkpoi", "D(2) exit 0"]


@pytest.mark.parametrize(
    ("strike", "ends"),
    [
        (lambda scene: scene.fail_rank("n2"), "S(1) failed on n2"),
        (lambda scene: scene.leave("n1"), "S(1) leave on n1"),
    ],
    ids=["a failure", "a leave"],
)
def test_what_ends_after_a_notice_is_neither_retried_nor_paid_for(strike: Callable[[Scene], None], ends: str) -> None:
    scene = Scene(THREE, 3, 3)
    scene.until_training(1)
    scene.notice("n1")
    scene.until(scene.world.now + 1.0)
    strike(scene)
    scene.until_over()
    assert scene.job()[-2:] == [ends, "X(1) exit 75"]
    assert scene.exits() == dict.fromkeys(THREE, 75)


def test_a_lost_node_after_a_notice_is_not_replaced() -> None:
    scene = Scene({**THREE, "n3": 1}, 3, 3)
    scene.until_training(1)
    scene.notice("n3")  # which stands by
    scene.until(scene.world.now + 1.0)
    scene.power_off("n0")
    scene.until_over()
    assert scene.job()[-2:] == ["S(1) lost on n0", "X(1) exit 75"]
    assert sorted(told(scene)) == ["n0", "n1", "n2"]


def test_a_notice_while_nodes_are_waited_for_ends_the_waiting() -> None:
    scene = Scene({"n0": 1}, 2, 2)
    scene.until(5.0)
    scene.notice("n0")
    scene.until_over()
    assert scene.job() == ["F(1), launch-1", "F(1)", "X(1) exit 75"]
    assert scene.exits() == {"n0": 75}


def test_a_notice_to_a_node_that_is_cut_off_is_told_there_and_later_elsewhere() -> None:
    scene = Scene(THREE, 2, 3)
    scene.until_training(1)
    scene.cut_off("n2")
    scene.notice("n2")
    scene.until(scene.world.now + 1.0)
    assert told(scene) == ["n2"]
    scene.heal("n2")
    scene.until_over()
    assert sorted(told(scene))[:3] == ["n0", "n1", "n2"]
    assert scene.job()[-1] == "X(1) exit 75"


# --- by chance --------------------------------------------------------------------------------------------------------
def of_seed(seed: int) -> Config:
    return drawn(Random(-11 - seed))


def schedule(seed: int, rules: Rules | None = None) -> World:
    """Play a schedule in which some agents are given notice at some time."""
    world, rng = World(seed, rules, altered(of_seed(seed), asks=bool(seed % 2))), Random(-13 - seed)

    def give() -> None:
        agents = world.living()
        if agents:
            agent = rng.choice(agents)
            world.faults["notice"] += 1
            agent.post("notice", lambda: agent.take(words.NoticeGiven(agent.clock())))

    for _ in range(rng.randint(1, 3)):
        world.after(rng.uniform(1.0, world.cfg.fault_phase_s), give)
    return world.play()


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_schedules(first: int) -> None:
    worlds = [schedule(seed) for seed in range(first, first + CHUNK)]
    assert sum(world.faults["notice"] for world in worlds) >= CHUNK // 2
    noticed = sum(bool(world.truth.job and world.truth.job.notice) for world in worlds)
    assert noticed >= 1


# --- a wrong reading --------------------------------------------------------------------------------------------------
def _unseen(_agent: object, kv: KeyValue) -> KeyValue:
    """Show a leader the job without its notice."""
    return altered(kv, value=encode(altered(decode_job(kv.value), notice=""))) if kv.key.endswith("/job") else kv


def test_a_leader_that_does_not_look_at_it_is_caught() -> None:
    scene = Scene(THREE, 2, 3, rules=Rules("notices are not seen", leader=sees(_unseen)))
    scene.until_training(1)
    scene.notice("n1")
    scene.until(scene.world.now + 1.0)
    scene.power_off("n2")
    with pytest.raises(Violation, match="16 notice"):
        scene.until_over()
