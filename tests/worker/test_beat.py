"""What ranks say of their steps arrives, from processes of their own; and does no harm where nobody listens."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import remuster
from remuster.agent.beats import Beats
from remuster.health.evidence import Entry, Pace, Said
from remuster.worker.beat import LATEST, OPENING

SAY = "import sys, remuster; [remuster.heartbeat(int(step)) for step in sys.argv[1:]]"


@pytest.fixture
def beats() -> Iterator[Beats]:
    page = Beats(7, 3)
    yield page
    page.close()


def say(address: str, *steps: int, round: int = 7) -> None:
    env = {**os.environ, "REMUSTER_BEATS": address, "REMUSTER_ROUND": str(round)}
    subprocess.run([sys.executable, "-c", SAY, *map(str, steps)], env=env, check=True, timeout=30)


def run(address: str, *lines: str) -> str:
    """Run a program as the rank that has that address; return what it printed."""
    env = {**os.environ, "REMUSTER_BEATS": address, "REMUSTER_ROUND": "7"}
    argv = [sys.executable, "-c", "\n".join(("import remuster", *lines))]
    return subprocess.run(argv, env=env, check=True, timeout=30, capture_output=True, text=True).stdout


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


def test_what_a_rank_gave_with_its_first_and_its_last_steps_is_read(beats: Beats) -> None:
    assert beats.said(1) == Said()
    run(beats.address(1), "for s in range(100, 200): remuster.heartbeat(s, loss=1 / s, lr=s)")
    said = beats.said(1)
    assert said.first == tuple(Entry(s, 1 / s, None, s) for s in range(100, 100 + OPENING))
    # but the one whose place the rank might just be writing into
    assert said.last == tuple(Entry(s, 1 / s, None, s) for s in range(201 - LATEST, 200))
    assert beats.said(0) == beats.said(2) == Said()


@pytest.mark.parametrize("count", [1, OPENING, OPENING + 1, OPENING + LATEST - 1])
def test_the_last_steps_follow_one_another_from_the_first_on(beats: Beats, count: int) -> None:
    run(beats.address(0), f"for s in range({count}): remuster.heartbeat(s, grad_norm=s)")
    last = [entry.step for entry in beats.said(0).last]
    assert last == list(range(max(0, count - LATEST), count))


def test_a_step_said_again_is_one_step_and_what_was_not_given_is_no_nan(beats: Beats) -> None:
    """Long saves say their step again and again."""
    words = (
        "remuster.heartbeat(7, loss=1.5)",
        "for _ in range(100): remuster.heartbeat(7)",
        "remuster.heartbeat(7, lr=0.5)",
        "remuster.heartbeat(8, loss=float('nan'), grad_norm=float('inf'))",
        "remuster.heartbeat(7)",
    )
    run(beats.address(0), *words)
    first, second, third = beats.said(0).first
    assert first == Entry(7, 1.5, None, 0.5)
    assert second.loss is not None
    assert math.isnan(second.loss)
    assert (second.step, second.grad_norm, second.lr) == (8, math.inf, None)
    assert third == Entry(7)
    assert beats.read()[0].times == 104


def test_what_float_takes_is_a_loss_and_what_it_does_not_is_refused_at_once(beats: Beats) -> None:
    class Scalar:
        def __float__(self) -> float:
            return 2.25

    remuster.heartbeat(1, loss=Scalar(), grad_norm=3, lr=True)  # and nobody listens
    run(beats.address(0), "import fractions; remuster.heartbeat(3, loss=fractions.Fraction(9, 4))")
    assert beats.said(0).first == (Entry(3, 2.25),)
    words = "grad_norm is list \\[1.0, 2.0\\], not a number: give one, or nothing"
    with pytest.raises(TypeError, match=words):
        remuster.heartbeat(1, grad_norm=[1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loss is str 'high', not a number"):
        remuster.heartbeat(1, loss="high")  # type: ignore[arg-type]


def test_a_rank_that_writes_nonsense_into_its_counts_costs_no_memory(beats: Beats) -> None:
    run(beats.address(0), "remuster.heartbeat(1)")
    fd = os.open(beats.address(0).rpartition(":")[0], os.O_RDWR)
    try:
        for count in (-1, 1 << 62):
            os.pwrite(fd, count.to_bytes(8, sys.byteorder, signed=True), 5 * 8)
            said = beats.said(0)
            assert len(said.first) <= OPENING
            assert len(said.last) <= LATEST
    finally:
        os.close(fd)


@pytest.mark.timing
def test_a_heartbeat_with_all_that_can_be_given_takes_less_than_two_microseconds(beats: Beats) -> None:
    timed = (
        "import time",
        "def said(n):",
        " began = time.process_time()",
        " for s in range(n): remuster.heartbeat(s, loss=0.5, grad_norm=1.5, lr=1e-3)",
        " return (time.process_time() - began) / n * 1e6",
        "said(1000)",
        "print(sorted(said(50_000) for _ in range(5))[2])",
    )
    assert float(run(beats.address(0), *timed)) < 2.0
