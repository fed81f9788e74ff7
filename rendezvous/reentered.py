"""What a node says once its ranks go on from a checkpoint as they should; and what all nodes of a round say together.

Pure. The report is written once in a round, as ``started`` is; ``leader_reentry.py`` reads it, and the record of the
round tells it. Whether ranks go on is judged where they are (``health/reentry.py``).
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
import json
from collections.abc import Iterable
from typing import NamedTuple

from .errors import BadRecord
from .reader import LARGEST, parse

SCHEMA = 1
MAX_BYTES = 1 << 10
MAX_BY = 100  # characters


class Reentered(NamedTuple):
    """So many steps agree; ``by`` names what was compared: 'steps', or 'steps, loss, …'."""

    steps: int
    by: str


def encode_reentered(said: Reentered) -> bytes:
    """Return a report's bytes."""
    return json.dumps({"v": SCHEMA, "steps": said.steps, "by": said.by[:MAX_BY]}, separators=(",", ":")).encode()


def together(reports: Iterable[bytes | None]) -> Reentered | None:
    """Return what the members of a round say together, None when one has not said it, or nothing that can be read."""
    said: list[Reentered] = []
    for raw in reports:
        if raw is None:
            return None
        try:
            r = parse(raw, "reentered", MAX_BYTES, SCHEMA)
            said.append(Reentered(r.number("steps", 0, LARGEST), r.text("by")[:MAX_BY]))
        except BadRecord:
            return None
    if not said:
        return None
    names = [name for name in said[0].by.split(", ") if all(name in one.by.split(", ") for one in said)]
    return Reentered(min(one.steps for one in said), ", ".join(names))
