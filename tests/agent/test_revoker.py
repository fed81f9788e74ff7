"""What is said and revoked in a dead agent's name, on a store without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from remuster.agent.letter import Letter, write
from remuster.agent.page import Page
from remuster.agent.revoker import Dead, NotOurs, give_up
from remuster.agent.spec import Backend, Embedded, JobSpec, StoreAccess
from remuster.health import wire
from remuster.health.evidence import AgentDied, Fault
from remuster.rendezvous import writes
from remuster.rendezvous.errors import BadRecord
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import (
    Incarnation,
    Job,
    Member,
    Node,
    NodeId,
    Outcome,
    Phase,
    Roster,
    Round,
    encode,
)
from remuster.rendezvous.store import Put, Txn, TxnResult, prefix_end
from remuster.rendezvous.writes import Kind, Own, Write

KEYS = Keys("run")
DEAD, OTHER = Own(NodeId("a"), Incarnation(7)), Own(NodeId("b"), Incarnation(8))
LETTER = Letter("run", "/remuster/", "a", (("h", 1),), StoreAccess(), None)
N = Round(3)
WORD = KEYS.report("evidence", N, DEAD.node, DEAD.inc)
JOB = Job(Phase.RUNNING, N, 1, 2, "one", formed=N, master="a:1")
GONE = Dead(DEAD.inc, -9, "m")


class Watched(MemoryStore):
    """Tells before each transaction that writes, and counts what was revoked."""

    def __init__(self) -> None:
        super().__init__(never_expire=True)
        self.before_write: list[Callable[[], Txn]] = []  # what somebody else writes just before
        self.revoked: list[int] = []

    async def txn(self, txn: Txn) -> TxnResult:
        """Apply ``txn``, after what somebody else was faster with."""
        if self.before_write and any(isinstance(op, Put) for op in txn.then):
            await super().txn(self.before_write.pop(0)())
        return await super().txn(txn)

    async def revoke(self, lease_id: int) -> None:
        """Revoke, and remember it."""
        self.revoked.append(lease_id)
        await super().revoke(lease_id)

    async def keys(self) -> set[str]:
        """Return the names of all keys of the run."""
        return {kv.key for kv in (await self.range(KEYS.prefix, prefix_end(KEYS.prefix))).items}

    async def said(self) -> tuple[object, ...]:
        """Return the facts in the dead agent's evidence of the round."""
        kv = (await self.range(WORD)).one()
        return () if kv is None else wire.decode(kv.value)


async def world(job: Job | None = JOB, machine: str = "m", members: tuple[Own, ...] = (DEAD, OTHER)) -> Watched:
    """Return a store in which a and b have joined."""
    store = Watched()
    for own in (DEAD, OTHER):
        await store.grant(9, own.inc)
        record = Node(own.inc, machine, "boot", "10.0.0.1", 1, N)
        await store.txn(Txn((), (Put(KEYS.node(own.node), encode(record), own.inc),)))
    if job is not None:
        roster = Roster(N, tuple(Member(own.node, own.inc, "m", 1, "10.0.0.1") for own in members))
        await store.txn(Txn((), (Put(KEYS.job, encode(job)), Put(KEYS.roster(N), encode(roster)))))
    return store


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.STOPPING])
async def test_a_member_of_the_round_is_spoken_for_and_then_revoked(phase: Phase) -> None:
    store = await world(replace(JOB, phase=phase))
    before = await store.keys()
    await give_up(store, LETTER, GONE)
    assert await store.said() == (AgentDied(-9),)
    assert await store.keys() == before - {KEYS.node(DEAD.node)} | {WORD}
    assert store.revoked == [DEAD.inc]


@pytest.mark.parametrize(
    "job",
    [
        None,
        replace(JOB, phase=Phase.FORMING, formed=Round(2)),
        replace(JOB, phase=Phase.DONE, outcome=Outcome(0, "done")),
        replace(JOB, phase=Phase.FAILED, outcome=Outcome(1, "failed")),
    ],
    ids=["absent", "forming", "done", "failed"],
)
async def test_between_rounds_there_is_nothing_to_say(job: Job | None) -> None:
    store = await world(job)
    await give_up(store, LETTER, GONE)
    assert (await store.said(), store.revoked) == ((), [DEAD.inc])


async def test_a_spare_is_revoked_without_a_word() -> None:
    store = await world(members=(OTHER,))
    await give_up(store, LETTER, GONE)
    assert (await store.said(), store.revoked) == ((), [DEAD.inc])


@pytest.mark.parametrize("kind", [Kind.EVIDENCE, Kind.FINISHED])
async def test_what_the_agent_said_itself_stands(kind: Kind) -> None:
    store = await world()
    await store.txn(writes.report(KEYS, DEAD, kind, N, wire.encode((Fault("its own"),))).txn)
    await give_up(store, LETTER, GONE)
    assert await store.said() == ((Fault("its own"),) if kind is Kind.EVIDENCE else ())
    assert store.revoked == [DEAD.inc]


@pytest.mark.parametrize("lease", [6, 9])
async def test_another_incarnations_lease_is_left_alone(lease: int) -> None:
    """The agent had lost it, or had not joined with it: nobody waits for it."""
    store = await world()
    before = await store.keys()
    await give_up(store, LETTER, GONE._replace(lease=lease))
    assert (await store.keys(), store.revoked) == (before, [])


async def test_another_machines_lease_is_never_revoked() -> None:
    store = await world(machine="elsewhere")
    before = await store.keys()
    with pytest.raises(NotOurs, match="nodes/a names another machine, elsewhere"):
        await give_up(store, LETTER, GONE)
    assert (await store.keys(), store.revoked) == (before, [])


async def test_garbage_under_its_name_is_said() -> None:
    store = await world()
    await store.txn(Txn((), (Put(KEYS.node(DEAD.node), b"garbage", DEAD.inc),)))
    with pytest.raises(BadRecord, match="nodes/a"):
        await give_up(store, LETTER, GONE)
    assert store.revoked == []


async def test_it_looks_again_when_the_job_moves_on_meanwhile() -> None:
    """A word about a round that is over would stay in the store for ever."""
    store = await world()
    failed = replace(JOB, phase=Phase.FAILED, outcome=Outcome(1, "failed"))
    store.before_write = [
        lambda: Txn((), (Put(KEYS.job, encode(replace(JOB, master="a:2"))),)),
        lambda: Txn((), (Put(KEYS.job, encode(failed)),)),
    ]
    await give_up(store, LETTER, GONE)
    assert (store.before_write, await store.said(), store.revoked) == ([], (), [DEAD.inc])


async def test_a_late_write_of_the_dead_agent_is_void() -> None:
    store = await world()
    kv = (await store.range(KEYS.job)).one()
    assert kv is not None
    late: list[Write] = [
        writes.report(KEYS, DEAD, Kind.STARTED, N, b"{}"),
        writes.last_word(KEYS, DEAD, writes.Seen(JOB, kv.mod_revision), b"late"),
    ]
    await give_up(store, LETTER, GONE)
    assert [(await store.txn(write.txn)).succeeded for write in late] == [False, False]


def spec(**changes: object) -> JobSpec:
    return JobSpec(1, 2, 1, "r", "t.py", backend=Backend.ETCD, endpoints=(("h", 1), ("::1", 2)), **changes)  # type: ignore[arg-type]


def test_a_letter_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    access = StoreAccess(Path("ca"), tmp_path / "cert", tmp_path / "key", "worker", Path("password"))
    found = Letter.decode(write(spec(store=access), "näme#2"))
    at = StoreAccess(tmp_path / "ca", tmp_path / "cert", tmp_path / "key", "worker", tmp_path / "password")
    assert found == Letter("r", "/remuster/", "näme#2", (("h", 1), ("::1", 2)), at, None)
    embedded = Embedded("h", 1, token_file=Path("token"))
    found = Letter.decode(write(spec(embedded=embedded), "n"))
    assert (found.access, found.token_file) == (StoreAccess(), tmp_path / "token")


def test_a_letter_on_the_page() -> None:
    page = Page()
    assert (page.letter, page.lease) == (b"", 0)
    page.set_lease((1 << 62) - 1)
    page.set_spared(tuple(range(1, 65)))
    page.set_letter(b"x" * 65_000)
    page.set_guardian(2**31 - 1)
    page.set(12.5)
    assert (page.letter, page.lease, page.spared) == (b"x" * 65_000, (1 << 62) - 1, tuple(range(1, 65)))
    assert (page.guardian, page.deadline_s, page.minder) == (2**31 - 1, 12.5, 0)


def test_a_letter_that_is_too_long_is_none() -> None:
    page = Page()
    page.set_letter(b"x" * (1 << 16))
    assert page.letter == b""
