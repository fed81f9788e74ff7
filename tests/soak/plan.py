"""The faults of a soak, drawn from one seed: which, where, how long, and how far apart. Pure; times are in leases.

Faults come in bursts: mostly one, sometimes two or three so close together that the later ones meet a job that is
re-forming. Within a burst at most one is of the store, so that its end is nobody else's. Used by ``test_soak.py``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class Kind(str, Enum):
    """What is done to the job; the value is its name in the summary."""

    RANK = "a rank killed"
    AGENT = "an agent killed"
    GUARDIAN = "a guardian killed"
    KEEPER = "a keeper killed"
    NODE = "a whole node killed, started again later"
    STALL = "an agent suspended beyond its lease, then continued"
    STORE_KILLED = "etcd killed (all members) and started again"
    STORE_PAUSED = "etcd suspended (all members) for less than the lease"
    STORE_AWAY = "etcd suspended (all members) for more than the lease"
    MEMBER_KILLED = "one member of three killed and started again"
    MEMBER_PAUSED = "one member of three suspended and continued"

    @property
    def ends_agent(self) -> bool:
        """Whether the node's command ends with it, so that somebody starts it again."""
        return self in (Kind.AGENT, Kind.KEEPER, Kind.NODE)

    @property
    def lasts(self) -> bool:
        """Whether it has a length of its own: what is suspended goes on, what was killed is started again."""
        return self in LASTS

    @property
    def of_store(self) -> bool:
        """Whether it is done to etcd."""
        return self.name.startswith(("STORE", "MEMBER"))


# How long each lasts, or for those that end a command, how long until it is started again.
LASTS = {
    Kind.AGENT: (0.0, 1.0),
    Kind.KEEPER: (0.0, 1.0),
    Kind.NODE: (0.0, 3.0),
    Kind.STALL: (1.2, 2.5),
    Kind.STORE_KILLED: (0.0, 2.0),
    Kind.STORE_PAUSED: (0.1, 0.9),
    Kind.STORE_AWAY: (1.2, 2.5),
    Kind.MEMBER_KILLED: (0.2, 2.0),
    Kind.MEMBER_PAUSED: (0.2, 2.0),
}
SINGLE = 0.6  # share of bursts of one fault
CLOSE = 1.5  # most between two faults of a burst: that is in the midst of the recovery from the first
CALM = (0.3, 1.5)  # after the job has recovered


class Fault(NamedTuple):
    """One fault. ``node`` and ``pick`` choose among nodes, ranks and members as there are then."""

    kind: Kind
    node: int
    pick: int
    after: float  # since the one before in its burst
    lasts: float


class Burst(NamedTuple):
    """Faults that are not waited for in between, and the calm after the job has recovered from all of them."""

    faults: tuple[Fault, ...]
    calm: float


def bursts(seed: str, members: int) -> Iterator[Burst]:
    """Yield bursts for ever: every kind comes once before any comes again (a rank is killed twice as often)."""
    chance = random.Random(seed)
    kinds = [k for k in Kind if members == 3 or not k.name.startswith("MEMBER")]
    deck: list[Kind] = []
    while True:
        drawn: list[Kind] = []
        for _ in range(1 if chance.random() < SINGLE else chance.choice((2, 2, 3))):
            if not deck:
                deck = [*kinds, Kind.RANK]
                chance.shuffle(deck)
            if deck[-1].of_store and any(k.of_store for k in drawn):
                break
            drawn.append(deck.pop())
        faults = [
            Fault(
                kind,
                chance.randrange(6),
                chance.randrange(6),
                chance.uniform(0, CLOSE) if i else 0.0,
                chance.uniform(*LASTS.get(kind, (0.0, 0.0))),
            )
            for i, kind in enumerate(drawn)
        ]
        yield Burst(tuple(faults), chance.uniform(*CALM))
