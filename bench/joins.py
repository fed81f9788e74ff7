"""Many agents join a run and form its first round, and the same with bare gRPC, in turn; prints JSON for ``store.py``.

``joins.py ENDPOINT AGENTS RUNS``. The agents are real: loop, lease, node machine, and on one of them the job machine,
each with a client and a connection of its own. Only their ranks are not: being told to start them ends the clock.

Bare is what the protocol cannot do without, in its order, each agent on a connection of its own: a lease, a read of the
job, the join, watches of job and leader; by the leader its key, a read and a watch of the run, the close once all have
joined, the master address; by each the roster, and two more deliveries of the job. Nothing is parsed or decided,
nothing tried in vain because another was first, no connection probed before its first use: these are ours to pay.
One process plays all agents in both, on one core, so the ratio is that of the work; on a cluster each has its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import cast

import bare_etcd as bare

from remuster.agent import node_words as words
from remuster.agent.crew import Crew
from remuster.agent.leading import Counsel
from remuster.agent.lease import Timing
from remuster.agent.linux import boottime
from remuster.agent.loop import Agent, Surroundings
from remuster.agent.node_state import Settings
from remuster.rendezvous.etcd import EtcdStore
from remuster.rendezvous.etcd_config import Endpoint, EtcdConfig
from remuster.rendezvous.keys import Keys
from remuster.rendezvous.leader_words import Conclude, Concluded, Limits, Resumed, SelectResume
from remuster.rendezvous.records import Incarnation, Job, Memory, Node, NodeId, Outcome, Phase, ResumePoint, Round
from remuster.rendezvous.writes import Charge

SLOTS = 8
TTL_S = 60  # none expires while all agents share one core
WARM = 8  # agents of a first join that is not counted


# --- ours -------------------------------------------------------------------------------------------------------------
class Ranks:
    """Stands for a node's ranks: they are started by a word, and end by one, with 0."""

    def __init__(self, post: Callable[[words.Event], None], started: Callable[[], None]) -> None:
        self._post = post
        self._started = started
        self._round = Round(0)

    async def start(self, action: words.Start) -> None:
        self._round = action.round
        self._started()
        self._post(words.Started(boottime(), action.round))

    def finish(self) -> None:
        """End all ranks well."""
        for local in range(SLOTS):
            self._post(words.Exited(boottime(), self._round, local, 0, 0))

    def kill(self, action: words.Kill) -> None:
        self._post(words.NothingLeft(boottime(), action.round))

    def renewed(self, inc: Incarnation, deadline_s: float) -> None: ...


async def ours(endpoint: str, agents: int) -> float:
    """Let agents join; return the seconds until the last is told to start its ranks. Then the job ends well."""
    host, _, port = endpoint.rpartition(":")
    config = EtcdConfig((Endpoint(host, int(port)),))
    keys = Keys(f"bench-{uuid.uuid4().hex[:8]}")
    crews: list[Ranks] = []
    starts: list[float] = []

    def started() -> None:
        starts.append(time.perf_counter())
        if len(starts) == agents:
            for one in crews:
                asyncio.get_running_loop().call_soon(one.finish)

    def crew(post: Callable[[words.Event], None]) -> Crew:
        crews.append(Ranks(post, started))
        return cast(Crew, crews[-1])

    began = time.perf_counter()
    stores = [EtcdStore(config) for _ in range(agents)]
    joining = [Agent(_settings(keys, i, agents), _around(store), crew) for i, store in enumerate(stores)]
    ends = await asyncio.gather(*(agent.run() for agent in joining))
    await asyncio.gather(*(agent.release(True) for agent in joining))
    await asyncio.gather(*(store.close() for store in stores))
    assert len(starts) == agents, ends
    assert all(end.code == 0 for end in ends), ends
    return starts[-1] - began


def _settings(keys: Keys, i: int, agents: int) -> Settings:
    record = Node(Incarnation(0), f"machine-{i:012d}-bench", uuid.uuid4().hex, "127.0.0.1", SLOTS, Round(0), 1, "1")
    job = Job(Phase.FORMING, Round(1), agents, agents, "bench")
    return Settings(keys, NodeId(f"node-{i:04d}"), record, job, False, 30.0, 60.0)


def _around(store: EtcdStore) -> Surroundings:
    def say(_: object) -> None: ...

    async def judge(ask: Conclude) -> Concluded:
        charge = Charge(ask.job.spent, ask.job.charged, Memory())
        return Concluded(boottime(), ask.round, False, charge, Outcome(0, "done"), b"{}", ask.done)

    async def resume(ask: SelectResume) -> Resumed:
        return Resumed(boottime(), ask.round, ResumePoint())

    async def newest() -> int:
        return -1

    return Surroundings(
        store, Timing(TTL_S, 3.0), Limits(60.0, 60.0, TTL_S), Counsel(judge, resume, say, newest), say, say
    )


# --- bare -------------------------------------------------------------------------------------------------------------
CLOSED, MASTER = b"closed", b"master"  # marks in the job record, for whoever watches it
NODE_BYTES, JOB_BYTES, MEMBER_BYTES = 210, 420, 130  # of our records


async def theirs(endpoint: str, agents: int) -> float:
    """Do the same with bytes that are there already; return the seconds until the last has seen the master address."""
    prefix = f"/bench/{uuid.uuid4().hex[:8]}/".encode()
    async with bare.connection(endpoint) as first:
        at = bare.revision(await first.put(bare.put(b"/bench/joins", b"")))  # watches may look from there on
    asks = [_Asks(prefix, i, at, agents) for i in range(agents)]
    joined = asyncio.Event()  # the first one: whoever reads the job before that would have to read it again
    began = time.perf_counter()
    async with AsyncExitStack() as stack:
        etcds = [await stack.enter_async_context(bare.connection(endpoint)) for _ in range(agents)]
        await asyncio.gather(
            _leader(etcds[0], asks[0], agents, joined),
            *(_agent(*pair, joined) for pair in zip(etcds[1:], asks[1:], strict=True)),
        )
        return time.perf_counter() - began


class _Asks:
    """One agent's requests."""

    def __init__(self, prefix: bytes, i: int, at: int, agents: int) -> None:
        lease = uuid.uuid4().int >> 66
        node, job, leader, roster = (prefix + key for key in (b"nodes/%04d" % i, b"job", b"leader", b"rounds/1"))
        mine = bare.guard(bare.LEASE, node, lease)
        self.grant = bare.grant(TTL_S, lease)
        self.read = bare.then_read(bare.read(job), bare.read(node), bare.read(leader))
        enter = bare.guard(bare.CREATE, node, 0) + bare.then_put(bare.put(node, b"n" * NODE_BYTES, lease))
        see = bare.then_read(bare.read(job), bare.read(leader))
        self.join = enter + see
        self.begin = enter + bare.then_put(bare.put(job, b"j" * JOB_BYTES)) + see
        self.watch_job, self.watch_leader = bare.watch(job, at + 1), bare.watch(leader, at + 1)
        self.lead = bare.guard(bare.CREATE, leader, 0) + mine + bare.then_put(bare.put(leader, b"l" * 30, lease))
        self.look, self.watch_all = bare.read(prefix, prefix + b"~"), bare.watch(prefix, at + 1, prefix + b"~")
        self.close = mine + bare.then_put(
            bare.put(job, CLOSED.ljust(JOB_BYTES)),
            bare.put(roster, b"m" * MEMBER_BYTES * agents),
            bare.put(prefix + b"history/1", b"h" * 100),
        )
        self.roster = bare.read(roster)
        self.master = mine + bare.then_put(bare.put(job, MASTER.ljust(JOB_BYTES)))
        self.nodes = prefix + b"nodes/"


async def _agent(etcd: bare.Bare, ask: _Asks, joined: asyncio.Event) -> None:
    await etcd.grant(ask.grant)
    await joined.wait()
    await etcd.txn(ask.read)
    await etcd.txn(ask.join)
    await _follow(etcd, ask)


async def _leader(etcd: bare.Bare, ask: _Asks, agents: int, joined: asyncio.Event) -> None:
    await etcd.grant(ask.grant)
    await etcd.txn(ask.read)
    await etcd.txn(ask.begin)
    joined.set()
    await asyncio.gather(_follow(etcd, ask), _lead(etcd, ask, agents))


async def _follow(etcd: bare.Bare, ask: _Asks) -> None:
    job, leader = etcd.watch(ask.watch_job), etcd.watch(ask.watch_leader)
    last, _ = await asyncio.gather(_until(job, CLOSED), _until(leader, b"leader"))
    await etcd.range(ask.roster)
    if MASTER not in last:  # both may come in one message
        await _until(job, MASTER)
    job.cancel()
    leader.cancel()


async def _lead(etcd: bare.Bare, ask: _Asks, agents: int) -> None:
    await etcd.txn(ask.lead)
    await etcd.range(ask.look)
    stream, seen = etcd.watch(ask.watch_all), 0
    while seen < agents:
        seen += (await stream.read()).count(ask.nodes)
    await etcd.txn(ask.close)
    await etcd.txn(ask.master)
    stream.cancel()


async def _until(stream: bare.Stream, mark: bytes) -> bytes:
    while mark not in (message := await stream.read()):
        pass
    return message


async def measure(endpoint: str, agents: int, runs: int) -> dict[str, list[float]]:
    """Alternate."""
    found: dict[str, list[float]] = {"ours": [], "bare": []}
    await ours(endpoint, WARM)
    await theirs(endpoint, WARM)
    for _ in range(runs):
        found["ours"].append(await ours(endpoint, agents))
        found["bare"].append(await theirs(endpoint, agents))
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
