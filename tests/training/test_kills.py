"""kill -9 at random moments of saving: a whole step is chosen then, none is lost, and training goes on to the last bit.

One rank is killed after a random time from the beginning of a save, or at its k-th operation on the file system, and
the other with it; the next attempt resumes from what the agent's own search chooses. DDP and FSDP2 (DCP), saved at once
or behind training. Another order of kills: KILLS_SEED.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command.figures import FIGURE
from training.conftest import Attempt, batches, chosen, lines, said

SEED = int(os.environ.get("KILLS_SEED", "20261130"))
KILLS = 10  # of one run
BATCHES = KILLS * 2 * 3  # each kill comes in the first or second save of its attempt
LONGEST_S = 0.15  # a save takes less, unless the machine is busy
MOST_OPERATIONS = 70
KILLED, HUNG = -9, -99


@pytest.fixture(scope="session")
def whole(attempt: Attempt, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make the run of a kind that nothing interrupts."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("whole") / kind
            assert attempt(out=made[kind], kind=kind, batches=BATCHES, save_every=1000) == [0, 0], said(made[kind])
        return made[kind]

    return get


def storm(attempt: Attempt, whole: Path, out: Path, kind: str, seed: int) -> tuple[int, int]:
    """Kill up to ten times; return how often the victim had been killed, and how often while it was saving."""
    chance = random.Random(seed)
    job: dict[str, Any] = {"out": out, "kind": kind, "batches": BATCHES, "save_every": 3}
    path, step, killed, torn = "", -1, 0, 0
    (out / "checkpoints").mkdir(parents=True)
    for number in range(KILLS):
        mode = chance.choice(("sync", "async"))
        by_time = chance.random() < 0.5
        when = (
            {"delay_s": chance.uniform(0, LONGEST_S)}
            if by_time
            else {"at_operation": chance.randint(1, MOST_OPERATIONS)}
        )
        victim = {"victim": chance.randrange(2), "at_save": chance.randrange(2), **when}
        statuses = attempt(**job, mode=mode, attempt=number, resume=path, **victim)
        # The other rank may find its peer gone, and end by itself, before it is killed too.
        assert KILLED in statuses or statuses == [0, 0], (seed, number, statuses, said(out))
        assert HUNG not in statuses
        killed += KILLED in statuses
        choice = chosen(out)
        assert choice.refused == (), (seed, number, choice)
        promised = [int(text) for rank in (0, 1) for text in lines(out, rank, "saved")]
        assert choice.step >= max([step, *promised]), (seed, number, choice, said(out))
        torn += any(out.glob(f"checkpoints/*.tmp-{number}"))
        path, step = choice.path, choice.step
        if step == BATCHES:
            break
    assert attempt(**{**job, "save_every": BATCHES}, attempt=KILLS, resume=path) == [0, 0], (seed, said(out))
    for rank in (0, 1):
        assert batches(out, rank) == batches(whole, rank), seed
    return killed, torn


@pytest.mark.drill  # for its length; it needs no root
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_ten_kills(
    attempt: Attempt, whole: Callable[[str], Path], tmp_path: Path, kind: str, record_property: Callable[..., None]
) -> None:
    killed, torn = storm(attempt, whole(kind), tmp_path / "out", kind, SEED)
    record_property(
        FIGURE, f"{kind}: {killed} kills around saves, {torn} left a torn one; chosen steps whole, losses equal"
    )
    assert killed >= KILLS // 2


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_hundred_and_fifty_kills(
    attempt: Attempt, whole: Callable[[str], Path], tmp_path: Path, kind: str, record_property: Callable[..., None]
) -> None:
    began, killed, torn, seed = time.monotonic(), 0, 0, SEED
    while killed < 250:
        seed += 1
        more, left = storm(attempt, whole(kind), tmp_path / str(seed), kind, seed)
        killed, torn = killed + more, torn + left
    took = time.monotonic() - began
    record_property(FIGURE, f"{kind}: {killed} kills around saves, {torn} left a torn one, {took:.0f} s; losses equal")
