"""What ranks say of their steps arrives, from processes of their own; and does no harm where nobody listens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import remuster
from remuster.agent.beats import Beats
from remuster.health.evidence import Pace

SAY = "import sys, remuster; [remuster.heartbeat(int(step)) for step in sys.argv[1:]]"


@pytest.fixture
def beats() -> Iterator[Beats]:
    page = Beats(7, 3)
    yield page
    page.close()


def say(address: str, *steps: int, round: int = 7) -> None:
    env = {**os.environ, "REMUSTER_BEATS": address, "REMUSTER_ROUND": str(round)}
    subprocess.run([sys.executable, "-c", SAY, *map(str, steps)], env=env, check=True, timeout=30)


def test_the_newest_step_of_each_rank_and_when_it_said_its_first(beats: Beats) -> None:
    assert beats.read() == {}
    assert beats.pace(0.0) is None
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    say(beats.address(0), 100, 101, 136)
    between = time.clock_gettime(time.CLOCK_BOOTTIME)
    say(beats.address(2), 135)
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    said = beats.read()
    assert {local: beat.step for local, beat in said.items()} == {0: 136, 2: 135}
    assert before < said[0].first_s < said[0].last_s < between < said[2].first_s == said[2].last_s < after
    pace = beats.pace(before)
    assert pace == Pace(2, 135, round(said[2].first_s - before, 6))  # what all of them did, and the last one's first


def test_a_rank_that_begins_at_nothing_has_done_no_step(beats: Beats) -> None:
    say(beats.address(1), 0)
    assert beats.read()[1].step == 0


def test_a_rank_that_would_cut_the_page_or_says_nonsense_harms_nobody(beats: Beats) -> None:
    """Red when the page is not sealed."""
    say(beats.address(0), 5)
    say(beats.address(1), 6)
    path = beats.address(0).rpartition(":")[0]
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, (-5).to_bytes(8, sys.byteorder, signed=True), 8)
        assert {local: beat.step for local, beat in beats.read().items()} == {1: 6}
        with pytest.raises(PermissionError):  # its siblings, which have mapped it, would die of that
            os.ftruncate(fd, 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 4096)
    finally:
        os.close(fd)
    assert {local: beat.step for local, beat in beats.read().items()} == {1: 6}


def test_a_round_whose_number_begins_like_another_is_another() -> None:
    page = Beats(71, 1)
    say(page.address(0), 5, round=7)
    assert page.read() == {}
    page.close()


def test_whoever_is_left_of_an_earlier_round_says_nothing_into_this_one(beats: Beats) -> None:
    say(beats.address(1), 5, round=6)
    assert beats.read() == {}


@pytest.mark.parametrize("address", ["", "nonsense", "/proc/1/fd/7:x", "/nowhere:0", "/dev/null:0"])
def test_where_nobody_listens_nothing_happens(address: str) -> None:
    say(address, 1, 2, 3)


def test_a_slot_that_is_not_there_is_nobodys(beats: Beats) -> None:
    say(beats.address(3), 1)
    assert beats.read() == {}


def test_a_page_that_has_gone_does_not_end_the_training() -> None:
    page = Beats(7, 1)
    address = page.address(0)
    page.close()
    say(address, 1)


@pytest.mark.parametrize("step", [-1, 1 << 63])
def test_what_is_no_number_of_steps_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match="not a number of steps"):
        remuster.heartbeat(step)
