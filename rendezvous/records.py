"""The values kept in the store, and their bytes. Pure; the only place that knows how a record is spelled.

A record from a newer version, or one that does not parse, raises ``BadRecord``: an agent refuses, it never guesses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, NewType, cast

from .errors import BadRecord

SCHEMA = 1
MAX_BYTES = 1 << 20  # etcd refuses requests above 1.5 MiB; nothing of ours comes near

NodeId = NewType("NodeId", str)
Round = NewType("Round", int)
Incarnation = NewType("Incarnation", int)  # a lease id: one lease is one incarnation


class Phase(str, Enum):
    """Where the job stands."""

    FORMING = "F"
    RUNNING = "R"
    STOPPING = "S"
    DONE = "D"
    FAILED = "X"

    @property
    def over(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED)


class Member(NamedTuple):
    """One node of a round, by incarnation: a namesake or a later start of the same agent is somebody else."""

    node: NodeId
    inc: Incarnation
    machine: str
    slots: int
    address: str

    @property
    def who(self) -> tuple[NodeId, Incarnation]:
        return (self.node, self.inc)


class Roster(NamedTuple):
    """Members of a formed round in rank order, and the spares that stood by when it closed. Immutable."""

    round: Round
    members: tuple[Member, ...]
    spares: tuple[Member, ...] = ()

    def place(self, node: NodeId, inc: Incarnation) -> int | None:
        """Return the group rank of this incarnation, or None when it is no member."""
        for i, m in enumerate(self.members):
            if m.who == (node, inc):
                return i
        return None

    def first_rank(self, index: int) -> int:
        """Return the global rank of the first worker of member ``index``."""
        return sum(m.slots for m in self.members[:index])

    @property
    def world_size(self) -> int:
        return sum(m.slots for m in self.members)


class ResumePoint(NamedTuple):
    """Where all ranks of a round re-enter; ``path`` is empty when they start from nothing."""

    path: str = ""
    step: int = -1
    format: str = ""
    verified: str = ""  # how it was verified, in words
    env: tuple[tuple[str, str], ...] = ()  # extra environment from the hook (allow-listed names)


class Cause(NamedTuple):
    """Why a round is being stopped, as known at that moment; the verdict follows."""

    kind: str  # failed | fenced | guardian | lost | leave
    node: str
    inc: int = 0


class Outcome(NamedTuple):
    """The end of a launch, and what every agent's command returns."""

    exit_code: int
    sentence: str
    cls: str = ""
    node: str = ""
    rank: int = -1


class Memory(NamedTuple):
    """What judging the next failure needs to remember of the last ones. Small: it travels in ``job``."""

    fingerprint: str = ""  # of the last charged failure
    step: int = -1  # newest verified checkpoint step at that time
    free: int = 0  # rounds in a row that ended free of charge (rate limit)


@dataclass(frozen=True, slots=True)
class Job:
    """The job record, below 1 KB. ``formed`` is the last round that ran: its roster is at ``rounds/<formed>``."""

    phase: Phase
    round: Round
    min_nodes: int
    max_nodes: int
    launch: str
    first: Round = Round(1)  # first round of this launch: the attempt counter of torchrun counts from here
    formed: Round = Round(0)
    master: str = ""  # "address:port" of this round's TCPStore, once its rank-0 node has reserved it
    resume: ResumePoint | None = None  # only in RUNNING
    cause: Cause | None = None  # only in STOPPING
    outcome: Outcome | None = None  # only in DONE and FAILED
    spent: tuple[tuple[str, int], ...] = ()  # charges per family over the job's life
    charged: int = 0  # charged restarts in this launch (bounded by --max-restarts)
    memory: Memory = field(default_factory=Memory)
    past: tuple[str, ...] = ()  # launches before this one, the last few: none of them may begin the run again

    @property
    def attempt(self) -> int:
        """Return torchrun's restart count: rounds before this one in this launch."""
        return self.round - self.first


@dataclass(frozen=True, slots=True)
class Node:
    """An agent's own record. ``ready`` = r: no rank alive, none queued, none of a round below r will ever start."""

    inc: Incarnation
    machine: str
    boot: str
    address: str
    slots: int
    ready: Round
    pid: int = 0  # the agent's, for the next start on the same machine
    start: str = ""  # its start time in ticks since boot: tells the pid from its successor


def encode(record: Job | Roster | Node) -> bytes:
    """Return the record's bytes: compact JSON with a schema number."""
    body = _plain(record)
    assert isinstance(body, dict)
    return json.dumps({"v": SCHEMA, **body}, separators=(",", ":"), sort_keys=True).encode()


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    names: tuple[str, ...] = getattr(value, "_fields", ()) or getattr(type(value), "__slots__", ())
    if names:  # a record in the record; it may be a tuple too
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(v) for v in cast("tuple[object, ...]", value)]


class _Reader:
    """Takes typed fields out of a parsed record, and says which one is wrong."""

    def __init__(self, body: Mapping[str, object], what: str) -> None:
        self.body = body
        self.what = what

    def get(self, name: str, kind: type) -> object:
        value = self.body.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise BadRecord(f"{self.what}: field {name!r} is {type(value).__name__}, expected {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        return cast(str, self.get(name, str))

    def number(self, name: str) -> int:
        return cast(int, self.get(name, int))

    def items(self, name: str) -> list[object]:
        return cast("list[object]", self.get(name, list))

    def sub(self, name: str) -> _Reader | None:
        if self.body.get(name) is None:
            return None
        return _Reader(cast("dict[str, object]", self.get(name, dict)), f"{self.what}.{name}")


def _open(raw: bytes, what: str) -> _Reader:
    if len(raw) > MAX_BYTES:
        raise BadRecord(f"{what}: {len(raw)} bytes, more than {MAX_BYTES}")
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{what}: not JSON ({type(error).__name__})") from error
    if not isinstance(body, dict):
        raise BadRecord(f"{what}: not an object")
    reader = _Reader(cast("dict[str, object]", body), what)
    version = reader.number("v")
    if version > SCHEMA:
        raise BadRecord(f"{what}: written by a newer remuster (schema {version}, this one knows {SCHEMA})")
    return reader


def _pairs(reader: _Reader, name: str, kind: type) -> tuple[tuple[str, object], ...]:
    out: list[tuple[str, object]] = []
    for item in reader.items(name):
        pair = cast("list[object]", item) if isinstance(item, list) else []
        if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], kind):
            raise BadRecord(f"{reader.what}: field {name!r} holds a malformed pair")
        out.append((pair[0], pair[1]))
    return tuple(out)


def _texts(reader: _Reader, name: str) -> tuple[str, ...]:
    items = reader.items(name)
    if not all(isinstance(item, str) for item in items):
        raise BadRecord(f"{reader.what}: field {name!r} holds something else than text")
    return tuple(cast("list[str]", items))


def _member(item: object, what: str) -> Member:
    if not isinstance(item, dict):
        raise BadRecord(f"{what}: a member is not an object")
    r = _Reader(cast("dict[str, object]", item), what)
    return Member(
        NodeId(r.text("node")), Incarnation(r.number("inc")), r.text("machine"), r.number("slots"), r.text("address")
    )


@lru_cache(maxsize=4096)
def decode_job(raw: bytes) -> Job:
    """Parse the job record; BadRecord when it is not one."""
    r = _open(raw, "job")
    try:
        phase = Phase(r.text("phase"))
    except ValueError as error:
        raise BadRecord(f"job: unknown phase {r.text('phase')!r}") from error
    if phase.over and r.body.get("outcome") is None:
        raise BadRecord(f"job: phase {phase.value} without an outcome")
    resume, cause, outcome, memory = r.sub("resume"), r.sub("cause"), r.sub("outcome"), r.sub("memory")
    return Job(
        phase=phase,
        round=Round(r.number("round")),
        min_nodes=r.number("min_nodes"),
        max_nodes=r.number("max_nodes"),
        launch=r.text("launch"),
        past=_texts(r, "past"),
        first=Round(r.number("first")),
        formed=Round(r.number("formed")),
        master=r.text("master"),
        resume=None
        if resume is None
        else ResumePoint(
            resume.text("path"),
            resume.number("step"),
            resume.text("format"),
            resume.text("verified"),
            cast("tuple[tuple[str, str], ...]", _pairs(resume, "env", str)),
        ),
        cause=None if cause is None else Cause(cause.text("kind"), cause.text("node"), cause.number("inc")),
        outcome=None
        if outcome is None
        else Outcome(
            outcome.number("exit_code"),
            outcome.text("sentence"),
            outcome.text("cls"),
            outcome.text("node"),
            outcome.number("rank"),
        ),
        spent=cast("tuple[tuple[str, int], ...]", _pairs(r, "spent", int)),
        charged=r.number("charged"),
        memory=Memory()
        if memory is None
        else Memory(memory.text("fingerprint"), memory.number("step"), memory.number("free")),
    )


@lru_cache(maxsize=4096)
def decode_roster(raw: bytes) -> Roster:
    """Parse a round's roster; BadRecord when it is not one."""
    r = _open(raw, "roster")
    return Roster(
        Round(r.number("round")),
        tuple(_member(m, "roster.members") for m in r.items("members")),
        tuple(_member(m, "roster.spares") for m in r.items("spares")),
    )


@lru_cache(maxsize=4096)
def decode_node(raw: bytes) -> Node:
    """Parse a node's record; BadRecord when it is not one."""
    r = _open(raw, "node")
    return Node(
        Incarnation(r.number("inc")),
        r.text("machine"),
        r.text("boot"),
        r.text("address"),
        r.number("slots"),
        Round(r.number("ready")),
        r.number("pid"),
        r.text("start"),
    )
