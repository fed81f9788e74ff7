"""Gives up the lease of an agent that has died, so that the other nodes need not wait until it runs out.

A process of its own for a second at most: the keeper executes it (``spawn.py``) when the agent is dead and the sweep
has proven that nothing of this node lives, which is what PROTOCOL asks of whoever revokes a lease: the same machine,
and the ranks dead. It also leaves word of how the agent ended, if its round was running. When the store does not answer
in time it says so and ends: the lease then runs out by itself, as that of a machine that has lost its power does.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import NamedTuple

from ..health import wire
from ..health.evidence import AgentDied
from ..rendezvous import writes
from ..rendezvous.errors import BadRecord, OutcomeUnknown, StoreError
from ..rendezvous.keys import Keys
from ..rendezvous.records import Incarnation, NodeId, Phase, decode_job, decode_node, decode_roster
from ..rendezvous.snapshot import opened
from ..rendezvous.store import Get, KeyValue, Store, Txn
from ..rendezvous.writes import Own, Seen
from .identity import this_machine
from .letter import Letter
from .linux import boottime
from .meeting import etcd_store, set_grpc_up

PARTING_S = 0.5  # of the time given: for a last word, and for the connection to be closed
CALL_S = 0.5  # for one try at one member: of three, two may be silent
LAST_S = 10  # an end of this process's own, should there be no keeper any more that makes one


class NotOurs(Exception):
    """The lease may not be revoked from here; the message says why."""


class Dead(NamedTuple):
    """An agent of ``machine`` that ended with ``status`` (-N for signal N) and had ``lease``."""

    lease: int
    status: int
    machine: str


def main(lease: int, status: int, end_s: float) -> int:
    """Give up the ``lease`` of an agent that ended with ``status``, before ``end_s``; its letter is standard input."""
    signal.alarm(LAST_S)
    letter = Letter.decode(sys.stdin.buffer.read())
    set_grpc_up()
    return asyncio.run(_before(end_s - PARTING_S, letter, Dead(lease, status, this_machine().name)))


async def _before(end_s: float, letter: Letter, dead: Dead) -> int:
    try:
        store = etcd_store(letter.access, letter.token_file, letter.endpoints, CALL_S)
    except StoreError as error:  # a file that cannot be read any more
        return _complain(str(error))
    try:
        await asyncio.wait_for(give_up(store, letter, dead), end_s - boottime())
    except asyncio.TimeoutError:
        return _complain("no answer from the store in time")
    except (StoreError, BadRecord, NotOurs) as error:
        return _complain(str(error))
    finally:
        await store.close()
    return 0


async def give_up(store: Store, letter: Letter, dead: Dead) -> None:
    """Revoke the dead agent's lease if its name still hangs on it, after leaving word of its end.

    NotOurs when the name is another machine's.
    """
    keys, own = Keys(letter.run_id, letter.prefix), Own(NodeId(letter.node), Incarnation(dead.lease))
    while True:
        result = await store.txn(Txn((), (Get(keys.node(own.node)), Get(keys.job))))
        node, job = (found.one() for found in result.ranges)
        if node is None or node.lease != dead.lease:
            return  # it had not joined yet, or has been given up already
        if (machine := opened(node, decode_node).machine) != dead.machine:
            raise NotOurs(f"{node.key} names another machine, {machine}")
        try:
            told = await _leave_word(store, keys, own, job, wire.encode((AgentDied(dead.status),)))
        except OutcomeUnknown:
            told = True  # it hangs on the lease: void once that is gone
        if told:
            await store.revoke(dead.lease)
            return


async def _leave_word(store: Store, keys: Keys, own: Own, job: KeyValue | None, word: bytes) -> bool:
    """Say how the agent ended, if it was in the round that runs or is being stopped; False to look at all of it anew.

    Nothing is added to what the agent itself has said of that round, or when its ranks had finished.
    """
    if job is None:
        return True
    seen = Seen(opened(job, decode_job), job.mod_revision)
    n = seen.job.round
    if seen.job.phase not in (Phase.RUNNING, Phase.STOPPING):
        return True
    said = [keys.report(kind.value, n, own.node, own.inc) for kind in (writes.Kind.EVIDENCE, writes.Kind.FINISHED)]
    result = await store.txn(Txn((), (Get(keys.roster(n)), *map(Get, said))))
    roster, *words = (found.one() for found in result.ranges)
    if any(words) or roster is None or opened(roster, decode_roster).place(own.node, own.inc) is None:
        return True
    return (await store.txn(writes.last_word(keys, own, seen, word).txn)).succeeded


def _complain(why: str) -> int:
    with contextlib.suppress(OSError):  # a terminal that has gone: the exit status says it too
        print(
            f"remuster: the lease of this node's dead agent was not given up: {why}. It runs out by itself; until then "
            "the other nodes wait",
            file=sys.stderr,
            flush=True,
        )
    return 1
