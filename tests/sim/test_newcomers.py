"""Stories of nodes that come and go: spares, newcomers, a group that shrinks and grows, and who is held back."""

from __future__ import annotations

import pytest
from sim.scene import Scene

from remuster.agent import node_words as words
from remuster.agent.node_words import LeaveAsked
from remuster.rendezvous.admission import FLAPS, Admit
from remuster.rendezvous.leader_words import AwaitCheckpoint
from remuster.rendezvous.membership import Order

TWO = {"n0": 1, "n1": 1}


def told(scene: Scene, name: str) -> list[str]:
    """Return what people on a node were told, in order."""
    said = [about for _, who, _, about in scene.world.trace if who == name and isinstance(about, words.Tell)]
    return [tell.sentence for tell in said]


def leave(scene: Scene, name: str, signal: int = 0) -> None:
    agent = scene.agent(name)
    agent.leaving = True
    agent.take(LeaveAsked(agent.clock(), signal))
    scene.until(lambda: not agent.alive)


def starts(scene: Scene, n: int) -> dict[str, tuple[int, int, int, int]]:
    """Return node → (first rank, local world size, world size, group rank), as each was told to start round ``n``."""
    found = {}
    for _, who, _, about in scene.world.trace:
        if isinstance(about, words.Start) and about.round == n:
            roster, place = about.roster, about.place
            found[who] = (roster.first_rank(place), roster.members[place].slots, roster.world_size, place)
    return found


def test_now_the_round_is_ended_for_a_newcomer_and_nobody_pays() -> None:
    scene = Scene(TWO, 2, 3, admit=Admit.NOW)
    scene.until_training(1)
    scene.begin("n2", at=scene.world.now + 1.0)
    scene.until_over()
    assert scene.job() == [
        "F(1), launch-1",
        "R(1) on n0 n1",
        "S(1) admit on n2",
        "F(2)",
        "R(2) from a checkpoint on n0 n1 n2",
        "D(2) exit 0",
    ]
    assert scene.exits() == {"n0": 0, "n1": 0, "n2": 0}


def test_at_a_checkpoint_no_step_is_lost_before_the_newcomer() -> None:
    scene = Scene(TWO, 2, 3, admit=Admit.CHECKPOINT)
    scene.until_training(1)
    scene.begin("n2", at=scene.world.now + 1.0)
    scene.until(lambda: len(scene.job()) > 2)
    assert scene.job()[2] == "S(1) admit on n2"
    looks = [at for at, _, _, about in scene.world.trace if isinstance(about, AwaitCheckpoint)]
    assert looks[0] < scene.world.work.published_at < scene.world.now
    assert scene.world.now - scene.world.work.published_at < 7.0  # looked at every 5 s
    scene.until_over()
    assert scene.job()[4:] == ["R(2) from a checkpoint on n0 n1 n2", "D(2) exit 0"]


def test_a_group_that_shrank_to_its_least_grows_again() -> None:
    scene = Scene(TWO, 1, 2, admit=Admit.NOW)
    scene.world.work.steps = 400
    scene.until_training(1)
    scene.power_off("n1")
    scene.until(lambda: scene.job()[-1].startswith("F(2)"))
    began = scene.world.now
    scene.until_training(2)
    assert scene.world.now - began < 13.0  # ten of them in training: who is there is known, there is no last call
    scene.begin("n1", at=scene.world.now + 1.0)
    scene.until_training(3)
    assert scene.job()[1:] == [
        "R(1) on n0 n1",
        "S(1) lost on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0",
        "S(2) admit on n1",
        "F(3)",
        "R(3) from a checkpoint on n0 n1",
    ]


def test_several_that_come_together_end_one_round() -> None:
    scene = Scene(TWO, 2, 5, admit=Admit.NOW)
    scene.world.work.steps = 200
    scene.until_training(1)
    for name in ("n2", "n3", "n4"):
        scene.begin(name, at=scene.world.now + 1.0)
    scene.until_training(2)
    (stop, forming, running) = scene.job()[2:]
    assert (stop[:13], forming) == ("S(1) admit on", "F(2)")
    assert sorted(running.partition(" on ")[2].split()) == ["n0", "n1", "n2", "n3", "n4"]


def test_a_newcomer_that_goes_at_once_ends_no_round() -> None:
    scene = Scene(TWO, 2, 3, admit=Admit.NOW)
    scene.world.work.steps = 200
    scene.until_training(1)
    scene.until(scene.world.now + 30.0)
    for _ in range(5):
        scene.begin("n2", at=scene.world.now + 0.5)
        scene.until(scene.world.now + 6.0)
        scene.power_off("n2")
        scene.until(scene.world.now + 4.0)
    assert scene.job() == ["F(1), launch-1", "R(1) on n0 n1"]


def test_a_member_is_lost_while_the_spare_has_not_answered() -> None:
    """The round waits a last call for a spare that is slow, and goes on without one that is too slow."""
    for lasting, members in ((4.0, "n0 n2"), (12.0, "n0")):
        scene = Scene({**TWO, "n2": 1}, 1, 2)
        scene.until_training(1)
        spare = scene.agent("n2")
        scene.fail_rank("n1")
        spare.pause()
        leave(scene, "n1")
        scene.until(scene.world.now + lasting)
        spare.thaw()
        scene.until_training(2)
        assert scene.job()[-1] == f"R(2) from a checkpoint on {members}", scene.world.story()


def test_a_spare_that_joins_while_the_round_is_being_stopped_is_taken() -> None:
    scene = Scene(TWO, 2, 2)
    scene.until_training(1)
    scene.power_off("n1")
    scene.until(lambda: scene.job()[-1].startswith("S(1)"))
    scene.begin("n2", at=scene.world.now)
    scene.until_training(2)
    assert scene.job()[-1] == "R(2) from a checkpoint on n0 n2"


def test_b37_leave_is_not_close_whenever_the_node_comes_back() -> None:
    """B37: --nnodes 1:2, A + B, B leaves and comes back after 0.2 s or 20 s, ten times: A goes on, B re-enters."""
    scene = Scene(TWO, 1, 2, admit=Admit.NOW)
    scene.world.work.steps = 9000
    for turn in range(10):
        scene.until(lambda: bool(scene.job()) and scene.job()[-1].endswith(" on n0 n1"))
        scene.until(scene.world.now + 700.0)  # long enough for what it has done to be forgotten
        began = scene.world.now
        leave(scene, "n1")
        scene.begin("n1", at=scene.world.now + (0.2, 20.0)[turn % 2])
        scene.until(lambda: scene.job()[-1].startswith("R("))
        assert scene.world.now - began < 30.0
    scene.until(9200.0)
    scene.until_over()
    assert scene.job()[-1].startswith("D(")
    assert not any("charge" in step or "X(" in step for step in scene.job())
    assert scene.exits() == {"n0": 0, "n1": 0}


def test_b38_a_node_that_leaves_and_rejoins_over_and_over_does_not_restart_the_group_each_time() -> None:
    """B38: A + B, B goes and comes every few seconds for a long time: few restarts, and the budget is the job's."""
    scene = Scene(TWO, 1, 2, budget=3, admit=Admit.NOW)
    scene.world.work.steps = 2000
    scene.until_training(1)
    began = scene.world.now
    while scene.world.now < began + 500.0:
        scene.agent("n1").lose_power()
        scene.begin("n1", at=scene.world.now + 1.0)
        scene.until(scene.world.now + 45.0)  # a lease, the newcomer's wait, and some training
    ended = [step for step in scene.job() if step.startswith("S(") and "lost on n1" in step]
    assert len(ended) == FLAPS, scene.job()
    assert sum("charge" in step for step in scene.job()) == FLAPS
    why = "this node stands by: round 4 runs on others; it has ended 3 rounds by coming and going, and is taken in when"
    assert any(line.startswith(why) for line in told(scene, "n1")), told(scene, "n1")
    assert scene.agent("n0").seat.said == "round 4: n1 stands by: it has ended too many rounds by coming and going"
    scene.until(lambda: scene.job()[-1].endswith(" on n0 n1"))  # and in the end it is forgiven
    assert scene.world.now - began > 600.0


def test_b38_a_node_that_comes_and_goes_is_taken_where_it_is_needed() -> None:
    scene = Scene(TWO, 2, 2, budget=9)
    scene.world.work.steps = 400
    for n in range(1, 6):
        scene.until_training(n)
        scene.agent("n1").lose_power()
        scene.begin("n1", at=scene.world.now + 1.0)
    scene.until_over()
    assert [step for step in scene.job() if step.startswith("R(")][-1] == "R(6) from a checkpoint on n0 n1"


def test_b38_a_spare_is_preferred_to_a_node_that_comes_and_goes() -> None:
    scene = Scene({**TWO, "n2": 2}, 2, 2, budget=9)  # n2 has other slots: it can be nobody's heir
    scene.world.work.steps = 400
    for n in range(1, FLAPS + 1):
        scene.until_training(n)
        scene.agent("n1").lose_power()
        scene.begin("n1", at=scene.world.now + 1.0)
    scene.until_training(FLAPS + 1)
    scene.begin("n3", at=scene.world.now)
    scene.until(scene.world.now + 2.0)
    scene.fail_rank("n0")
    scene.until_training(FLAPS + 2)
    assert scene.job()[-1].endswith(" on n0 n3 spare n2 n1"), scene.job()


def test_b39_surplus_agents_are_parked_in_every_round() -> None:
    """B39: --nnodes 2:2 with 3 agents, a rank is killed 20 times: the members stay, the spare stands by each time."""
    scene = Scene({**TWO, "n2": 1}, 2, 2, budget=21)
    scene.world.work.steps = 2000
    for n in range(1, 21):
        scene.until_training(n)
        scene.fail_rank("n0")
    scene.until_training(21)
    rounds = [step.partition(" on ")[2] for step in scene.job() if step.startswith("R(")]
    assert rounds == ["n0 n1 spare n2"] * 21
    scene.power_off("n1")  # … and is there when it is needed, without a last call
    scene.until(lambda: scene.job()[-1].startswith("F(22)"))
    began = scene.world.now
    scene.until(lambda: scene.job()[-1].startswith("R(22)"))
    assert scene.world.now - began < 2.0
    assert scene.job()[-1].endswith(" on n0 n2")


@pytest.mark.parametrize("order", Order)
def test_unequal_slots_after_replacement_and_shrink(order: Order) -> None:
    """Ranks, LOCAL_WORLD_SIZE and WORLD_SIZE follow the slots of the nodes before, whoever they are."""
    scene = Scene({"n0": 1, "n1": 3, "n4": 1, "n5": 3}, 1, 2, order=order)
    scene.world.work.steps = 400
    scene.until_training(1)
    assert starts(scene, 1) == {"n0": (0, 1, 4, 0), "n1": (1, 3, 4, 1)}
    scene.power_off("n1")
    scene.until_training(2)
    assert starts(scene, 2) == {"n0": (0, 1, 4, 0), "n5": (1, 3, 4, 1)}
    scene.power_off("n0")
    scene.until_training(3)
    replaced = {"n4": (0, 1, 4, 0), "n5": (1, 3, 4, 1)}
    assert starts(scene, 3) == replaced
    scene.power_off("n4")
    scene.until_training(4)
    assert starts(scene, 4) == {"n5": (0, 3, 3, 0)}


def test_by_host_name_ranks_follow_the_names_in_every_round() -> None:
    scene = Scene({"n10": 1, "n9": 2, "n2": 1}, 2, 4, order=Order.HOSTNAME, admit=Admit.NOW)
    scene.world.work.steps = 300
    scene.until_training(1)
    scene.begin("n1", at=scene.world.now)
    scene.until_training(2)
    scene.power_off("n9")
    scene.until_training(3)
    rounds = [step.partition(" on ")[2] for step in scene.job() if step.startswith("R(")]
    assert rounds == ["n2 n9 n10", "n1 n2 n9 n10", "n1 n2 n10"]


def test_every_node_says_that_it_waits_and_who_leads() -> None:
    scene = Scene(TWO, 3, 4)
    scene.until(20.0)
    assert scene.leader() == "n0"
    assert told(scene, "n1") == [
        "round 1 waits for nodes, 3 to 4 are wanted; node n0 leads and says which are there",
    ]
    assert scene.agent("n0").seat.said == "round 1: 2 of 3 nodes are ready; waiting for more"


def test_a_spare_says_so() -> None:
    scene = Scene({**TWO, "n2": 1}, 2, 2)
    scene.until_training(1)
    scene.until(scene.world.now + 30.0)
    assert told(scene, "n2")[-1] == "this node stands by: round 1 runs on others"
    assert not any("stands by" in line for name in TWO for line in told(scene, name))


def test_a_leave_by_command_is_free_and_ends_with_zero() -> None:
    scene = Scene({**TWO, "n2": 1}, 2, 2)
    scene.until_training(1)
    leave(scene, "n1")
    scene.until_over()
    assert scene.job()[1:] == [
        "R(1) on n0 n1 spare n2",
        "S(1) leave on n1",
        "F(2)",
        "R(2) from a checkpoint on n0 n2",
        "D(2) exit 0",
    ]
    assert scene.exits() == {"n0": 0, "n1": 0, "n2": 0}
