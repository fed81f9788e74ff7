"""Stories of several agents, told by the steps of the job: what happens, and what becomes of it."""

from __future__ import annotations

from typing import Any

from sim.agents import Agent, Machine
from sim.rules import Rules
from sim.scene import Scene

from remuster.rendezvous.writes import Kind, Write

THREE = {"n0": 1, "n1": 1, "n2": 1}


def test_all_ranks_exit_zero() -> None:
    scene = Scene(THREE, 3, 3)
    scene.until_over()
    assert scene.job() == ["F(1), launch-1", "R(1) on n0 n1 n2", "D(1) exit 0"]
    assert scene.exits() == {"n0": 0, "n1": 0, "n2": 0}


def test_a_rank_fails_and_all_go_on_in_their_places() -> None:
    scene = Scene(THREE, 3, 3)
    scene.until_training(1)
    scene.fail_rank("n1")
    scene.until_over()
    assert scene.job() == [
        "F(1), launch-1",
        "R(1) on n0 n1 n2",
        "S(1) failed on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n1 n2",
        "D(2) exit 0",
    ]


def test_a_lost_node_is_replaced_by_the_spare_in_its_place() -> None:
    scene = Scene({**THREE, "n3": 1}, 3, 3)
    scene.until_training(1)
    scene.power_off("n1")
    scene.until_over()
    assert scene.job() == [
        "F(1), launch-1",
        "R(1) on n0 n1 n2 spare n3",
        "S(1) lost on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n3 n2",
        "D(2) exit 0",
    ]


def test_the_leading_node_is_lost_and_a_successor_sees_it() -> None:
    scene = Scene({**THREE, "n3": 1}, 3, 3)
    scene.until_training(1)
    assert scene.leader() == "n0"
    scene.power_off("n0")
    scene.until(lambda: len(scene.job()) > 4)
    assert scene.leader() != "n0"
    scene.until_over()
    assert scene.job()[1:5] == [
        "R(1) on n0 n1 n2 spare n3",
        "S(1) lost on n0",
        "F(2), charge +1",
        "R(2) from a checkpoint on n3 n1 n2",
    ]


def test_a_spare_replaces_a_node_only_if_it_has_its_slots() -> None:
    scene = Scene({"n0": 1, "n1": 2, "n2": 1, "n3": 2}, 2, 2)
    scene.until_training(1)
    scene.power_off("n1")
    scene.until_training(2)
    assert scene.job()[1:] == [
        "R(1) on n0 n1 spare n2",
        "S(1) lost on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n3 spare n2",
    ]


def test_the_last_call_waits_for_more_than_the_least() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 2, 4)
    scene.until(4.0)
    assert scene.job() == ["F(1), launch-1"]
    scene.begin("n2", at=4.5)
    scene.until_training(1)
    assert scene.job()[1:] == ["R(1) on n0 n1 n2"]


def test_a_newcomer_waits_for_the_next_round() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 2, 3)
    scene.until_training(1)
    scene.begin("n2", at=scene.world.now + 1.0)
    scene.until(scene.world.now + 5.0)
    scene.fail_rank("n0")
    scene.until_over()
    assert scene.job()[1:] == [
        "R(1) on n0 n1",
        "S(1) failed on n0",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n1 n2",
        "D(2) exit 0",
    ]


def test_a_failed_job_goes_on_with_a_new_launch_one_round_later() -> None:
    scene = Scene(THREE, 3, 3, budget=0)
    scene.until_training(1)
    scene.fail_rank("n2")
    scene.until_over()
    assert set(scene.exits().values()) == {1}
    scene.launch_again()
    scene.until_over()
    assert scene.job() == [
        "F(1), launch-1",
        "R(1) on n0 n1 n2",
        "S(1) failed on n2",
        "X(1) exit 1",
        "F(2), launch-2",
        "R(2) from a checkpoint on n0 n1 n2",
        "D(2) exit 0",
    ]


def test_a_finished_job_is_refused_and_runs_again_only_when_fresh() -> None:
    scene = Scene({"n0": 1}, 1, 1)
    scene.until_over()
    scene.launch_again()
    scene.until_over()
    assert scene.exits() == {"n0": 2}
    scene.world.work.begin_again(fresh=True)
    scene.launch_again(fresh=True)
    scene.until_over()
    assert scene.job()[2:] == ["D(1) exit 0", "F(2), launch-3", "R(2) from a checkpoint on n0", "D(2) exit 0"]
    assert scene.exits() == {"n0": 0}


def test_to_leave_is_free() -> None:
    scene = Scene({**THREE, "n3": 1}, 3, 3)
    scene.until_training(1)
    scene.leave("n2")
    scene.until_over()
    assert scene.job()[1:] == [
        "R(1) on n0 n1 n2 spare n3",
        "S(1) leave on n2",
        "F(2)",
        "R(2) from a checkpoint on n0 n1 n3",
        "D(2) exit 0",
    ]
    assert scene.exits() == {"n0": 0, "n1": 0, "n2": 143, "n3": 0}


def test_a_node_that_is_cut_off_fences_itself_and_comes_back_as_a_newcomer() -> None:
    scene = Scene({**THREE, "n3": 1}, 3, 3)
    scene.until_training(1)
    scene.cut_off("n1")
    scene.until(lambda: scene.job()[-1].startswith("S"))
    assert not any(r.agent.name == "n1" for r in scene.world.work.living())
    scene.heal("n1")
    scene.until_training(2)
    assert scene.job()[2:] == ["S(1) lost on n1", "F(2), charge +1", "R(2) from a checkpoint on n0 n1 n2 spare n3"]
    scene.until_over()
    assert set(scene.exits().values()) == {0}


def test_the_answer_to_a_stop_is_lost() -> None:
    stops: list[str] = []

    def write(agent: Agent, wanted: Write) -> Write:
        if wanted.kind is Kind.STOP:
            stops.append(agent.name)
            if len(stops) == 1:
                agent.world.net.doomed = "answer"
        return wanted

    scene = Scene(THREE, 3, 3, rules=Rules(write=write))
    scene.until_training(1)
    scene.fail_rank("n1")
    scene.until_over()
    assert scene.job()[2:] == [
        "S(1) failed on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n1 n2",
        "D(2) exit 0",
    ]


def test_the_request_of_a_stop_is_lost_and_sent_again() -> None:
    stops: list[Any] = []

    def write(agent: Agent, wanted: Write) -> Write:
        if wanted.kind is Kind.STOP and agent.name == "n1":
            stops.append(wanted)
            agent.world.net.doomed = "request" if len(stops) < 3 else ""
        return wanted

    scene = Scene({"n0": 1, "n1": 1}, 2, 2, rules=Rules(write=write))
    scene.until_training(1)
    scene.fail_rank("n1")
    scene.until_over()
    assert len(stops) >= 3
    assert scene.job()[2:4] == ["S(1) failed on n1", "F(2), charge +1"]


def test_too_few_nodes_say_so_and_give_up_in_the_end() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 3, 3)
    scene.until(20.0)
    said = next(a.seat.said for a in scene.world.living() if a.seat)
    assert said == "round 1: 2 of 3 nodes are ready; waiting for more"
    scene.until_over()
    assert scene.job() == ["F(1), launch-1", "X(1) exit 69"]
    assert scene.exits() == {"n0": 69, "n1": 69}


def test_nodes_run_in_the_places_that_they_ask_for() -> None:
    scene = Scene(THREE, 3, 3, places={"n0": 2, "n1": 0, "n2": 1})
    scene.until_over()
    assert scene.job() == ["F(1), launch-1", "R(1) on n1 n2 n0", "D(1) exit 0"]


def test_a_lost_node_is_replaced_by_one_that_asks_for_its_place() -> None:
    scene = Scene(THREE, 3, 3, places={"n0": 0, "n1": 1, "n2": 2, "n4": 1})
    scene.until_training(1)
    scene.power_off("n1")
    scene.until(lambda: scene.job()[-1].startswith("F(2)"))
    scene.begin("n4", at=scene.world.now + 1.0)
    scene.until_over()
    assert scene.job()[1:] == [
        "R(1) on n0 n1 n2",
        "S(1) lost on n1",
        "F(2), charge +1",
        "R(2) from a checkpoint on n0 n4 n2",
        "D(2) exit 0",
    ]


def test_a_place_that_a_living_node_has_is_refused_a_lease_later() -> None:
    """Another job's node, most likely, started with the same port: it must not stand by and then say: done."""
    scene = Scene({**THREE, "n3": 1}, 3, 3, places={"n0": 0, "n1": 1, "n2": 2, "n3": 0})
    scene.until_training(1)
    scene.until(scene.world.now + 30.0)
    assert "--node-rank 0 is held by n0" in scene.last_words("n3")
    scene.until_over()
    assert scene.exits() == {"n0": 0, "n1": 0, "n2": 0, "n3": 69}


def test_a_place_that_nobody_asks_for_and_one_that_two_ask_for_are_named() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 2, 2, places={"n0": 0, "n1": 0})
    scene.until(20.0)
    missing = "no node with --node-rank 1 yet; --node-rank 0 is given by n0 and n1"
    assert scene.agent("n0").seat
    assert scene.agent("n0").seat.said == f"round 1: 1 of 2 nodes are ready; {missing}; waiting for more"
    scene.until_over()
    assert scene.exits() == {"n0": 69, "n1": 69}
    assert missing in scene.last_words("n0") == scene.last_words("n1")


def test_the_first_place_is_waited_for_whatever_the_least() -> None:
    scene = Scene({"n1": 1, "n2": 1}, 1, 3, places={"n0": 0, "n1": 1, "n2": 2})
    scene.until(20.0)
    assert scene.job() == ["F(1), launch-1"]
    scene.begin("n0", at=21.0)
    scene.until_training(1)
    assert scene.job()[1:] == ["R(1) on n0 n1 n2"]


def test_a_node_with_another_command_line_is_refused_at_once() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 2, 3)
    scene.until_training(1)
    scene.world.injector.terms = (("--max-restarts", "5"),)
    began = scene.world.now
    scene.begin("n2", at=began)
    scene.until(lambda: "n2" in scene.exits())
    assert scene.world.now - began < 2.0
    assert scene.exits() == {"n2": 2}
    assert scene.last_words("n2").startswith(
        "this node was given --max-restarts 5, the run (begun by node n0) has 3; give all nodes the same command line"
    )


def test_a_name_that_lives_on_another_machine_is_given_up_within_a_lease() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 2, 3)
    scene.until_training(1)
    began, clone = scene.world.now, Machine("elsewhere", 0.0, 1.0)
    scene.world.injector.bring("n1", 0.0, clone)
    scene.until(lambda: "n1" in scene.exits())
    assert 15.0 < scene.world.now - began < 20.0
    assert scene.exits() == {"n1": 69}
    assert "node name 'n1' is held by another machine (10.0.0.n1), whose agent is alive" in scene.last_words("n1")


def test_a_name_that_a_dead_machine_has_left_is_taken_when_its_lease_ends() -> None:
    scene = Scene({"n0": 1, "n1": 1}, 2, 2)
    scene.until_training(1)
    scene.power_off("n1")
    scene.world.injector.bring("n1", 0.0, Machine("elsewhere", 0.0, 1.0))
    scene.until_over()
    assert scene.job()[2:] == ["S(1) lost on n1", "F(2), charge +1", "R(2) from a checkpoint on n0 n1", "D(2) exit 0"]
