"""What every node is asked before a round begins, "can you load this checkpoint?", and what each answers. Pure.

The question stands in ``job`` while the round forms, so that who asks holds the token, who answers compares the very
revision that asked, and a late joiner sees it too. An answer is a report of its node about the round (``keys.py``).
``agreement.py`` decides from both; ``checkpoint/look.py`` answers.
"""

# Annotations are evaluated here: a named tuple is made sooner from types than from their names.
import json
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from .errors import BadRecord
from .reader import LARGEST, Reader, parse

SCHEMA = 1
MAX_BYTES = 1 << 14
MOST_STEPS = 32  # that an answer names
MAX_WHY = 200  # characters
MAX_NAME = 1024
MOST_RANGES = 256  # of ranks, in an answer
MOST_RANKS = 10**6  # of a round: a file is looked for of each

Ranges = tuple[tuple[int, int], ...]
"""Ranks, as first and last of each row of them, ascending."""


class Asked(NamedTuple):
    """A question: which checkpoint, and how it looks to who asks. Without a name: none was found, which have you?"""

    token: int = 0  # of the leader that asks: another one asks anew
    number: int = 0  # of its questions
    name: str = ""  # relative to the checkpoint directory, which may have another path on each node; or a hook's path
    step: int = -1
    format: str = ""  # HOOKS: only that the path is there is asked
    files: int = 0
    bytes: int = 0
    digest: str = ""  # over the names and sizes of its files and over its marker
    sign: str = ""  # which inode its marker, or a part's folder, is, and of when: equal where it is shared
    part: int = 0  # ranks of the coming round, where each node may hold the files of its own alone (``parts.py``)

    @property
    def mark(self) -> tuple[int, int]:
        """Return what tells this question from all others about its round."""
        return (self.token, self.number)


HOOKS = "path"  # the format of a question about a path that a resume hook has named


class Found(str, Enum):
    """How a checkpoint looks to one node."""

    CAN = "can"  # it can be loaded
    LACKS = "lacks"  # all of it, or files of it, are not there
    DIFFERS = "differs"  # it is there, and torn, corrupt or another one
    UNKNOWN = "unknown"  # nobody can tell: the file system gives no answer


class Sight(NamedTuple):
    """One node's answer to the question ``mark``; ``steps`` are the newest that it has, newest first.

    ``ranks``: whose files lie there whole, where parts were asked for; ``parts``: the newest of which a part does.
    """

    mark: tuple[int, int]
    found: Found
    why: str = ""  # reads on after the node's name: "lacks it: …"
    steps: tuple[tuple[str, int], ...] = ()
    ranks: Ranges = ()
    parts: tuple[tuple[str, int], ...] = ()


class Held(NamedTuple):
    """What of a checkpoint lies on the node that chooses, where each node may hold the files of its own ranks alone."""

    ranks: Ranges = ()  # whose files it has
    wrote: int = 0  # ranks that wrote it; 0: not recorded


def ranges(ranks: Iterable[int]) -> Ranges:
    """Return ascending ranks as rows."""
    rows: list[tuple[int, int]] = []
    for rank in ranks:
        if rows and rows[-1][1] == rank - 1:
            rows[-1] = (rows[-1][0], rank)
        else:
            rows.append((rank, rank))
    return tuple(rows)


def read_asked(r: Reader | None) -> Asked | None:
    """Read the question in a job record; BadRecord when it is none."""
    if r is None:
        return None
    name = r.plain("name")
    if len(name) > MAX_NAME:
        raise BadRecord(f"{r.what}: field 'name' has {len(name)} characters, more than {MAX_NAME}")
    return Asked(
        r.number("token", 0, LARGEST),
        r.number("number", 0, LARGEST),
        name,
        r.number("step", -1, LARGEST),
        r.text("format"),
        r.number("files", 0, LARGEST),
        r.number("bytes", 0, LARGEST),
        r.text("digest"),
        r.text("sign"),
        r.number("part", 0, MOST_RANKS, absent=0),
    )


def encode_sight(sight: Sight) -> bytes:
    """Return an answer's bytes, bounded."""
    token, number = sight.mark
    body = {"v": SCHEMA, "token": token, "number": number, "found": sight.found.value, "why": sight.why[:MAX_WHY]}
    steps = [(name, step) for name, step in sight.steps if len(name) <= MAX_NAME // 4][:MOST_STEPS]
    parts = [(name, step) for name, step in sight.parts if len(name) <= MAX_NAME // 4][:1]
    more = {"ranks": sight.ranks[:MOST_RANGES], "parts": parts} if sight.ranks or parts else {}
    return json.dumps({**body, "steps": steps, **more}, separators=(",", ":")).encode()


def decode_sight(raw: bytes) -> Sight:
    """Parse an answer; BadRecord when it is none."""
    r = parse(raw, "look", MAX_BYTES, SCHEMA)
    try:
        found = Found(r.text("found"))
    except ValueError as error:
        raise BadRecord(f"look: unknown answer {r.text('found')[:20]!r}") from error
    mark = (r.number("token", 0, LARGEST), r.number("number", 0, LARGEST))
    steps = r.numbers_of("steps", MOST_STEPS, -1, LARGEST)
    if not r.has("ranks"):
        return Sight(mark, found, r.text("why")[:MAX_WHY], steps)
    rows = r.rows("ranks", MOST_RANGES, 0, LARGEST)
    return Sight(mark, found, r.text("why")[:MAX_WHY], steps, rows, r.numbers_of("parts", 1, 0, LARGEST))
