"""The state of everything at one moment, as plain tuples and small numbers that stand for larger values.

A ``World`` is what the search remembers. Machine states, writes and the store are interned: equal values have one
number, so a world is a handful of integers, and what a machine does with an event is computed once for all worlds.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from remuster.agent.fence import Fence
from remuster.rendezvous.keys import Keys

KEYS = Keys("x")
NOW = 1.0  # every event happens at this time: what a machine waits for is a step that may be taken
PAUSE = 0.9  # waits shorter than this are over at once
LONG = 20.0  # a wait for longer than this never ends
OVERDUE = -100.0  # since when one waits that has waited long enough
LIVE, OVER = 1.0, -1.0  # a deadline that lies ahead, or has passed: the guardian's clock stands at 0

# What a process of an agent is doing. Texts and not an Enum: they are hashed millions of times.
DOWN, UP, STOPPED, HUNG, FROZEN = "down", "up", "stopped", "hung", "frozen"
ENDING, EXITED, DEAD = "ending", "exited", "dead"
NONE, FROM_HERE, ON = 0, 1, 2  # a watch; FROM_HERE: to begin with what was read, which is not taken in yet
ROUNDS = 64  # incarnations of node i are numbered from (i + 1) * ROUNDS on

_T = TypeVar("_T")


def owner(inc: int) -> int:
    """Return which node an incarnation is of."""
    return inc // ROUNDS - 1


class Violation(AssertionError):
    """An invariant does not hold; ``name`` is its short name."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"[{name}] {what}")
        self.name = name


class Pool(Generic[_T]):
    """Gives equal values one number; 0 stands for none."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[_T] = [None]  # type: ignore[list-item]

    def number(self, value: _T, key: Hashable = None) -> int:
        """Return the number of ``value``; ``key`` stands for it where it cannot be hashed."""
        key = value if key is None else key
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found

    def __getitem__(self, number: int) -> _T:
        return self.values[number]


class Rank(NamedTuple):
    """A node's ranks of one round (they fare alike). Those that have ended stay until a kill has swept the rest."""

    round: int
    inc: int
    alive: bool
    start: tuple[Any, ...]  # resume point, master address, roster: must be equal in the whole group
    asked: bool = False  # SIGTERM was sent


class Order(NamedTuple):
    """A start on its way to the guardian. ``held``: by the agent, until its lease is renewed after a fence."""

    round: int
    inc: int
    place: int
    start: tuple[Any, ...]
    held: bool
    behind: int = 0  # kills that were sent before it: the socket keeps the order


class Node(NamedTuple):
    """One node between two steps."""

    process: str = DOWN
    machine: int = 0  # the node machine's state
    leader: int = 0  # the job machine's state, while this agent leads
    watch: int = NONE
    jobs: tuple[int, ...] = ()  # job records that the watch has not delivered
    keys: tuple[tuple[int, int], ...] = ()  # the same of the leader key: (key or 0, revision)
    run: tuple[int, ...] = ()  # the same of the whole run, for the job machine
    calls: tuple[tuple[Any, ...], ...] = ()  # on their way to the store, or to whoever answers
    rank: Rank | None = None
    old: Rank | None = None  # what a dead agent's guardian has not swept yet
    order: Order | None = None
    kills: tuple[int, ...] = ()  # rounds whose proof of death was asked for
    words: tuple[int, ...] = ()  # the guardian's words that the agent has not heard
    behind: bool = False  # … because it could not hear them: then their order with other events is open
    fence: Fence = Fence()
    linked: bool = True  # reaches the store
    lease: int = 0  # the lease that this process renews
    ahead: bool = False  # its deadline has not passed
    grants: int = 0
    patience: bool = False  # the job machine waits: for evidence, or for more nodes


class Ledger(NamedTuple):
    """What has really happened: the invariants are about this and not about what a machine believes."""

    formed: int = 0  # newest round that was ever formed
    charged: tuple[int, ...] = ()
    finished: tuple[tuple[int, str, int], ...] = ()  # (round, node, incarnation) whose ranks exited 0
    hurt: int = 0  # newest round in which ranks ended otherwise: their peers may fail as well
    checkpoint: int = 0
    done: tuple[str, ...] = ()  # launches that were done


class Around(NamedTuple):
    """What is around the nodes."""

    left: tuple[int, tuple[tuple[str, int], ...]]  # faults that may still happen: in all, and of each kind
    reachable: bool = True  # the store answers
    late: tuple[int, int, int] | None = None  # a write whose sender gave up waiting: (write, node, incarnation)


class World(NamedTuple):
    store: int
    ledger: Ledger
    around: Around
    nodes: tuple[int, ...]
