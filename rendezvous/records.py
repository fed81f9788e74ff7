"""The values kept in the store, and their bytes. Pure; the only place that knows how a record is spelled.

A record from another version, or one that does not parse or contradicts itself, raises ``BadRecord``: an agent refuses,
it never guesses. Whoever can write to the store may have written it. A value and its spelling are changed together, so
they are one file.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
import json
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, NewType, cast

from .asked import Asked, read_asked
from .errors import BadRecord
from .reader import LARGEST, Reader, parse

SCHEMA = 1
MAX_BYTES = 1 << 20  # etcd refuses requests above 1.5 MiB; nothing of ours comes near
MAX_NODE_BYTES = 1 << 14
MAX_ROUND = 10**9  # fits into the padded keys of ``keys.py``
MAX_NODES = 10**6
MAX_SLOTS = 1 << 16
NO_PLACE = -1
MAX_FLAPS = 8
MAX_BLAMED = 8
MAX_SUSPECTS = 4
MAX_SUSPECT = 256  # characters of a name
SETTLED = 0  # in place of a suspect's round: it is passed over, and no more follows from it
MAX_PAUSE_S = 3600
MAX_WORDS = 200  # of a check that has failed
MAX_ROLE = 256  # characters of a role's name
ROLE = "default"  # torchrun's
MAX_TIMES = 64

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


class StoreLoss(str, Enum):
    """What becomes of ranks whose node cannot reach the store: ``--on-store-loss``."""

    FENCE = "fence"  # they are killed before their lease can have expired
    HOLD = "hold"  # they live on; a lost lease proves nothing, so no round forms without their node


class Member(NamedTuple):
    """One node of a round, by incarnation: a namesake or a later start of the same agent is somebody else."""

    node: NodeId
    inc: Incarnation
    machine: str
    slots: int
    address: str
    place: int = NO_PLACE  # the group rank that it asks for (static)
    role: str = ROLE  # of its ranks

    @property
    def who(self) -> tuple[NodeId, Incarnation]:
        return (self.node, self.inc)


class Roster(NamedTuple):
    """Members of a formed round in rank order, and the spares that stood by when it closed. Immutable."""

    round: Round
    members: tuple[Member, ...]
    spares: tuple[Member, ...] = ()
    store_loss: StoreLoss = StoreLoss.FENCE  # under which it formed: kept by later launches, whatever they say

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

    def in_role(self, index: int) -> tuple[int, int]:
        """Return, among the ranks of the role of member ``index``, the number of its first, and how many there are."""
        role = self.members[index].role
        first = sum(m.slots for m in self.members[:index] if m.role == role)
        return first, sum(m.slots for m in self.members if m.role == role)


class ResumePoint(NamedTuple):
    """Where all ranks of a round re-enter; ``path`` is empty when they start from nothing."""

    path: str = ""
    step: int = -1
    format: str = ""
    verified: str = ""  # how it was verified, in words
    env: tuple[tuple[str, str], ...] = ()  # extra environment from the hook (allow-listed names)
    name: str = ""  # of the checkpoint in each node's own checkpoint directory; '' = ``path`` holds for all


class Suspect(NamedTuple):
    """A checkpoint that is whole, and that is passed over all the same: see ``suspects.py``."""

    name: str
    step: int  # what is not older is passed over with it; -1: only that one is
    round: int  # that re-entered from it; SETTLED: it counts no more


class Cause(NamedTuple):
    """Why a round is being stopped, as known at that moment; the verdict follows."""

    kind: str  # failed | alarm | fenced | guardian | lost | leave | admit (then the newcomer for which it ends)
    node: str
    inc: int = 0


class Outcome(NamedTuple):
    """The end of a launch, and what every agent's command returns."""

    exit_code: int
    sentence: str
    cls: str = ""
    node: str = ""
    rank: int = -1


class Paid(NamedTuple):
    """When a family was charged, in unix seconds of the leaders' clocks; as far back as its window needs."""

    family: str
    at: tuple[int, ...]


class Memory(NamedTuple):
    """What judging the next failure needs to remember of the last ones. Small: it travels in ``job``."""

    fingerprint: str = ""  # of the last charged failure
    step: int = -1  # newest published checkpoint step ever seen at a charge
    free: int = 0  # rounds in a row that ended free of charge (rate limit)
    family: str = ""  # charged last
    row: int = 0  # charged failures in a row without progress, but for what came from outside
    times: tuple[Paid, ...] = ()  # of families that are bounded within a window
    backed: int = 0  # failures in a row, without progress, of families whose next try waits
    quick: int = 0  # failed rounds in a row, of any family, that ended soon and without progress


@dataclass(frozen=True, slots=True)
class Job:
    """The job record, about 1 KB. ``formed`` is the last round that ran: its roster is at ``rounds/<formed>``."""

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
    store_loss: StoreLoss = StoreLoss.FENCE  # of this launch; all its nodes are given the same
    flaps: tuple[tuple[str, int], ...] = ()  # nodes that ended rounds in this launch: see ``admission.py``
    notice: str = ""  # the node that was given notice of a stop: this launch ends with its present round
    blamed: tuple[tuple[str, int], ...] = ()  # nodes to be checked, and the rounds that they ended: see ``gate.py``
    aside: tuple[str, ...] = ()  # nodes that are taken only when others are too few
    pause: int = 0  # seconds that a leader waits from when it has seen FORMING, before anything else
    asked: Asked | None = None  # only in FORMING: the checkpoint that every node is asked about
    suspects: tuple[Suspect, ...] = ()  # checkpoints that are passed over

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
    place: int = NO_PLACE  # the group rank that it asks for (static)
    host: str = ""  # the name under which ``quarantine.py`` knows the machine over reboots
    role: str = ROLE
    checked: Round = Round(0)  # the round after whose end it was blamed, and has been checked
    unfit: str = ""  # why that check failed; '' = it did not, or nobody can tell


class Terms(NamedTuple):
    """What every node of a launch must have been given alike, as the node that began it was: (what, value) in words."""

    by: NodeId
    said: tuple[tuple[str, str], ...]


def encode(record: Job | Roster | Node | Terms) -> bytes:
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


def unusable(error: BadRecord) -> str:
    """Say that a run cannot be served with what stands in the store, and what to do."""
    return f"the store holds what cannot be used: {error}; mend or delete it, or start again under another --rdzv-id"


@lru_cache(maxsize=64)
def decode_job(raw: bytes) -> Job:
    """Parse the job record; BadRecord when it is not one."""
    r = parse(raw, "job", MAX_BYTES, SCHEMA)
    try:
        phase = Phase(r.text("phase"))
    except ValueError as error:
        raise BadRecord(f"job: unknown phase {r.text('phase')[:20]!r}") from error
    if phase.over and not r.has("outcome"):
        raise BadRecord(f"job: phase {phase.value} without an outcome")
    cause, memory = r.sub("cause"), r.sub("memory")
    least = r.number("min_nodes", 1, MAX_NODES)
    n = r.number("round", 1, MAX_ROUND)
    return Job(
        phase=phase,
        round=Round(n),
        min_nodes=least,
        max_nodes=r.number("max_nodes", least, MAX_NODES),
        launch=r.text("launch"),
        past=r.texts("past", 64),
        store_loss=_store_loss(r),
        first=Round(r.number("first", 1, n)),
        formed=Round(_formed(r, phase, n)),
        master=_master(r),
        resume=_resume(r.sub("resume")),
        cause=None if cause is None else Cause(cause.text("kind"), cause.text("node"), cause.number("inc", 0, LARGEST)),
        outcome=_outcome(r.sub("outcome"), int(phase is Phase.FAILED)),
        spent=r.numbers_of("spent", 256, 0, LARGEST),
        charged=r.number("charged", 0, LARGEST),
        flaps=r.numbers_of("flaps", MAX_FLAPS, 1, MAX_ROUND) if r.has("flaps") else (),
        notice=r.text("notice") if r.has("notice") else "",
        blamed=r.numbers_of("blamed", MAX_BLAMED, 1, n) if r.has("blamed") else (),
        aside=r.texts("aside", MAX_BLAMED) if r.has("aside") else (),
        pause=r.number("pause", 0, MAX_PAUSE_S, absent=0),
        asked=read_asked(r.sub("asked")),
        suspects=tuple(_suspect(one, n) for one in r.subs("suspects", MAX_SUSPECTS)) if r.has("suspects") else (),
        memory=Memory() if memory is None else _memory(memory),
    )


def _memory(r: Reader) -> Memory:
    return Memory(
        r.text("fingerprint"),
        r.number("step", -1, LARGEST),
        r.number("free", 0, LARGEST),
        r.text("family") if r.has("family") else "",
        r.number("row", 0, LARGEST, absent=0),
        tuple(Paid(p.text("family"), p.numbers("at", MAX_TIMES, 0, LARGEST)) for p in r.subs("times", MAX_TIMES))
        if r.has("times")
        else (),
        r.number("backed", 0, LARGEST, absent=0),
        r.number("quick", 0, LARGEST, absent=0),
    )


def _suspect(r: Reader, n: int) -> Suspect:
    return Suspect(r.text("name"), r.number("step", -1, LARGEST), r.number("round", SETTLED, n))


def _formed(r: Reader, phase: Phase, n: int) -> int:
    """Read the last formed round: this one once it runs, an earlier one while it is forming."""
    match phase:
        case Phase.FORMING:
            return r.number("formed", 0, n - 1)
        case Phase.FAILED:
            return r.number("formed", 0, n)
        case _:
            return r.number("formed", n, n)


def _store_loss(r: Reader) -> StoreLoss:
    """Read what a store's loss does to ranks; a run that was begun before there was a choice fences them."""
    if not r.has("store_loss"):
        return StoreLoss.FENCE
    try:
        return StoreLoss(r.text("store_loss"))
    except ValueError as error:
        raise BadRecord(f"{r.what}: unknown store_loss {r.text('store_loss')[:20]!r}") from error


def _master(r: Reader) -> str:
    master = r.plain("master")
    host, _, port = master.rpartition(":")
    if master and not (host and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        raise BadRecord(f"{r.what}: field 'master' is {master[:64]!r}, not HOST:PORT")
    return master


def _resume(r: Reader | None) -> ResumePoint | None:
    if r is None:
        return None
    env = r.plain_of("env", 1024)
    name = r.plain("name") if r.has("name") else ""
    return ResumePoint(r.plain("path"), r.number("step", -1, LARGEST), r.text("format"), r.text("verified"), env, name)


def _outcome(r: Reader | None, least: int) -> Outcome | None:
    if r is None:
        return None
    rank = r.number("rank", -LARGEST, LARGEST)  # as the evidence has it
    return Outcome(r.number("exit_code", least, 255), r.text("sentence"), r.text("cls"), r.text("node"), rank)


@lru_cache(maxsize=8)
def decode_roster(raw: bytes) -> Roster:
    """Parse a round's roster; BadRecord when it is not one."""
    r = parse(raw, "roster", MAX_BYTES, SCHEMA)
    n = Round(r.number("round", 1, MAX_ROUND))
    members, spares = (tuple(_member(m) for m in r.subs(name, MAX_NODES)) for name in ("members", "spares"))
    if not members:
        raise BadRecord("roster: no members")
    if len({m.node for m in members + spares}) < len(members + spares):
        raise BadRecord("roster: it names a node twice")
    return Roster(n, members, spares, _store_loss(r))


def _member(r: Reader) -> Member:
    return Member(
        NodeId(r.text("node")),
        Incarnation(r.number("inc", 1, LARGEST)),
        r.text("machine"),
        r.number("slots", 1, MAX_SLOTS),
        r.text("address"),
        r.number("place", NO_PLACE, MAX_NODES, absent=NO_PLACE),
        _role(r),
    )


@lru_cache(maxsize=4096)
def decode_node(raw: bytes) -> Node:
    """Parse a node's record; BadRecord when it is not one."""
    r = parse(raw, "node", MAX_NODE_BYTES, SCHEMA)
    return Node(
        Incarnation(r.number("inc", 1, LARGEST)),
        r.text("machine"),
        r.text("boot"),
        r.text("address"),
        r.number("slots", 1, MAX_SLOTS),
        Round(r.number("ready", 0, MAX_ROUND)),
        r.number("pid", 0, 1 << 31),
        r.text("start"),
        r.number("place", NO_PLACE, MAX_NODES, absent=NO_PLACE),
        _host(r),
        _role(r),
        Round(r.number("checked", 0, MAX_ROUND, absent=0)),
        r.text("unfit") if r.has("unfit") else "",
    )


def _role(r: Reader) -> str:
    role = r.plain("role") if r.has("role") else ROLE
    if len(role) > MAX_ROLE:
        raise BadRecord(f"{r.what}: field 'role' has {len(role)} characters, more than {MAX_ROLE}")
    return role


def _host(r: Reader) -> str:
    host = r.text("host") if r.has("host") else ""
    if len(host) > 80 or not all(c.isascii() and (c.isalnum() or c in "_.-~") for c in host):
        raise BadRecord(f"{r.what}: field 'host' is {host[:80]!a}, which is no name of a host")
    return host


def decode_terms(raw: bytes) -> Terms:
    """Parse the terms of a launch; BadRecord when they are none."""
    r = parse(raw, "terms", MAX_NODE_BYTES, SCHEMA)
    return Terms(NodeId(r.text("by")), r.plain_of("said", 64))
