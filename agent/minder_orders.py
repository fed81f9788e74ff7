"""What an agent and the minder of its store tell each other: the orders at the start, and the words at the door.

At the door the minder speaks JSON lines: any number of {"say": sentence}, then {"run_id", "machine", "endpoint"} or
{"error": sentence}. An agent says nothing but a farewell; one that goes without it was killed, and may come back.
"""

from __future__ import annotations

from typing import NamedTuple

BYE = b"bye\n"


class Orders(NamedTuple):
    """What to serve, where, for whom. ``run_id`` is empty when the minder is to make one."""

    folder: str
    addresses: tuple[str, ...]
    port: int
    prefix: str
    run_id: str
    lease_ttl_s: int
    binary: str
    token_file: str  # a path; empty: whoever reaches the port may join
    by: str
    hold_s: float  # how long to wait before the store is opened: for nodes of one that was killed
