"""A node's facts as bytes for the store, and back. Pure; the only place that knows how evidence is spelled.

Evidence is written by every node when a round ends and read by the leading agent. It is bounded: what does not fit is
cut, last lines before tracebacks, those of ranks we stopped ourselves before those of ranks that failed, and last of
all whole facts, the latest first. Bytes that are no facts at all raise ``BadEvidence``; one fact that this version does
not understand costs no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast, get_args, get_origin

from .errors import BadEvidence
from .evidence import AgentDied, ErrorFile, Fact, Fault, Fenced, GuardianDied, Left, Pace, RankExit, StartError, Told
from .observed import (
    Bundle,
    Early,
    FabricPort,
    Gpu,
    HookWord,
    KernelLine,
    Lacked,
    Large,
    OomKill,
    Position,
    Reentry,
    SchedulerWord,
    Sighting,
    Silence,
    Slow,
    Stack,
)

SCHEMA = 1
MAX_BYTES = 64 << 10
MAX_NUMBER = 10**11  # beyond any pid, status or second; the clock's functions take no more
MAX_LARGE = (1 << 63) - 1  # a rank may count tokens; counters are of 64 bits
SHORT = 512  # what a message keeps when space is really short

_KINDS: dict[str, type[Fact]] = {
    "exit": RankExit,
    "start": StartError,
    "fenced": Fenced,
    "guardian": GuardianDied,
    "agent": AgentDied,
    "left": Left,
    "told": Told,
    "pace": Pace,
    "fault": Fault,
    "sighting": Sighting,
    "early": Early,
    "kernel": KernelLine,
    "gpu": Gpu,
    "oom": OomKill,
    "fabric": FabricPort,
    "silence": Silence,
    "slow": Slow,
    "reentry": Reentry,
    "stack": Stack,
    "position": Position,
    "scheduler": SchedulerWord,
    "hook": HookWord,
    "bundle": Bundle,
    "lacked": Lacked,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode(facts: tuple[Fact, ...]) -> bytes:
    """Return the bytes of a node's facts, at most ``MAX_BYTES``, cut to fit where they must be."""
    raw = _dump(facts)
    if len(raw) <= MAX_BYTES:
        return raw
    for cut in (_halve_tail, _halve_trace, _shorten):
        facts, raw = _cut_until_it_fits(facts, cut)
        if len(raw) <= MAX_BYTES:
            return raw
    kept = list(facts)
    while len(raw) > MAX_BYTES and kept:
        del kept[-max(1, len(kept) // 8) :]
        raw = _dump((*kept, Lacked("evidence", f"{len(facts) - len(kept)} of {len(facts)} facts did not fit")))
    return raw


def decode(raw: bytes) -> tuple[Fact, ...]:
    """Parse a node's facts; BadEvidence when they are none."""
    if len(raw) > MAX_BYTES:
        raise BadEvidence(f"evidence: {len(raw)} bytes, more than {MAX_BYTES}")
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadEvidence(f"evidence: not JSON ({type(error).__name__})") from error
    top = _object(body)
    version = _value(int, top.get("v"), "v")
    if cast(int, version) > SCHEMA:
        raise BadEvidence(f"evidence: written by a newer remuster (schema {version}, this one knows {SCHEMA})")
    facts = top.get("facts")
    if not isinstance(facts, list):
        raise BadEvidence("evidence: no list of facts")
    return tuple(_fact(item) for item in cast("list[object]", facts))


def spelled(facts: tuple[Fact, ...]) -> list[dict[str, object]]:
    """Return the facts as JSON values, uncut."""
    return [{"is": _NAMES[type(fact)], **_plain(fact)} for fact in facts]


def _dump(facts: tuple[Fact, ...]) -> bytes:
    body = {"v": SCHEMA, "facts": spelled(facts)}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _plain(value: Fact | ErrorFile) -> dict[str, object]:
    out: dict[str, object] = {}
    names: tuple[str, ...] = getattr(value, "_fields", ()) or getattr(value, "__slots__", ())
    for name in names:
        item: object = getattr(value, name)
        out[name] = _plain(item) if isinstance(item, ErrorFile) else item
    return out


def _cut_until_it_fits(
    facts: tuple[Fact, ...], cut: Callable[[RankExit], tuple[int, RankExit]]
) -> tuple[tuple[Fact, ...], bytes]:
    """Apply ``cut`` to the exit with most to give, ranks stopped by us first, until all fits or nothing is left."""
    kept = list(facts)
    over = len(_dump(facts)) - MAX_BYTES
    while over > 0:
        gains = [(fact.stopping, *cut(fact)[:1], i) for i, fact in enumerate(kept) if isinstance(fact, RankExit)]
        worth = [gain for gain in gains if gain[1] > 0]
        if not worth:
            break
        _, gain, i = max(worth)
        kept[i] = cut(cast(RankExit, kept[i]))[1]
        over -= gain
        if over <= 0:  # gains are counted without JSON's escapes: count again
            over = len(_dump(tuple(kept))) - MAX_BYTES
    return tuple(kept), _dump(tuple(kept))


def _size(lines: tuple[str, ...]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 3 for line in lines)


def _halve_tail(fact: RankExit) -> tuple[int, RankExit]:
    keep = fact.tail[len(fact.tail) - len(fact.tail) // 2 :]
    return _size(fact.tail) - _size(keep), fact._replace(tail=keep)


def _halve_trace(fact: RankExit) -> tuple[int, RankExit]:
    if fact.error is None or not fact.error.traceback:
        return 0, fact
    trace = fact.error.traceback
    keep = trace[len(trace) - len(trace) // 2 :]
    return len(trace) - len(keep), fact._replace(error=fact.error._replace(traceback=keep))


def _shorten(fact: RankExit) -> tuple[int, RankExit]:
    gain, kept = len(fact.logs), fact._replace(logs="")
    if fact.error is not None:
        short = fact.error._replace(message=fact.error.message[-SHORT:], path=fact.error.path[-SHORT:])
        gain += len(fact.error.message) + len(fact.error.path) - len(short.message) - len(short.path)
        kept = kept._replace(error=short)
    return gain, kept


def _fact(body: object) -> Fact:
    """Read one fact; one that cannot be read costs no other: it is named among what is lacking."""
    try:
        item = _object(body)
        cls = _KINDS.get(str(item.get("is")))
        if cls is None:
            raise BadEvidence(f"unknown kind of fact {str(item.get('is'))[:40]!r}")
        return cast(Fact, _tuple(cls, item))
    except BadEvidence as error:
        return Lacked("evidence", str(error))


def _tuple(cls: type, item: Mapping[str, object]) -> object:
    """Make a named tuple from an object: each field as its annotation says, an absent one as its default."""
    defaults: Mapping[str, object] = getattr(cls, "_field_defaults", {})
    fields = cls.__annotations__.items()
    return cls(*(defaults[n] if n not in item and n in defaults else _value(t, item.get(n), n) for n, t in fields))


def _value(kind: object, value: object, name: str) -> object:
    """Return ``value`` when it is what the annotation ``kind`` says."""
    parts, given = get_args(kind), type(value).__name__
    if ErrorFile in parts:  # or None
        return None if value is None else _tuple(ErrorFile, _object(value))
    if kind is str and isinstance(value, str):
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e15 else 0.0
    if kind is int or kind == Large:
        most = MAX_NUMBER if kind is int else MAX_LARGE
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= most:
            return value
    if get_origin(kind) is tuple and isinstance(value, list):
        items = cast("list[object]", value)
        if parts[-1] is Ellipsis:
            return tuple(_value(parts[0], item, name) for item in items)
        if len(items) == len(parts):
            return tuple(_value(part, item, name) for part, item in zip(parts, items, strict=True))
    raise BadEvidence(f"evidence: field {name!r} is {given}")


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise BadEvidence("evidence: a fact is not an object")
    return cast("dict[str, object]", value)
