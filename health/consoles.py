"""Who wrote a line of a console that several ranks share: read from the prefixes that launchers and shippers put. Pure.

A file is looked at once, in a sample, to see whether it is such a console at all (``style``); then each line is asked
(``Splitter``). Numbers before a colon, names before a bar are believed only where nearly every line has one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Writer(NamedTuple):
    """Whoever wrote a line. ``rank`` counts in the job, ``local`` on its node, -1 where the prefix does not say."""

    node: str = ""
    rank: int = -1
    local: int = -1


LAUNCHER = Writer()  # nobody in particular: the launcher's own lines, and those that bear no prefix

_TOKEN = re.compile(
    rb"""(?P<skip>(?:\x1b\[[0-9;]{0,16}m)+
      | \[?\d{4}[-/]\d\d[-/]\d\d[T\ ,-]{1,2}\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?(?:Z|\ ?[+-]\d\d:?\d\d)?\]?[\ :]{0,3}
          (?:std(?:out|err)\ [FP]\ )?
      | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?\ {1,2}
      | [([]?(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)[)\]]?[\ :|-]{1,8}
      | \[[EWIF]\d{3,4}\ [^\]\n]{1,120}\]\ ? | \[[EWIF]\ [\w./-]{1,60}:\d{1,6}\]\ ?)
    | \[(?P<node>[\w.:-]{1,64})\ rank(?P<ours>\d{1,7})\]
    | (?:[\[(<](?:(?:[Gg]lobal[_\ ]?)?[Rr]ank|RANK)[\ :=_]{0,2}(?=\d{1,7}(?:/\d{1,7})?[\])>])
        | (?:[Rr]ank|RANK)[\ _]?(?=\d{1,7}[:|]))(?P<rank>\d{1,7})(?:/\d{1,7})?[\])>:|]{1,2}\ ?
    | \[PG\ [^\]\n]{0,80}Rank\ (?P<group>\d{1,7})\]\ ?
    | \[\d{1,6},(?P<mpi>\d{1,7})\]<std(?:out|err)>:\ ?
    | \[[A-Za-z_][A-Za-z_-]{0,30}?(?P<role>\d{1,4})\]:\ ?
    | \[pod/(?P<pod>[\w.-]{1,80})/[\w.-]{1,80}\]\ ?
    | \([\w.:-]{1,64}\ pid=(?P<ray>\d{1,9})(?:,\ ip=(?P<ip>[\d.:a-f]{1,40}))?\)\ ?
    | (?P<task>\d{1,6}):\ ?
    | (?P<bar>[A-Za-z][\w.-]{0,63}?)\ {0,16}(?:\||\xe2\x94\x82)\ ?
    | (?P<host>[A-Za-z][\w.-]{0,60}\d):\ """,
    re.VERBOSE,
)
_NODES = ("task", "bar", "host", "pod")  # names of nodes, or of ranks where each has one of its own
_PROCESSES = ("ours", "mpi", "role", "ray")
_RANKS = ("rank", "group")  # what a rank says of itself, on some of its lines
_KINDS = (*_NODES, *_PROCESSES, *_RANKS)
_SURE = frozenset({"pod", *_PROCESSES, *_RANKS})  # named as they are: two of them are enough
_NEARLY_ALL = 0.6
_DEPTH = 6
NAMING = 200  # bytes of a line in which a rank may name itself
PREFIX, SHAPES = 96, 4  # bytes of a prefix that is remembered, lengths that are tried
MOST = 2048  # writers; what more there are stays with the launcher


class Style(NamedTuple):
    """How a console is to be split: by which prefixes, and whether by the rank that lines name as well."""

    kinds: frozenset[str] = frozenset()
    by_rank: bool = False

    def __bool__(self) -> bool:
        return bool(self.kinds)


def style(sample: Iterable[bytes]) -> Style:
    """Return how the lines of this sample are to be split; an empty style for one writer's file."""
    lines = [_tokens(line)[0] for line in sample if line.strip()]
    seen: dict[str, Counter[str]] = {}
    for tokens in lines:
        for kind, word in tokens.items():
            seen.setdefault(kind, Counter())[word] += 1
    share = _NEARLY_ALL * len(lines)
    kinds = {kind for kind, words in seen.items() if len(words) > 1 and (kind in _SURE or sum(words.values()) >= share)}
    if kinds.intersection(_NODES):  # ranks of one number each, on several nodes
        kinds |= {kind for kind in _PROCESSES if sum(seen.get(kind, Counter()).values()) >= share}
    outer = kinds.difference(_RANKS)
    if not outer:
        return Style(frozenset(_RANKS if kinds else ()), bool(kinds))
    inner: dict[tuple[str, ...], set[str]] = {}
    for tokens in lines:
        ranks = inner.setdefault(_outer(tokens, outer), set())
        ranks.update(tokens[kind] for kind in _RANKS if kind in tokens)
    return Style(frozenset({*outer, *_RANKS}), any(len(ranks) > 1 for key, ranks in inner.items() if any(key)))


def only_rank(sample: Iterable[bytes]) -> int:
    """Return the rank that a file of one writer names itself, -1 when it names none or several."""
    found = (_tokens(line)[0] for line in sample)
    ranks = {int(tokens[kind]) for tokens in found for kind in (*_RANKS, "ours", "mpi") if kind in tokens}
    return ranks.pop() if len(ranks) == 1 else -1


def _tokens(line: bytes, wanted: frozenset[str] | None = None) -> tuple[dict[str, str], int]:
    """Return the prefixes at the start of a line by kind, the first of each, and where the last outer one ends."""
    found: dict[str, str] = {}
    at = cut = 0
    for _ in range(_DEPTH):
        token = _TOKEN.match(line, at)
        if token is None or token.end() == at:
            break
        at = token.end()
        kind = token.lastgroup or ""
        kind = "ray" if kind == "ip" else kind
        if kind == "skip" or (wanted is not None and kind not in wanted):
            continue
        found.setdefault(kind, token[kind].decode("ascii", "replace"))
        for name in ("node", "ip"):
            if token[name]:
                found[name] = token[name].decode("ascii", "replace")
        if kind not in _RANKS:
            cut = at
    return found, cut


def _outer(tokens: Mapping[str, str], kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(tokens.get(kind, "") for kind in sorted(kinds))


class Splitter:
    """Says who wrote each line of one console, in their order; lines of a traceback stay with its first."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._outer = style.kinds.difference(_RANKS)
        self._writers: set[Writer] = set()
        self._processes: dict[tuple[str, str], int] = {}
        self._last = LAUNCHER
        self._inside = False
        self._known: dict[bytes, Writer] = {}  # by a prefix that never changes, as nearly all do
        self._lengths: list[int] = []
        self.ranks: dict[Writer, set[int]] = {}  # that writers named themselves, where they are told apart otherwise

    def writer(self, line: bytes) -> tuple[Writer, bytes]:
        """Return who wrote this line, and the line without the prefix that says so."""
        if b"ank" not in line[:NAMING]:  # or it may name a rank: read that
            for length in self._lengths:
                if (known := self._known.get(line[:length])) is not None:
                    self._last, self._inside = known, False
                    return known, line[length:]
        found, cut = self._labelled(line)
        if found is not None:
            if not self._style.by_rank and 0 < cut <= PREFIX and len(self._known) < MOST:
                self._known[line[:cut]] = found
                self._lengths = sorted({*map(len, self._known)}, reverse=True)[:SHAPES]
            self._last, self._inside = found, False
            return found, line[cut:]
        if self._last is not LAUNCHER:
            if line.startswith((b"Traceback (most", b" ", b"\t")) and line.strip():
                self._inside = True
                return self._last, line
            if self._inside:  # the line that names the exception ends it
                self._inside = False
                return self._last, line
        self._last = LAUNCHER
        return LAUNCHER, line

    def _labelled(self, line: bytes) -> tuple[Writer | None, int]:
        tokens, cut = _tokens(line, self._style.kinds)
        named = next((int(tokens[kind]) for kind in _RANKS if kind in tokens), -1)
        rank = next((int(tokens[kind]) for kind in ("ours", "mpi") if kind in tokens), -1)
        node = tokens.get("node") or next((tokens[kind] for kind in ("pod", "bar", "host") if kind in tokens), "")
        local = int(tokens.get("role", -1))
        if "ray" in tokens:
            node = tokens.get("ip", node)
            local = self._processes.setdefault((node, tokens["ray"]), len(self._processes))
        if "task" in tokens:
            if local >= 0 or self._style.by_rank:
                node = node or f"task{tokens['task']}"
            else:
                rank = int(tokens["task"]) if rank < 0 else rank
        if self._style.by_rank:
            rank = named if rank < 0 else rank
            if rank < 0 and local < 0:
                return None, 0
        elif rank < 0 and local < 0 and not node:
            return None, 0
        writer = Writer(node, rank, local if rank < 0 else -1)
        if writer not in self._writers and len(self._writers) >= MOST:
            return None, 0
        self._writers.add(writer)
        if named >= 0:
            self.ranks.setdefault(writer, set()).add(named)
        return writer, cut

    def named(self) -> dict[Writer, int]:
        """Return the rank of each writer that named one, when no two of them claim the same."""
        alone = {writer: next(iter(ranks)) for writer, ranks in self.ranks.items() if len(ranks) == 1}
        return alone if len(set(alone.values())) == len(alone) else {}


def kernel_like(lines: Sequence[bytes]) -> bool:
    """Tell whether a sample is a kernel log rather than a program's output."""
    some = [line for line in lines if line.strip()]
    return bool(some) and sum(1 for line in some if KERNEL.search(line)) >= _NEARLY_ALL * len(some)


KERNEL = re.compile(
    rb"^(?:<\d{1,3}>)?\[[ \d]{1,8}\.\d{1,9}\] |"  # dmesg
    rb"^(?:\x1b\[[0-9;]*m)?\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] |"  # dmesg -T
    rb"^[^\n]{0,100}\bkernel: |"  # journalctl, syslog
    rb"^\d{1,3},\d{1,12},\d{1,16},[-c](?:,[^;\n]{0,200})?;|"  # /dev/kmsg
    rb"^(?:NVRM: |nvidia-nvswitch\d)"
)
