"""Every write of the protocol as a value: one function for each row of the table of guards.

All but the join compare ``lease(nodes/me)`` with the writer's lease, so an agent whose lease is gone writes nothing;
all that touch ``job`` compare the revision that was acted on, so a delayed or doubled write is void. No other function
of the project builds a transaction on these keys. Pure; called by the two machines.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from .asked import Asked
from .keys import Keys
from .records import Cause, Incarnation, Job, Memory, Node, NodeId, Outcome, Phase, Roster, Round, Terms, encode
from .store import Compare, Delete, Field, Get, KeyValue, Op, Put, Txn

MAX_SAID = 64  # characters of a name in a sentence


class Kind(Enum):
    """Which row of the table a write is."""

    JOIN = "join"
    READY = "ready"
    CHECKED = "checked"
    STOP = "stop"
    EVIDENCE = "evidence"
    STARTED = "started"
    FINISHED = "finished"
    REENTERED = "reentered"
    MASTER = "master"
    NOTICE = "notice"
    LEAD = "lead"
    ASK = "ask"
    LOOKED = "looked"
    NEXT = "next"
    CLOSE = "close"
    DONE = "done"
    FAIL = "fail"


class Write(NamedTuple):
    """A transaction with its row, the round it is about, and why it is made."""

    kind: Kind
    txn: Txn
    round: Round
    reason: str


class Own(NamedTuple):
    """Who writes: one incarnation of one node."""

    node: NodeId
    inc: Incarnation


class Seen(NamedTuple):
    """The job record as read, and the revision at which it was written: what a decision acted on."""

    job: Job
    mod: int


def _mine(keys: Keys, own: Own) -> Compare:
    return Compare(keys.node(own.node), Field.LEASE, own.inc)


def _unchanged(keys: Keys, seen: Seen) -> Compare:
    return Compare(keys.job, Field.MOD, seen.mod)


def _leading(keys: Keys, token: int) -> Compare:
    return Compare(keys.leader, Field.CREATE, token)


class Begin(NamedTuple):
    """What the node that begins a launch writes with its join."""

    job: Job
    terms: Terms
    history: tuple[tuple[Round, bytes], ...] = ()  # of the rounds before, which this store does not know
    roster: Roster | None = None  # of the last of them, if the next must wait for its nodes


def join(keys: Keys, own: Own, record: Node, mod: int, begin: Begin | None) -> Write:
    """Enter ``nodes/``, absent until now, if ``job`` still stands at ``mod`` (0 = absent); ``begin`` a launch with it.

    Answers with ``job`` and ``leader`` as they stand after it: the watch goes on from that revision.
    """
    then: tuple[Op, ...] = (Put(keys.node(own.node), encode(record), own.inc),)
    if begin is not None:
        then += (Put(keys.job, encode(begin.job)), Put(keys.terms, encode(begin.terms)))
        then += tuple(Put(keys.history(n), entry) for n, entry in begin.history)
        then += () if begin.roster is None else (Put(keys.roster(begin.roster.round), encode(begin.roster)),)
    then += (Get(keys.job), Get(keys.leader))
    guards = (Compare(keys.node(own.node), Field.CREATE, 0), Compare(keys.job, Field.MOD, mod))
    otherwise = (Get(keys.job), Get(keys.node(own.node)))
    return Write(Kind.JOIN, Txn(guards, then, otherwise), record.ready, f"join with ready({record.ready})")


def ready(keys: Keys, own: Own, record: Node, mod: int) -> Write:
    """Raise ``ready``; ``mod`` is the revision of the value being raised, so that it never falls."""
    guards = (_mine(keys, own), Compare(keys.node(own.node), Field.MOD, mod))
    then = (Put(keys.node(own.node), encode(record), own.inc),)
    why = f"no rank alive, none queued: ready({record.ready})"
    return Write(Kind.READY, Txn(guards, then, (Get(keys.node(own.node)),)), record.ready, why)


def checked(keys: Keys, own: Own, record: Node, mod: int) -> Write:
    """Say how the check of this node ended that was blamed for round ``record.checked``; ``ready`` stays as it is."""
    guards = (_mine(keys, own), Compare(keys.node(own.node), Field.MOD, mod))
    then = (Put(keys.node(own.node), encode(record), own.inc),)
    how = f"has failed: {record.unfit}" if record.unfit else "lets it take part"
    why = f"blamed for round {record.checked}: its check {how}"
    return Write(Kind.CHECKED, Txn(guards, then, (Get(keys.node(own.node)),)), record.checked, why)


def stop(keys: Keys, own: Own, seen: Seen, cause: Cause, evidence: bytes) -> Write:
    """R(n) → S(n) by a member, its evidence in the same transaction."""
    n = seen.job.round
    new = replace(seen.job, phase=Phase.STOPPING, cause=cause, resume=None)
    words = Put(keys.report("evidence", n, own.node, own.inc), evidence)
    then = (Put(keys.job, encode(new)), words, Get(keys.job))
    why = f"round {n} is over: {cause.kind} on {cause.node}"
    return Write(Kind.STOP, Txn((_mine(keys, own), _unchanged(keys, seen)), then, (Get(keys.job),)), n, why)


def report(keys: Keys, own: Own, kind: Kind, n: Round, value: bytes) -> Write:
    """Put this node's durable word about round ``n``: evidence, started, … On no lease: it outlives us."""
    put = Put(keys.report(kind.value, n, own.node, own.inc), value)
    return Write(kind, Txn((_mine(keys, own),), (put,)), n, f"{kind.value} of round {n}")


def looked(keys: Keys, own: Own, seen: Seen, value: bytes) -> Write:
    """Answer the question about a checkpoint that stands in F(n): void as soon as ``job`` says anything else."""
    n, get = seen.job.round, Get(keys.job)
    put = Put(keys.report(Kind.LOOKED.value, n, own.node, own.inc), value)
    txn = Txn((_mine(keys, own), _unchanged(keys, seen)), (put,), (get,))
    return Write(Kind.LOOKED, txn, n, f"how the checkpoint for round {n} looks from here")


def last_word(keys: Keys, own: Own, seen: Seen, value: bytes) -> Write:
    """Put evidence of the present round in a dead agent's name, unless it had said something itself, or had finished.

    Before its lease is revoked on its own machine, its ranks proven dead.
    """
    n = seen.job.round
    evidence, finished = (keys.report(kind.value, n, own.node, own.inc) for kind in (Kind.EVIDENCE, Kind.FINISHED))
    unsaid = (Compare(key, Field.CREATE, 0) for key in (evidence, finished))
    guards = (_mine(keys, own), _unchanged(keys, seen), *unsaid)
    return Write(Kind.EVIDENCE, Txn(guards, (Put(evidence, value),)), n, f"how the agent of {own.node} ended")


def master(keys: Keys, own: Own, seen: Seen, address: str) -> Write:
    """Publish the master address of R(n): by its rank-0 node, after the close; ranks start on it."""
    new = replace(seen.job, master=address)
    get = Get(keys.job)
    txn = Txn((_mine(keys, own), _unchanged(keys, seen)), (Put(keys.job, encode(new)), get), (get,))
    return Write(Kind.MASTER, txn, seen.job.round, f"round {seen.job.round} meets at {address}")


def notice(keys: Keys, own: Own, seen: Seen) -> Write:
    """Tell all nodes that this one was given notice: the launch is to end, with time to save. Phase and round stay."""
    n, get = seen.job.round, Get(keys.job)
    put = Put(keys.job, encode(replace(seen.job, notice=own.node)))
    txn = Txn((_mine(keys, own), _unchanged(keys, seen)), (put, get), (get,))
    return Write(Kind.NOTICE, txn, n, f"{own.node} was given notice of a stop")


def lead(keys: Keys, own: Own) -> Write:
    """Take the leader key, absent until now, on the own lease; its create revision is the token."""
    guards = (Compare(keys.leader, Field.CREATE, 0), _mine(keys, own))
    put = Put(keys.leader, f"{own.node}@{own.inc:x}".encode(), own.inc)
    return Write(Kind.LEAD, Txn(guards, (put,)), Round(0), "there is no leader")


def lost(keys: Keys, own: Own, token: int, seen: Seen, cause: Cause) -> Write:
    """R(n) → S(n) by the leader: a member's lease is gone and it had not finished."""
    n = seen.job.round
    new = replace(seen.job, phase=Phase.STOPPING, cause=cause, resume=None)
    return _by_leader(keys, own, token, seen, new, (), Kind.STOP, f"round {n} is over: {cause.node} lost its lease")


def admit(keys: Keys, own: Own, token: int, seen: Seen, cause: Cause) -> Write:
    """R(n) → S(n) by the leader: a newcomer is ready that the next round will contain, and no member has finished."""
    n = seen.job.round
    new = replace(seen.job, phase=Phase.STOPPING, cause=cause, resume=None)
    why = f"round {n} ends so that {cause.node} can join"
    write = _by_leader(keys, own, token, seen, new, (), Kind.STOP, why)
    first, end = keys.reports(Kind.FINISHED.value, n)  # the leader's view may lack what has just been said
    unfinished = Compare(first, Field.CREATE, 0, end)
    return write._replace(txn=write.txn._replace(guards=(*write.txn.guards, unfinished)))


def ask(keys: Keys, own: Own, token: int, seen: Seen, asked: Asked) -> Write:
    """F(n) stays F(n): ask every node whether it can load a checkpoint."""
    what = f"load {asked.name[:MAX_SAID]}" if asked.name else "see a checkpoint, for none was found"
    why = f"round {seen.job.round}: the nodes are asked whether they can {what}"
    return _by_leader(keys, own, token, seen, replace(seen.job, asked=asked), (), Kind.ASK, why)


class Charge(NamedTuple):
    """What the verdict costs: written with the transition or not at all."""

    spent: tuple[tuple[str, int], ...]
    charged: int
    memory: Memory


def advance(
    keys: Keys, own: Own, token: int, seen: Seen, charge: Charge, flaps: tuple[tuple[str, int], ...], record: bytes
) -> Write:
    """S(n) → F(n+1): verdict, charge and transition are one transaction; members are kept by ``formed``."""
    n = seen.job.round
    new = replace(
        seen.job,
        phase=Phase.FORMING,
        round=Round(n + 1),
        master="",
        cause=None,
        spent=charge.spent,
        charged=charge.charged,
        memory=charge.memory,
        flaps=flaps,
    )
    extra = (Put(keys.attempt(n), record),)
    return _by_leader(keys, own, token, seen, new, extra, Kind.NEXT, f"muster round {n + 1}")


def fail(keys: Keys, own: Own, token: int, seen: Seen, outcome: Outcome, record: bytes | None) -> Write:
    """S(n) → X or F(n) → X: the job has failed; R(n) → X: it was given notice, and every member has finished(n).

    Members are kept for a later launch.
    """
    n = seen.job.round
    new = replace(seen.job, phase=Phase.FAILED, cause=None, outcome=outcome, master="", resume=None, asked=None)
    extra: tuple[Op, ...] = () if record is None else (Put(keys.attempt(n), record),)
    return _by_leader(keys, own, token, seen, new, extra + _sweep(keys, Round(n + 1)), Kind.FAIL, outcome.sentence)


def close(
    keys: Keys,
    own: Own,
    token: int,
    seen: Seen,
    new: Job,
    roster: Roster,
    resumed: bytes,
    as_seen: tuple[KeyValue, ...] = (),
) -> Write:
    """F(n) → R(n): the roster and the resume point are written here, once, and the last round's words deleted.

    ``as_seen`` are the keys of blamed members that are let pass: none of them may have said anything since.
    """
    n = seen.job.round
    extra: tuple[Op, ...] = (
        Put(keys.roster(n), encode(roster)),
        Put(keys.history(n), resumed),
        Delete(*keys.older("rounds", n)),
        *_sweep(keys, n),
        Delete(*keys.reports(Kind.LOOKED.value, n)),
    )
    why = f"round {n} runs: nodes {len(roster.members)}, ranks {roster.world_size}"
    write = _by_leader(keys, own, token, seen, new, extra, Kind.CLOSE, why)
    guards = tuple(Compare(kv.key, Field.MOD, kv.mod_revision) for kv in as_seen)
    return write._replace(txn=write.txn._replace(guards=(*write.txn.guards, *guards)))


def done(keys: Keys, own: Own, token: int, seen: Seen, outcome: Outcome, record: bytes, roster: Roster) -> Write:
    """R(n) → D: every member's finished(n) is there; ``roster`` is the round's, as a later launch shall see it."""
    n = seen.job.round
    new = replace(seen.job, phase=Phase.DONE, outcome=outcome, resume=None, master="")
    extra: tuple[Op, ...] = (
        Put(keys.attempt(n), record),
        Put(keys.roster(n), encode(roster)),
        *_sweep(keys, Round(n + 1)),
    )
    return _by_leader(keys, own, token, seen, new, extra, Kind.DONE, f"every rank of round {n} exited 0")


def _sweep(keys: Keys, n: Round) -> tuple[Delete, ...]:
    return tuple(Delete(*keys.older(kind, n)) for kind in ("evidence", "started", "reentered", "finished", "looked"))


def _by_leader(
    keys: Keys, own: Own, token: int, seen: Seen, new: Job, extra: tuple[Op, ...], kind: Kind, why: str
) -> Write:
    guards = (_mine(keys, own), _leading(keys, token), _unchanged(keys, seen))
    return Write(kind, Txn(guards, (Put(keys.job, encode(new)), *extra), (Get(keys.job),)), seen.job.round, why)
