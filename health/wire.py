"""A node's facts as bytes for the store, and back. Pure; the only place that knows how evidence is spelled.

Evidence is written by every node when a round ends and read by the leading agent. It is bounded: what does not fit is
cut, last lines before tracebacks, those of ranks we stopped ourselves before those of ranks that failed, and last of
all whole facts, the latest first. Bytes that this version does not understand raise ``BadEvidence``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from .errors import BadEvidence
from .evidence import AgentDied, ErrorFile, Fact, Fault, Fenced, GuardianDied, Left, Pace, RankExit, StartError, Told

SCHEMA = 1
MAX_BYTES = 64 << 10
MAX_NUMBER = 10**11  # beyond any pid, status or second; the clock's functions take no more
MAX_STEP = (1 << 63) - 1  # a rank may count tokens
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
        raw = _dump((*kept, Fault(f"{len(facts) - len(kept)} of {len(facts)} facts did not fit into the store")))
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
    version = _int(top, "v")
    if version > SCHEMA:
        raise BadEvidence(f"evidence: written by a newer remuster (schema {version}, this one knows {SCHEMA})")
    facts = top.get("facts")
    if not isinstance(facts, list):
        raise BadEvidence("evidence: no list of facts")
    return tuple(_fact(_object(item)) for item in cast("list[object]", facts))


def _dump(facts: tuple[Fact, ...]) -> bytes:
    body = {"v": SCHEMA, "facts": [{"is": _NAMES[type(fact)], **_plain(fact)} for fact in facts]}
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


def _fact(item: Mapping[str, object]) -> Fact:
    match item.get("is"):
        case "exit":
            error = item.get("error")
            return RankExit(
                _int(item, "rank"),
                _int(item, "local_rank"),
                _int(item, "pid"),
                _int(item, "status"),
                _float(item, "at_s"),
                item.get("stopping") is True,
                None if error is None else _error(_object(error)),
                _lines(item, "tail"),
                _int(item, "wall"),
                _text(item, "logs") if "logs" in item else "",
            )
        case "start":
            return StartError(_int(item, "rank"), _int(item, "local_rank"), _int(item, "errno"), _text(item, "program"))
        case "fenced":
            return Fenced(_float(item, "at_s"))
        case "guardian":
            return GuardianDied(_float(item, "at_s"))
        case "agent":
            return AgentDied(_int(item, "status"))
        case "left":
            return Left(_int(item, "signal"))
        case "told":
            return Told(_float(item, "at_s"))
        case "pace":
            return Pace(_int(item, "ranks"), _int(item, "step", MAX_STEP), _float(item, "first_s"))
        case "fault":
            return Fault(_text(item, "what"), _text(item, "cls"))
        case other:
            raise BadEvidence(f"evidence: unknown kind of fact {str(other)[:40]!r}")


def _error(item: Mapping[str, object]) -> ErrorFile:
    return ErrorFile(_text(item, "message"), _text(item, "traceback"), _int(item, "timestamp"), _text(item, "path"))


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise BadEvidence("evidence: a fact is not an object")
    return cast("dict[str, object]", value)


def _wrong(name: str, value: object) -> BadEvidence:
    return BadEvidence(f"evidence: field {name!r} is {type(value).__name__}")


def _int(item: Mapping[str, object], name: str, most: int = MAX_NUMBER) -> int:
    value = item.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > most:
        raise _wrong(name, value)
    return value


def _float(item: Mapping[str, object], name: str) -> float:
    value = item.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(name, value)
    return float(value) if abs(value) < 1e15 else 0.0


def _text(item: Mapping[str, object], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _wrong(name, value)
    return value


def _lines(item: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = item.get(name)
    if not isinstance(value, list):
        raise _wrong(name, value)
    lines = cast("list[object]", value)
    if not all(isinstance(line, str) for line in lines):
        raise _wrong(name, lines)
    return tuple(cast("list[str]", lines))
