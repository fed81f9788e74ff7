"""What is done beside the job waits until the ranks run, is done by the agent that leads, and is whole at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuster.agent.aside import QUIET_S, Aside, Seen
from remuster.agent.files import FileThread
from remuster.agent.ledger import Ledger, Place
from remuster.agent.spec import JobSpec
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import Job, Outcome, Phase, Round
from remuster.rendezvous.store import Put, Txn

RUNNING = Job(Phase.RUNNING, Round(3), 1, 1, "one", formed=Round(3))
DONE = replace(RUNNING, phase=Phase.DONE, outcome=Outcome(0, "every rank exited 0"))


class Desk:
    """An agent's ledger with a store in memory; ``told`` is where its listener writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.said: list[str] = []
        self.files = FileThread("records")
        self.store = MemoryStore()
        self.keys = Keys("run-7")
        self.told = folder / "told"
        hook = folder / "hook"
        hook.write_text('#!/bin/sh\ncat >> "$1"\n')
        hook.chmod(0o700)
        self.spec = JobSpec(
            *(1, 1, 1, "run-7", "t.py"), checkpoint_dir=folder / "kept", on_event=(str(hook), str(self.told))
        )

    def ledger(self) -> Ledger:
        place = Place(
            "a", self.folder, self.store, self.keys, self.files, self.spared, self.said.append, self.said.append
        )
        return Ledger(self.spec, place, None, 100.0)

    def spared(self, _: str) -> Callable[[tuple[int, ...]], None]:
        return lambda _: None

    async def record(self, n: int, **fields: Any) -> None:
        value = {"round": n, "attempt": n - 1, "state": "retried", **fields}
        await self.store.txn(Txn((), (Put(self.keys.attempt(Round(n)), json.dumps(value).encode()),)))

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.told.read_text().splitlines()] if self.told.exists() else []

    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    def beside(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "kept").glob(".remuster/run-7/*"))


async def test_nothing_is_done_before_there_is_time(tmp_path: Path) -> None:
    desk, made = Desk(tmp_path), list[Ledger]()
    aside = Aside(lambda: made.append(desk.ledger()) or made[0])
    for n in range(1, 4):
        aside.job_seen(replace(RUNNING, round=Round(n), formed=Round(n)), leading=True)
    await asyncio.sleep(0)
    assert made == []
    end = asyncio.get_running_loop().time() + 10 * QUIET_S
    while not made:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.01)
    aside.job_seen(DONE, leading=True)
    await aside.settle()
    assert len(made) == 1
    assert desk.beside() == ["job.json", "summary-round-3.json"]
    assert json.loads((tmp_path / "kept/.remuster/run-7/job.json").read_text())["job"]["phase"] == "D"


async def test_an_agent_that_saw_nothing_writes_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await Aside(desk.ledger).settle()
    assert not (tmp_path / "summary.json").exists()


async def test_only_the_leader_tells_and_copies(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    record = {"round": 2, "attempt": 1, "decision": "again", "budget_left": {"node": 1}, "judged_by": "b"}
    for leading in (False, True):
        ledger = desk.ledger()
        ledger.job_seen(Seen(RUNNING, leading, 100.5))
        ledger.record({**record, "judged_by": "a" if leading else "b"})
        ledger.job_seen(Seen(replace(DONE, phase=Phase.FAILED, outcome=Outcome(3, "x")), leading, 101.0))
        await ledger.settle()
        assert sorted(desk.events()) == (["budget", "stop"] if leading else [])
        assert desk.beside() == (["job.json", "summary-round-3.json"] if leading else [])
        assert desk.summary()["outcome"]["exit_code"] == 3
    assert desk.said == []


def sick(n: int, judge: str) -> dict[str, Any]:
    verdict = {"class": "gpu_ecc", "node": "b", "node_fault": True, "sentence": "rank 1 on b found an ECC error"}
    members = [{"node": name} for name in "abc"]
    action = {"node_action": "quarantine", "quarantined": "host-b~12"}
    return {"round": n, "attempt": n - 1, "members": members, "verdict": verdict, "judged_by": judge, **action}


async def test_a_host_in_quarantine_is_drained_by_the_agent_that_judged_and_remembered_by_all(tmp_path: Path) -> None:
    """Red when every agent drains; when who took part again is still blamed (``exclude.after``)."""
    for judge, drained in (("a", 1), ("c", 0)):
        desk = Desk(tmp_path / judge)
        drained_by = desk.folder / "drained"
        command = ("sh", "-c", 'echo "$0" >> "$1"', "{host}: {reason}", str(drained_by))
        desk.spec = replace(desk.spec, drain_command=command)
        aside = Aside(desk.ledger)
        aside.job_seen(RUNNING, leading=judge == "a")
        aside.record(sick(1, judge))
        aside.record(sick(1, judge))
        await aside.settle()
        said = "host-b: remuster run-7: gpu_ecc: rank 1 on b found an ECC error\n"
        assert (drained_by.read_text() if drained else "") == said * drained
        assert drained_by.exists() == bool(drained)
        assert [one.node for one in aside.bad()] == ["b"]
        assert desk.summary()["drained"] == [{"host": "host-b~12", "outcome": "done"}] * drained
        assert len([line for line in desk.said if "drain_command" in line]) == drained
    aside = Aside(desk.ledger)
    aside.job_seen(RUNNING, leading=False)
    aside.record(sick(1, "c"))
    aside.record({**sick(2, "c"), "verdict": {"class": "user_exception", "node": "a"}, "node_action": None})
    await aside.settle()
    assert aside.bad() == ()


async def test_a_late_agent_reads_what_it_did_not_see(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.record(1, newest_step=50)
    await desk.record(2)
    ledger = desk.ledger()
    ledger.job_seen(Seen(RUNNING, False, 100.5))
    ledger.record({"round": 3, "attempt": 2, "state": "done"})
    ledger.job_seen(Seen(DONE, False, 101.0))
    await ledger.settle()
    summary = desk.summary()
    assert [one["round"] for one in summary["attempts"]] == [1, 2, 3]
    assert summary["queue_ms"] is None, "it did not see the first round form"


async def test_the_wait_for_the_first_round(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    ledger = desk.ledger()
    ledger.job_seen(Seen(replace(RUNNING, first=Round(3)), False, 100.5))
    await ledger.settle()
    assert (desk.summary()["queue_ms"], desk.summary()["outcome"]) == (500.0, None)


async def test_a_run_directory_that_has_gone_is_said(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "summary.json").mkdir()
    ledger = desk.ledger()
    ledger.job_seen(Seen(DONE, False, 100.5))
    await ledger.settle()
    assert f"the summary was not written to {tmp_path / 'summary.json'}" in desk.said[0]
