"""The agent's side of the quarantine, on a store in memory: what it writes, tells and says."""

from __future__ import annotations

import asyncio
import time

import pytest

from remuster.agent.wards import Suspect, Wards
from remuster.health.evidence import Fact, NodeEvidence, Pace, RankExit, RoundEvidence, Told
from remuster.health.observed import Gpu, Position, Silence, Slow
from remuster.health.suspicion import suspicion
from remuster.health.verdict import Verdict
from remuster.rendezvous import quarantine as q
from remuster.rendezvous.errors import TransientError
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.records import Incarnation, Node, NodeId, Round, encode
from remuster.rendezvous.store import Put, Range, Txn

KEYS = Keys("run")
A, B = NodeId("a"), NodeId("b")
HOSTS = {A: "ha~1", B: "hb~2"}
SUSPECT = Suspect(A, "run/3", "gpu_lost: the GPU is gone", True)


async def met(*nodes: NodeId) -> MemoryStore:
    """Return a store in which these nodes have joined."""
    store = MemoryStore()
    for i, node in enumerate(nodes, 7):
        record = Node(Incarnation(i), "m", "b", "10.0.0.1", 1, Round(1), host=HOSTS[node])
        await store.grant(60, i)
        await store.txn(Txn((), (Put(KEYS.node(node), encode(record), i),)))
    return store


async def put(store: MemoryStore, bar: q.Bar) -> None:
    await store.txn(Txn((), (Put(f"{KEYS.root}{q.QUARANTINE}{bar.host}", q.encode(bar)),)))


def barred(host: str, for_s: int) -> q.Bar:
    now = int(time.time())
    return q.added(host, "fan", now + for_s, None, now)


async def test_a_host_is_made_known_once() -> None:
    store, said = await met(A), list[str]()
    wards = Wards(store, KEYS, said.append)
    for _ in range(2):
        await wards.introduce("ha~1", "10.0.0.1")
    kv = (await store.range(f"{KEYS.root}{q.HOSTS}ha~1")).one()
    assert kv is not None
    assert q.decode_known(kv).address == "10.0.0.1"
    assert kv.create_revision == kv.mod_revision
    assert not said


async def test_an_offence_is_written_and_bars_the_host_where_the_job_can_go_on() -> None:
    store, said = await met(A, B), list[str]()
    wards = Wards(store, KEYS, said.append)
    assert await wards.offend(SUSPECT, least=2) == ""
    assert "too few nodes without it" in said[-1]
    assert await wards.offend(SUSPECT._replace(by="run/4"), least=1) == "ha~1"
    assert await wards.barred() == {"ha~1"}
    assert "ha~1 is in quarantine for 1 h: gpu_lost" in said[-1]
    assert await wards.offend(SUSPECT._replace(by="run/5"), least=1) == "ha~1"  # as it is already


async def test_several_nodes_of_one_host_are_no_replacement_for_each_other() -> None:
    store = await met(A)
    record = Node(Incarnation(9), "m", "b", "10.0.0.1", 1, Round(1), host="ha~1")
    await store.grant(60, 9)
    await store.txn(Txn((), (Put(KEYS.node(B), encode(record), 9),)))
    assert await Wards(store, KEYS, list[str]().append).offend(SUSPECT, least=1) == ""


async def test_hosts_that_are_barred_already_do_not_take_part_in_what_is_enough() -> None:
    store, said = await met(A, B), list[str]()
    await put(store, barred("hb~2", 3600))
    assert await Wards(store, KEYS, said.append).offend(SUSPECT, least=1) == ""
    assert "too few nodes without it" in said[-1]


async def test_a_node_that_has_gone_is_not_held_to_account() -> None:
    assert await Wards(await met(B), KEYS, list[str]().append).offend(SUSPECT, least=1) == ""


async def test_the_leader_is_told_of_every_change_and_of_the_end_of_a_bar() -> None:
    store, told = await met(A, B), asyncio.Queue[frozenset[str]]()
    work = asyncio.ensure_future(Wards(store, KEYS, list[str]().append).follow(told.put_nowait))
    assert await asyncio.wait_for(told.get(), 10) == frozenset()
    await put(store, barred("ha~1", 2))
    assert await asyncio.wait_for(told.get(), 10) == {"ha~1"}
    await put(store, barred("hb~2", 3600))
    assert await asyncio.wait_for(told.get(), 10) == {"ha~1", "hb~2"}
    assert await asyncio.wait_for(told.get(), 10) == {"hb~2"}  # by the clock alone
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_what_earlier_launches_held_against_hosts_bars_them_again_unless_the_store_knows_better() -> None:
    """Red without ``restore``, when it replaces what stands there, and when it is done more than once."""
    store, said, now = await met(A, B), list[str](), int(time.time())
    old = barred("hc~3", 3600)._replace(at=now - q.FORGOTTEN_S - 60)
    await put(store, q.lifted(barred("hb~2", 3600), now))
    wards = Wards(store, KEYS, said.append, (barred("ha~1", 3600), barred("hb~2", 3600), old))
    await wards.restore()
    assert await wards.barred() == {"ha~1"}
    await put(store, q.lifted(barred("ha~1", 3600), now))
    await wards.restore()
    assert await wards.barred() == frozenset()
    assert said == []


async def test_a_barred_host_says_why_and_until_when_and_when_it_is_over() -> None:
    store, said = await met(A), asyncio.Queue[str]()
    await put(store, barred("ha~1", 3600))
    work = asyncio.ensure_future(Wards(store, KEYS, said.put_nowait).attend("ha~1", "10.0.0.1"))
    words = await asyncio.wait_for(said.get(), 10)
    assert words.startswith("this host is in quarantine until 20")
    assert "UTC: fan; it takes part in no" in words
    assert words.endswith("remuster quarantine lift ha~1, at this run's etcd, lets it in")
    await put(store, q.lifted(barred("ha~1", 3600), int(time.time())))
    assert await asyncio.wait_for(said.get(), 10) == "this host is no longer in quarantine"
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_noise_bars_nobody_and_is_said() -> None:
    store, said = await met(A), list[str]()
    await store.txn(Txn((), (Put(f"{KEYS.root}{q.QUARANTINE}ha~1", b"noise"),)))
    assert await Wards(store, KEYS, said.append).barred() == frozenset()
    assert "cannot be read and bars nobody: /remuster/~quarantine/ha~1: not JSON" in said[0]


class Deaf(MemoryStore):
    async def range(self, key: str, end: str | None = None) -> Range:
        raise TransientError("no answer")


async def test_a_store_that_does_not_answer_holds_nothing_up() -> None:
    said: list[str] = []
    wards = Wards(Deaf(), KEYS, said.append)
    assert await wards.offend(SUSPECT, least=1) == ""
    assert await wards.barred() == frozenset()
    assert said == [
        "what was held against a is not in the store: no answer",
        "the quarantine could not be read: no answer",
    ]


@pytest.mark.parametrize(
    ("cls", "node", "fault", "expected"),
    [
        ("gpu_lost", "a", True, True),
        ("gpu_ecc", "a", True, True),
        ("ib_link_error", "a", True, False),
        ("gpu_nvlink", "a", True, False),
        ("gpu_lost", "", True, None),
        ("user_import", "a", False, None),
        ("node_lost", "a", True, None),
        ("killed_unknown", "a", True, None),
        ("success", "", False, None),
    ],
)
def test_which_verdicts_speak_against_a_host(cls: str, node: str, fault: bool, expected: bool | None) -> None:
    own = NodeEvidence("a", (RankExit(0, 0, 4711, 1, 9.0),))
    round_ = RoundEvidence(1, (own, NodeEvidence("b", (RankExit(1, 0, 4712, 1, 9.0),))), (("a", 1), ("b", 1)))
    assert suspicion(Verdict(cls, "x", node=node, node_fault=fault), round_) is expected


def test_that_no_other_node_showed_it_speaks_against_no_host() -> None:
    """The others were stopped: an error that all would have shown comes first on one of them, too."""
    own = NodeEvidence("a", (RankExit(0, 0, 4711, 1, 9.0),))
    round_ = RoundEvidence(1, (own, NodeEvidence("b", (RankExit(1, 0, 4712, -15, 9.1, True),))), (("a", 1), ("b", 1)))
    verdict = Verdict("user_import", "user", node="a", node_fault=True, compared=True)
    assert suspicion(verdict, round_) is None


@pytest.mark.parametrize(
    "facts",
    [
        (),
        (Silence(0, 7, 60.0, 30.0, "heartbeat"), Position(0, "0", 5, 4), Slow(0, 2.0)),  # what others waited for
        (RankExit(0, 0, 4711, -15, 9.0, stopping=True), Told(9.1), Pace(1, 7, 1.0)),
    ],
)
def test_a_node_that_its_peers_alone_blame_is_never_excluded_at_once(facts: tuple[Fact, ...]) -> None:
    peer = NodeEvidence("b", (RankExit(1, 0, 4712, 1, 9.0, tail=("NCCL error: remote process exited",)),))
    members = (("a", 1), ("b", 1))
    verdict = Verdict("gpu_lost", "hardware", node="a", node_fault=True)
    assert suspicion(verdict, RoundEvidence(1, (NodeEvidence("a", facts), peer), members)) is False
    said = (*facts, Gpu("GPU-1", "0000:3b:00.0", 0, lost=True))
    assert suspicion(verdict, RoundEvidence(1, (NodeEvidence("a", said), peer), members)) is True
