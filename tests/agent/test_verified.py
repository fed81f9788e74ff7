"""The last words after a stop notice: what the next launch will find among the checkpoints."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuster.agent.spec import JobSpec
from remuster.agent.verified import _rounds, bound_s, said, what_is_there
from remuster.checkpoint import publish
from remuster.checkpoint.layout import step_name
from remuster.checkpoint.resume import Choice
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import Job, Phase, Round, Suspect
from remuster.rendezvous.store import Put, Txn


@pytest.mark.parametrize(("ends_at", "bound"), [(0.0, 20.0), (110.0, 8.0), (1000.0, 20.0), (101.0, -1.0)])
def test_the_search_takes_no_longer_than_is_left(ends_at: float, bound: float) -> None:
    assert bound_s(100.0, ends_at) == bound


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (Choice("/a/step-7", 7, "manifest", "whole"), "step 7 verified (step-7): the next launch goes on from there"),
        (
            Choice("/a/step-7", 7, "manifest", "whole", (("step-8", "torn"),)),
            "step 7 verified (step-7): the next launch goes on from there; step-8 is passed over: torn",
        ),
        (Choice(), "nothing is there to go on from: the next launch begins anew (there is no checkpoint)"),
        (
            Choice(refused=(("step-8", "torn"),)),
            "nothing is there to go on from: the next launch begins anew (step-8 is passed over: torn)",
        ),
    ],
)
def test_what_is_said(choice: Choice, sentence: str) -> None:
    assert said(choice) == sentence


def ask(directory: Path | None, within_s: float = 20.0, hook: str | None = None, job: Job | None = None) -> str:
    async def play() -> str:
        store = MemoryStore()
        spec = JobSpec(1, 1, 1, "run", "t.py", checkpoint_dir=directory, resume_hook=hook)
        try:
            return await what_is_there(spec, store, Keys("run"), job, within_s)
        finally:
            await store.close()

    return asyncio.run(play())


def test_a_torn_step_is_named_and_the_one_before_it_is_taken(tmp_path: Path) -> None:
    """The command's own test with a notice has a whole one."""
    (tmp_path / "step-000000000008").mkdir()
    (tmp_path / "step-000000000008" / "manifest.json").write_text("{}")
    assert "the next launch begins anew (step-000000000008 is passed over: " in ask(tmp_path)


def test_what_is_suspect_is_passed_over_as_the_next_launch_does(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        with publish(step, tmp_path, gather=lambda one: [one], rank=0) as published:
            published.path("state").write_text("x")
    job = Job(Phase.FORMING, Round(5), 1, 1, "", suspects=(Suspect(step_name(30), 30, 3),))
    found = ask(tmp_path, job=job)
    assert found.startswith("step 20 verified (step-000000000020): the next launch goes on from there; ")
    assert "step-000000000030 is passed over: suspect: " in found
    job = Job(Phase.FORMING, Round(5), 1, 1, "", suspects=(Suspect(step_name(10), 10, 3),))
    assert ask(tmp_path, job=job).startswith(
        "nothing is there to go on from, and the next launch ends with that: no checkpoint older than "
    )


def test_where_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert (ask(None), ask(tmp_path, hook="a:b")) == ("", "")


def test_no_time_is_left(tmp_path: Path) -> None:
    assert ask(tmp_path, -1.0) == (
        "the newest checkpoint was not verified: 0 s were left for that; the next launch does it first"
    )


def test_a_roster_that_cannot_be_read_takes_nothing_from_the_history() -> None:
    """What is stale stays so: else the last words would call verified what the next launch refuses."""
    keys = Keys("run")

    async def play() -> tuple[object, object]:
        store = MemoryStore()
        try:
            await store.txn(Txn((), (Put(keys.history(Round(1)), b'{"path":"","step":5,"refused":[]}'),)))
            return await _rounds(store, keys, Job(Phase.STOPPING, Round(1), 1, 1, "one", formed=Round(1)))
        finally:
            await store.close()

    history, world = asyncio.run(play())
    assert (history, world) == (((Round(1), b'{"path":"","step":5,"refused":[]}'),), None)
