"""Ends of a rank that no other module plays: each with the right verdict, record, bundle, budget and node action."""

from __future__ import annotations

import signal

import pytest
from command.cluster import Place
from command.outcome import Expected, check, keep_job

pytestmark = pytest.mark.process

# Rank 1 does as it is told in the first round; the others wait for it.
ENDS = """
import os, signal, sys, time
first = os.environ["REMUSTER_ROUND"] == "1"
if first and os.environ["RANK"] == "1":
    %s
if first:
    time.sleep(60)
"""


def test_a_plain_sigkill_is_of_unknown_origin_and_that_is_said(place: Place) -> None:
    keep_job(place)
    script = place.script("t.py", ENDS % "os.kill(os.getpid(), signal.SIGKILL)")
    node = place.command("--nproc-per-node", "2", "--max-restarts", "1", script)
    assert node.exit_code() == 0, node.say()
    record = check(place, Expected("killed_unknown", 1, "exit status", "retried", "unknown", first=(1,)))
    assert "killed, and nothing says by whom" in record["verdict"]["sentence"]
    assert record["verdict"]["confidence"] == "guess"
    assert record["exit_codes"]["1"] == -signal.SIGKILL


def test_a_loss_that_is_not_a_number_is_not_tried_again(place: Place) -> None:
    """The words of DETR's training loop, and many others'."""
    keep_job(place)
    script = place.script("t.py", ENDS % "print('Loss is nan, stopping training', file=sys.stderr); sys.exit(1)")
    node = place.command("--nproc-per-node", "2", "--max-restarts", "3", script)
    assert node.exit_code() == 1, node.say()
    record = check(place, Expected("nan_loss", 1, "last lines", first=(1,)))
    assert record["decision"] == "nan_loss: a restart gives the same"


@pytest.mark.drill  # for its length
def test_a_loss_that_is_not_a_number_and_raises_is_tried_once_more(place: Place) -> None:
    keep_job(place)
    script = place.script("t.py", ENDS % "raise FloatingPointError('loss is nan at step 7')")
    node = place.command("--nproc-per-node", "2", "--max-restarts", "3", script)
    assert node.exit_code() == 0, node.say()
    check(place, Expected("nan_loss", 1, "last lines", "retried", "numerical", first=(1,)))


def test_a_rank_that_exits_0_early_is_the_one_that_the_others_wait_for(place: Place) -> None:
    """Red when ``judge`` asks no ``left_early``: then nobody is named."""
    keep_job(place)
    args = ("--nproc-per-node", "3", "--hang-timeout", "1", "--max-restarts", "1")
    node = place.command(*args, place.script("t.py", ENDS % "sys.exit(0)"))
    assert node.exit_code() == 0, node.say()
    record = check(place, Expected("rank_hang", 1, "exit status", "retried", "hang"))
    assert record["verdict"]["sentence"].endswith("left early: it exited 0 while the others went on")


LEAVES = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(10000):
    if step == 3 and os.environ["RANK"] == "1":
        os._exit(0)
    dist.all_reduce(torch.ones(4))
"""


@pytest.mark.drill
def test_a_rank_that_exits_0_early_under_gloo_is_named_and_not_who_lost_it(place: Place) -> None:
    """Red when a cry about a closed connection decides whose the failure is."""
    keep_job(place)
    node = place.command("--nproc-per-node", "3", place.script("t.py", LEAVES))
    assert node.exit_code(60) == 75, node.say()
    record = check(place, Expected("rank_hang", 1, "exit status", first=(0, 2)))
    assert {victim["rank"] for victim in record["verdict"]["victims"]} <= {0, 2}
