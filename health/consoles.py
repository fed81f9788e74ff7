"""Who wrote a line of a console that several ranks share: read from the prefixes that launchers and shippers put. Pure.

A file is looked at once, in a sample, to see whether it is such a console at all (``styles``); then each line is asked
(``Splitter``). Numbers before a colon, names before a bar are believed only where nearly every line has one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
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
      | \[[EWIF]\d{4}\ [^\]\n]{1,120}\]\ ? | \[[EWIF]\ [\w./-]{1,60}:\d{1,6}\]\ ?)
    | \[(?P<node>[\w.:-]{1,64})\ rank(?P<ours>\d{1,7})\]
    | [\[(<]?(?:(?:[Gg]lobal[_\ ]?)?[Rr]ank|RANK)[\ :=_]{0,2}(?P<rank>\d{1,7})[\])>]?(?:/\d{1,7}[\])>]?)?(?:[:|\]\ ]{1,3}|$)
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
_SURE = frozenset({"ours", "rank", "group", "mpi", "role", "pod", "ray"})  # named as they are: two of them are enough
_NEARLY_ALL = 0.6
_DEPTH = 5
MOST = 4096  # writers; what more there are stays with the launcher


def styles(sample: Iterable[bytes]) -> frozenset[str]:
    """Return the kinds of prefix by which the lines of this sample are to be split; none for one writer's file."""
    lines = [line for line in sample if line.strip()]
    seen: dict[str, Counter[bytes]] = {}
    for line in lines:
        for kind, word in _tokens(line):
            seen.setdefault(kind, Counter())[word] += 1
    chosen = {k for k, words in seen.items() if k in _SURE and len(words) > 1}
    share = _NEARLY_ALL * len(lines)
    chosen |= {k for k, words in seen.items() if k not in _SURE and len(words) > 1 and sum(words.values()) >= share}
    if not chosen & _SURE and chosen:
        return frozenset(chosen)
    # Ranks that are named in the text alone do not make a console of a file in which one rank names itself on each line.
    return frozenset(chosen | ({"rank", "group"} & seen.keys() if chosen & {"rank", "group", "ours"} else set()))


def only_rank(sample: Iterable[bytes]) -> int:
    """Return the rank that a file of one writer names itself, -1 when it names none or several."""
    ranks = {int(word) for line in sample for kind, word in _tokens(line) if kind in ("ours", "rank", "group", "mpi")}
    return ranks.pop() if len(ranks) == 1 else -1


def _tokens(line: bytes) -> list[tuple[str, bytes]]:
    """Return the prefixes at the start of a line: (kind, the word that tells writers apart)."""
    found: list[tuple[str, bytes]] = []
    at = 0
    for _ in range(_DEPTH):
        token = _TOKEN.match(line, at)
        if token is None or token.end() == at:
            break
        at = token.end()
        for kind in ("ours", "rank", "group", "mpi", "role", "pod", "ray", "task", "bar", "host"):
            word: bytes | None = token[kind]
            if word is not None:
                found.append((kind, word))
    return found


class Splitter:
    """Says who wrote each line of one console, in their order; lines of a traceback stay with its first."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._names: dict[bytes, Writer] = {}  # of prefixes: the same few come again and again
        self._processes: dict[tuple[str, bytes], int] = {}
        self._last = LAUNCHER
        self._inside = False

    def writer(self, line: bytes) -> Writer:
        """Return who wrote this line."""
        found = self._labelled(line)
        if found is not None:
            self._last, self._inside = found, False
            return found
        if self._last is not LAUNCHER:
            if line.startswith((b"Traceback (most", b" ", b"\t")) and line.strip():
                self._inside = True
                return self._last
            if self._inside:  # the line that names the exception ends it
                self._inside = False
                return self._last
        self._last = LAUNCHER
        return LAUNCHER

    def _labelled(self, line: bytes) -> Writer | None:
        node, rank, local, task = "", -1, -1, -1
        at = 0
        for _ in range(_DEPTH):
            token = _TOKEN.match(line, at)
            if token is None or token.end() == at:
                break
            at = token.end()
            kind = token.lastgroup or ""
            if kind == "skip" or (kind if kind != "ip" else "ray") not in self._kinds:
                continue
            word: bytes = token["ray"] if kind == "ip" else token[kind]
            if kind in ("rank", "group", "mpi", "ours"):
                rank = int(word) if rank < 0 else rank
                node = token["node"].decode("ascii", "replace") if kind == "ours" else node
            elif kind == "role":
                local = int(word)
            elif kind == "task":
                task = int(word)
            elif kind in ("ray", "ip"):
                node = (token["ip"] or b"").decode("ascii", "replace")
                local = self._processes.setdefault((node, word), len(self._processes))
            else:
                node = word.decode("ascii", "replace")
        if rank >= 0:
            return self._kept(Writer(node, rank, -1))
        if task >= 0:
            return self._kept(Writer(f"task{task}", -1, local) if local >= 0 else Writer(node, task, -1))
        return self._kept(Writer(node, -1, local)) if local >= 0 or node else None

    def _kept(self, writer: Writer) -> Writer:
        key = repr(writer).encode()
        if key not in self._names and len(self._names) >= MOST:
            return LAUNCHER
        return self._names.setdefault(key, writer)


def kernel_like(lines: Sequence[bytes]) -> bool:
    """Tell whether a sample is a kernel log rather than a program's output."""
    some = [line for line in lines if line.strip()]
    return bool(some) and sum(1 for line in some if KERNEL.search(line)) >= _NEARLY_ALL * len(some)


KERNEL = re.compile(
    rb"^\x1b?(?:<\d{1,3}>)?\[[ \d]{1,8}\.\d{1,9}\] |^(?:\x1b\[[0-9;]*m)?\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] |"
    rb"^[^\n]{0,100}\bkernel: |^\d{1,3},\d{1,12},\d{1,16},[-c](?:,[^;\n]{0,200})?;|^(?:NVRM: |nvidia-nvswitch\d)"
)
