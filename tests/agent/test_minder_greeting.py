"""A node that waits for the store of its run: what it takes, what it refuses, and what it says."""

import asyncio
import json
from pathlib import Path

import pytest
from etcd_server import EtcdServer, free_ports

from remuster.agent.minder_greeting import FOREIGN_S, greet
from remuster.rendezvous.embedded import EmbeddedError, Seal
from remuster.rendezvous.errors import PermanentError, TransientError
from remuster.rendezvous.memory import MemoryStore
from remuster.rendezvous.store import Put, Txn

WHERE = "10.0.0.5:29500"
PREFIX = "/remuster/"
SEAL = Seal("r1", True, "node-1", "remuster 0.1.0")


class Failing:
    """A store whose first calls fail."""

    def __init__(self, store, *errors):
        self.store = store
        self.errors = list(errors)

    async def range(self, key, end=None):
        if self.errors:
            raise self.errors.pop(0)
        return await self.store.range(key, end)


async def made(**values):
    store = MemoryStore(never_expire=True)
    for name, value in values.items():
        key = {"seal": SEAL.key(PREFIX), "job": f"{PREFIX}r1/job"}[name]
        await store.txn(Txn((), (Put(key, value),)))
    return store


async def greeted(store, wanted="", timeout_s=5.0):
    said = []
    return await greet(store, PREFIX, WHERE, wanted, timeout_s, said.append), said


@pytest.mark.parametrize("wanted", ["", "r1"])
async def test_the_run_is_the_seals(wanted):
    assert await greeted(await made(seal=SEAL.encode()), wanted) == ("r1", [])
    running = json.dumps({"v": 1, "phase": "R"}).encode()
    assert await greeted(await made(seal=SEAL.encode(), job=running), wanted) == ("r1", [])


async def test_a_store_that_is_not_there_yet_is_waited_for_and_that_is_said_once():
    store = Failing(await made(seal=SEAL.encode()), TransientError("x"), TransientError("y"))
    assert await greeted(store) == ("r1", [f"waiting for the store at {WHERE}, which the agent on that machine starts"])


@pytest.mark.parametrize(
    ("values", "wanted", "words"),
    [
        (
            {"seal": SEAL.encode()},
            "r2",
            f"the store at {WHERE} serves run 'r1' (started on machine node-1), not 'r2': ",
        ),
        ({"seal": b'{"v":2}'}, "", "was not started by this version of remuster: the store's seal: written by a newer"),
        ({"seal": b"junk"}, "", "was not started by this version of remuster: the store's seal: not JSON"),
    ],
)
async def test_a_store_of_another_kind_is_refused(values, wanted, words):
    with pytest.raises(EmbeddedError) as refused:
        await greeted(await made(**values), wanted)
    assert words in str(refused.value)


@pytest.mark.parametrize("wanted", ["r1", "r2", ""])
async def test_a_run_that_is_over_is_waited_for(wanted):
    store = await made(seal=SEAL.encode(), job=json.dumps({"v": 1, "phase": "D"}).encode())
    said = []
    task = asyncio.ensure_future(greet(store, PREFIX, WHERE, wanted, 20.0, said.append))
    while not said:
        await asyncio.sleep(0)
    assert said == [f"the store at {WHERE} is still that of run 'r1', which is over; waiting for the next"]
    next_seal = Seal(wanted or "made", bool(wanted), "node-1", "remuster 0.1.0")
    await store.txn(Txn((), (Put(SEAL.key(PREFIX), next_seal.encode()), Put(f"{PREFIX}r1/job", b"{}"))))
    assert await task == next_seal.run_id
    assert len(said) == 1


async def test_a_wait_is_bounded_and_says_for_what():
    with pytest.raises(EmbeddedError, match=r"no store of this run at .* within 0.1 s: waiting for the store at"):
        await greeted(Failing(None, *[TransientError("x")] * 9), timeout_s=0.1)


async def test_an_etcd_without_a_seal_was_started_by_somebody_else():
    began = asyncio.get_running_loop().time()
    with pytest.raises(EmbeddedError, match=r"an etcd that remuster did not start listens at .*--rdzv-backend etcd"):
        await greeted(await made(), timeout_s=20)
    assert asyncio.get_running_loop().time() - began >= FOREIGN_S


async def test_a_store_that_gets_its_seal_in_time_is_taken():
    store = await made()
    task = asyncio.ensure_future(greeted(store, timeout_s=20))
    await asyncio.sleep(0)
    await store.txn(Txn((), (Put(SEAL.key(PREFIX), SEAL.encode()),)))
    assert await task == ("r1", [])


async def test_what_is_no_etcd_is_said_in_its_own_words():
    with pytest.raises(
        EmbeddedError, match=f"what listens at {WHERE} is no store of remuster's: not an etcd v3 server"
    ):
        await greeted(Failing(None, PermanentError("not an etcd v3 server")))


@pytest.fixture
def guarded(tmp_path: Path):
    """A real etcd that asks who one is."""
    server = EtcdServer(tmp_path / "etcd", free_ports(1)[0], durable=False)
    server.start()
    for path, body in (
        ("user/add", {"name": "root", "password": "x"}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("enable", {}),
    ):
        server.post(f"auth/{path}", body)
    yield server
    server.close()


async def test_what_a_store_with_a_token_says_to_those_without_the_right_one(guarded, tmp_path):
    from remuster.rendezvous.etcd import EtcdStore
    from remuster.rendezvous.etcd_config import EtcdConfig

    for user, password, words in (
        ("", "", "asks for a token: give the run's with --rdzv-conf token_file=PATH"),
        ("remuster", "wrong", "was started with another token: give all nodes the same token_file"),
    ):
        store = EtcdStore(EtcdConfig((guarded.endpoint,), None, user, password))
        with pytest.raises(EmbeddedError, match=words):
            await greet(store, PREFIX, WHERE, "", 10.0, lambda _: None)
        await store.close()


async def test_what_a_store_without_a_token_says_to_those_with_one(tmp_path):
    from remuster.rendezvous.etcd import EtcdStore
    from remuster.rendezvous.etcd_config import EtcdConfig

    server = EtcdServer(tmp_path / "etcd", durable=False)
    server.start()
    try:
        store = EtcdStore(EtcdConfig((server.endpoint,), None, "remuster", "x"))
        with pytest.raises(EmbeddedError, match="knows no token: leave token_file out"):
            await greet(store, PREFIX, WHERE, "", 10.0, lambda _: None)
        await store.close()
    finally:
        server.close()
