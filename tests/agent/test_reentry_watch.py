"""Ranks that go on from a checkpoint, as their agent sees them: real processes, and the memory that they share."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remuster.agent import node_words as words
from remuster.agent.beats import Beats
from remuster.agent.linux import boottime
from remuster.agent.reentry_watch import ReentryWatch
from remuster.agent.sources import Begun, RankHere
from remuster.health.evidence import Said
from remuster.health.observed import REENTRY
from remuster.rendezvous.records import ResumePoint, Round
from remuster.rendezvous.reentered import Reentered, together

NOWHERE = ResumePoint()
POINT = ResumePoint("/c/step-000000000150", 150, "manifest", "digests", name="step-000000000150")
LOSS = "2 + 40 / s"


class Stage:
    """An agent's part: the page of the present round, and what the source has posted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page = Beats(1, 2)
        self.posted: list[words.Event] = []
        self.watch = ReentryWatch(self.said, self.posted.append)
        self.round = 0
        self.looks = 0

    def said(self, local: int) -> Said:
        self.looks += 1
        return self.page.said(local)

    def begin(self, point: ResumePoint, world: int = 2) -> None:
        self.round += 1
        self.page.close()
        self.page = Beats(self.round, 2)
        ranks = tuple(RankHere(local, local, 1, self.folder, {}) for local in range(2))
        self.watch.begin(Begun(Round(self.round), boottime(), ranks, world, point))

    async def say(self, first: int, count: int, loss: str = LOSS, ranks: tuple[int, ...] = (0, 1)) -> None:
        """Have ranks say ``count`` steps."""
        program = f"import remuster\nfor s in range({first}, {first + count}): remuster.heartbeat(s, loss={loss})"
        for local in ranks:
            env = {**os.environ, "REMUSTER_BEATS": self.page.address(local), "REMUSTER_ROUND": str(self.round)}
            argv = [sys.executable, "-c", program]
            await asyncio.to_thread(subprocess.run, argv, env=env, check=True, timeout=30)

    async def until(self, what: Callable[[], object], within_s: float = 30.0) -> None:
        end = boottime() + within_s
        while not what():
            assert boottime() < end, self.posted
            await asyncio.sleep(0.01)

    async def looked(self) -> None:
        """Wait until the ranks have been looked at since now."""
        before = self.looks
        await self.until(lambda: self.looks >= before + 2)  # one for each rank, and judged before this runs again


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.page.close()


async def test_it_is_told_once_when_all_ranks_go_on_as_before(stage: Stage) -> None:
    """By five steps where they are held against those of the attempt before, which this agent has seen."""
    stage.begin(NOWHERE)
    await stage.say(101, 60)
    assert await stage.watch.facts() == ()
    stage.begin(POINT)
    await stage.say(151, 5, ranks=(0,))
    await stage.looked()
    assert stage.posted == [], "the other one has said nothing"
    await stage.say(151, 5, ranks=(1,))
    await stage.until(lambda: stage.posted)
    (told,) = stage.posted
    assert isinstance(told, words.Reentered)
    assert (told.round, together((told.words,))) == (2, Reentered(5, "steps, loss"))
    await stage.watch.close()


@pytest.mark.parametrize("world", [2, 3])
async def test_another_number_of_ranks_is_not_compared(stage: Stage, world: int) -> None:
    stage.begin(NOWHERE)
    await stage.say(101, 60)
    await stage.watch.facts()
    stage.begin(POINT, world)
    await stage.say(151, 20, loss="200")
    await stage.until(lambda: stage.posted)
    (event,) = stage.posted
    if world == 2:
        assert isinstance(event, words.Alarmed)
        assert event.why.why.startswith(
            "rank 0 has a loss of 200 at step 170, where more than 102.37 is not as it was before"
        )
    else:
        assert isinstance(event, words.Reentered)
        assert together((event.words,)) == Reentered(20, "steps")
    await stage.watch.close()


async def test_a_wrong_first_step_ends_the_round_by_an_alarm_that_names_the_checkpoint(stage: Stage) -> None:
    stage.begin(POINT)
    await stage.say(121, 5)
    await stage.until(lambda: stage.posted)
    (alarm,) = stage.posted
    assert isinstance(alarm, words.Alarmed)
    assert (alarm.round, alarm.why.rank, alarm.why.sign) == (1, 0, REENTRY)
    assert alarm.why.why.endswith(": it does not go on from checkpoint step-000000000150 (step 150)")
    await stage.watch.close()


async def test_a_script_that_may_count_anew_in_each_process_ends_nothing(stage: Stage) -> None:
    stage.begin(POINT)
    await stage.say(1, 32)
    await stage.looked()
    assert stage.posted == []
    await stage.watch.close()


async def test_a_format_whose_numbers_may_be_those_of_epochs_ends_nothing(stage: Stage) -> None:
    stage.begin(POINT._replace(format="accelerate"))
    await stage.say(1, 32)
    await stage.looked()
    assert stage.posted == []
    await stage.watch.close()


async def test_what_a_refuted_attempt_said_is_no_measure_for_the_next(stage: Stage) -> None:
    stage.begin(NOWHERE)
    await stage.say(101, 60)
    await stage.watch.facts()
    stage.begin(POINT)
    await stage.say(151, 4)
    await stage.say(155, 5, loss="float('nan')")
    await stage.until(lambda: stage.posted)
    await stage.watch.facts()
    stage.posted.clear()
    stage.begin(POINT._replace(step=100))
    await stage.say(101, 5)
    await stage.until(lambda: stage.posted)
    (told,) = stage.posted
    assert isinstance(told, words.Reentered)
    assert together((told.words,)) == Reentered(5, "steps, loss")
    await stage.watch.close()


async def test_a_start_from_nothing_is_not_watched(stage: Stage) -> None:
    stage.begin(NOWHERE)
    await stage.say(1, 32, loss="float('nan')")
    await asyncio.sleep(0)
    assert (stage.looks, stage.posted) == (0, [])
    await stage.watch.close()
