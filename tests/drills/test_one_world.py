"""One world under random faults: every rank says every 5 ms that it lives, and no two rounds ever say so side by side.

Three hosts, ``--nnodes 2:3``, an etcd on a fourth. Faults follow each other, some before the job has recovered from the
last one. A host that was frozen as a whole is excused for its first moment after the thaw: nothing can run on it before
its own ranks do. REMUSTER_DRILL_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import uuid
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pytest
from drills import strikes
from drills.course import After, Fault, Scene, Strike
from drills.job import HERE, LEASE_S, THAW_S
from drills.lab import Host, Lab
from drills.sight import boottime, until
from drills.signs import overlap

pytestmark = pytest.mark.drill

CALM = 0.7  # share of faults that a whole job meets
FRESH_S = 0.5  # a sign of life as old as that is one of now, on a busy machine
BACK_S = 60.0
ENOUGH = 2


class Kind(NamedTuple):
    """A fault, and for how many leases it lasts where it can be undone."""

    strike: Strike
    lasts: tuple[float, float] = (0.0, 0.0)


def stop_both(scene: Scene) -> None:
    """Agent and guardian stand for a while; for ever, on two hosts, would leave nobody to form a round."""
    stopped = (scene.command.agent, scene.command.guardian)
    strikes.stop_agent_and_guardian(scene)

    def heal() -> None:
        for process in stopped:
            with suppress(ProcessLookupError):
                process.signal(signal.SIGCONT)

    scene.heal = heal


LONG = (0.2, 2.0)
KINDS = (
    Kind(strikes.kill_rank),
    Kind(strikes.kill_agent),
    Kind(strikes.kill_guardian),
    Kind(strikes.kill_agent_and_guardian),
    Kind(strikes.kill_keeper),
    Kind(strikes.kill_all),
    Kind(strikes.power_off),
    Kind(strikes.freeze, LONG),
    Kind(strikes.stop_agent, LONG),
    Kind(strikes.stop_guardian),
    Kind(stop_both, LONG),
    Kind(strikes.hold_the_loop, LONG),
    Kind(strikes.cut, LONG),
    Kind(strikes.cut_in, LONG),
    Kind(strikes.cut_out, LONG),
    Kind(strikes.cut_from_store, LONG),
    Kind(strikes.cut_from_peers, LONG),
    Kind(strikes.stop_store, (0.1, 1.5)),
    Kind(strikes.restart_store),
)
WORLD = Fault("one_world", "random faults", strikes.kill_rank, After.ON)  # what strikes is drawn below


def whole(scene: Scene) -> bool:
    """Tell whether a round lives on enough hosts, this very moment."""
    rounds = scene.job.rounds()
    if not rounds:
        return False
    now, last = boottime(), scene.job.last_signs(max(rounds))
    return sum(beat.at > now - FRESH_S for beat in last.values()) >= ENOUGH


def start_again(scene: Scene) -> None:
    """Bring up whatever has ended: hosts without power, commands that were killed with their agent."""
    for host in scene.hosts:
        if not host.up:
            host.boot()
        if scene.job.commands[host.name].waiter.poll() is not None:
            scene.job.start(host)


def wait_s(seconds: float) -> None:
    end = boottime() + seconds
    until(lambda: boottime() > end, "time passes", seconds + 5.0)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(20, marks=pytest.mark.timeout(600)),
        pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(6000)]),
    ],
)
def test_no_two_rounds_ever_live_side_by_side(count: int, lab: Lab) -> None:
    seed = os.environ.get("REMUSTER_DRILL_SEED") or uuid.uuid4().hex[:8]
    chance = random.Random(seed)
    thawed: list[tuple[Host, float]] = []
    story: list[str] = []
    deck: list[Kind] = []
    with ExitStack() as undo:
        scene = Scene(WORLD, lab, undo)
        job = scene.job
        job.script, job.options = HERE / "beat.py", ("--max-restarts", "1000000")
        job.start(*scene.hosts)
        job.wait_round(1, *scene.hosts)
        for _ in range(count):
            deck = deck or chance.sample(KINDS, len(KINDS))  # each once before any comes again
            kind = deck.pop()
            scene.victim = chance.choice(scene.hosts)
            scene.heal = lambda: None
            story.append(f"{kind.strike.__name__} {scene.victim.name} in round {max(job.rounds())}")
            try:
                kind.strike(scene)
            except (AssertionError, StopIteration, IndexError, OSError):
                story[-1] += " (nothing there to strike)"
            wait_s(LEASE_S * chance.uniform(*kind.lasts))
            at = boottime()
            with suppress(ProcessLookupError):  # what was stopped may have been swept meanwhile
                scene.heal()
            if kind.strike is strikes.freeze:
                thawed.append((scene.victim, at))
            start_again(scene)
            if chance.random() < CALM:
                until(
                    lambda: [start_again(scene)] and whole(scene),
                    lambda: f"a round lives (seed {seed}) after {story}; {job.rounds()}\n{said(scene)}",
                    BACK_S,
                )
        wait_s(LEASE_S + 3.0)  # whatever the last fault brings down has gone by then, and its lease too
        until(
            lambda: [start_again(scene)] and whole(scene),
            lambda: f"a round lives (seed {seed}) after {story}; {job.rounds()}\n{said(scene)}",
            BACK_S,
        )
        names = {host.name for host in scene.hosts}
        until(  # who joins when all is done is too late
            lambda: [start_again(scene)] and names <= job.joined(),
            lambda: f"{sorted(names - job.joined())} joined again (seed {seed}) after {story}\n{said(scene)}",
            BACK_S,
        )
        excused = [
            beat
            for beat in job.beats()
            if not any(beat.node == host.name and at <= beat.at < at + THAW_S for host, at in thawed)
        ]
        assert not (lived := overlap(excused)), f"seed {seed}: {lived}; {story}"
        assert len(job.rounds()) > count / 4, f"the faults did next to nothing: {story}"
        job.finish(*scene.hosts)
        job.check_nothing_left()


def said(scene: Scene) -> str:
    return "\n".join(f"--- {name}\n{command.said()[-1500:]}" for name, command in scene.job.commands.items())
