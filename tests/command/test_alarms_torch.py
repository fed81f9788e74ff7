"""Torch itself, over gloo: what it writes when a wait runs out, and how a user's exception ends a rank."""

from __future__ import annotations

import signal

import pytest
from command.cluster import Place
from command.outcome import Expected, check, keep_job

pytestmark = pytest.mark.process

# Rank 0 waits for rank 1, which is elsewhere; its wait runs out after 4 s, it logs it, and hangs.
WAITS = """
import datetime, logging, os, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
dist.barrier()
if os.environ["RANK"] == "1":
    time.sleep(600)
try:
    dist.all_reduce(torch.ones(4))
except RuntimeError:
    logging.exception("the step failed")
time.sleep(600)
"""


@pytest.mark.drill
def test_b26_a_wait_over_gloo_that_ran_out_in_a_living_rank_ends_the_round(place: Place) -> None:
    """The rank that reports first is a victim: the one that is silent is named."""
    keep_job(place)
    node = place.command("--nproc-per-node", "2", "--alarm-window", "1", place.script("t.py", WAITS))
    assert node.exit_code(60) == 75, node.say()
    record = check(place, Expected("rank_hang", 1, "last lines"))
    (early,) = (fact for one in record["evidence"] for fact in one["facts"] if fact["is"] == "early")
    assert (early["rank"], early["sign"]) == (0, "gloo-timeout")


# The threads of the process group are still there when the interpreter ends.
RAISES = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(10000):
    dist.all_reduce(torch.ones(1000))
    if step == 3 and os.environ["RANK"] == "1":
        raise ValueError("boom")
"""


@pytest.mark.drill
def test_b27_a_users_exception_under_gloo_is_the_users_however_the_rank_ends(place: Place) -> None:
    """Rank 1 ends with SIGABRT or with 1, as its threads have it: the traceback decides."""
    keep_job(place)
    node = place.command("--nproc-per-node", "2", place.script("t.py", RAISES))
    code = node.exit_code(60)
    record = check(place, Expected("user_exception", 1, "last lines", first=(1,)))
    assert code in (1, 128 + signal.SIGABRT), node.say()
    assert "ValueError: boom" in record["report"]


# The same where it always ends so: the exception is told, and the process aborts.
ABORTS = """
import os, signal, sys, time, traceback
if os.environ["RANK"] == "1":
    try:
        raise ValueError("boom")
    except ValueError:
        traceback.print_exc()
    print("terminate called without an active exception", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGABRT)
time.sleep(600)
"""


def test_b27_an_abort_after_a_traceback_is_the_users(place: Place) -> None:
    keep_job(place)
    node = place.command("--nproc-per-node", "2", place.script("t.py", ABORTS))
    assert node.exit_code() == 128 + signal.SIGABRT, node.say()
    record = check(place, Expected("user_exception", 1, "last lines", first=(1,)))
    assert record["exit_codes"]["1"] == -signal.SIGABRT
