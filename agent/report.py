"""The final report of a failed launch: the verdict first, then torchrun's layout, so that people and tools find what
they know, then what torchrun does not say: the root's last words, the victims, where the files are, what was spent,
what to do. It fits a screen, whatever the number of ranks. Pure text, without colour.

The leading agent renders it into the round's record, so that all nodes print the same. The last line names the
exception that torchrun would have raised: wrappers that run the command look for exactly that.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from ..health import exits, words
from ..health.evidence import RankExit, RoundEvidence
from ..health.observed import Bundle, Stack
from ..health.tail import clean
from ..health.verdict import Verdict
from .rank_ranges import named

COLUMNS, LINES = 110, 50  # a screen
RULE = 60  # torchrun's: rules are as long as the longest line, at most
TRACE_LINES = 12
PLACES, PLACE = 3, 80  # of stacks: places, and characters of one
LAST_LINES, LEAST_LINES = 20, 4  # of the root's output: as many as fit
_LAST = "ChildFailedError: "
# paths are for copying, the last line for programs
_UNCUT = ("  error_file: ", "Logs      : ", "Bundle    : ", "Record    : ", _LAST)
_SHOWN = ("last lines", "exit status", "lease", "agent", "start", "store")  # sources that the rest of the report shows
_NONE = "<N/A>"
_HINT = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


class Case(NamedTuple):
    """What is reported. ``entry`` is the program as typed."""

    entry: str
    evidence: RoundEvidence
    verdict: Verdict
    decision: str = ""  # why it is tried again, or why not
    retry: bool = False
    spent: str = ""
    record: str = ""  # where the record of this attempt lies, with the node


class Failure(NamedTuple):
    """One rank that ended badly by itself, or the root."""

    node: str
    exit: RankExit

    @property
    def text(self) -> str:
        """The traceback, or what torchrun says instead of one."""
        end = self.exit
        if end.error and (text := end.error.traceback or end.error.message):
            return text
        if end.status >= 0:
            return _HINT
        return f"Signal {-end.status} ({exits.signal_name(end.status) or _NONE}) received by PID {end.pid}"


def one_line(sentence: str) -> str:
    """Return a sentence that may hold somebody else's words as one line that cannot move a terminal's cursor."""
    shown = (f"\\x{ord(c):02x}" if c < " " or "\x7f" <= c < "\xa0" else c for c in " ".join(sentence.split()))
    return "".join(shown)


def render(case: Case) -> str:
    """Return the report of a round that failed."""
    verdict = case.verdict
    ends = [Failure(node.node, f) for node in case.evidence.nodes for f in node.facts if isinstance(f, RankExit)]
    ends.sort(key=lambda end: (end.exit.rank, end.node))
    root = next((end for end in ends if (end.node, end.exit.rank) == (verdict.node, verdict.rank)), None)
    victims = {(node, rank) for node, rank, _ in verdict.victims}
    others = [
        end
        for end in ends
        if end is not root and end.exit.status and not end.exit.stopping and (end.node, end.exit.rank) not in victims
    ]
    title = f"{case.entry} FAILED"
    blocks = _others(others)
    first = _block(0, root, TRACE_LINES) if root else _no_rank(verdict)
    heading = title if len(title) <= COLUMNS else f"…{title[1 - COLUMNS :]}"  # of a path, the end tells
    width = min(RULE, max(len(line) for line in [heading, *blocks, *first]))
    bar, section = "=" * width, "-" * width
    above = ["", *_wrapped("", verdict.sentence), bar, heading, section, "Failures:", *blocks]
    above += [section, "Root Cause (first observed failure):", *first, bar]
    last = f"{_LAST}{title}: {one_line(verdict.sentence)}"
    below = [*_victims(case, ends, victims), *_facts(case, root, above), last, ""]
    room = LINES - len(above) - len(below) - len(last) // COLUMNS - 1
    lines = [*above, *_last_lines(root, min(LAST_LINES, max(LEAST_LINES, room))), *below]
    return "\n".join(clean(line) if line.startswith(_UNCUT) else _fit(clean(line)) for line in lines)


def _others(others: list[Failure]) -> list[str]:
    """Show the first as torchrun would, the rest in a line: when all fail alike one says it all."""
    if not others:
        return ["  <NO_OTHER_FAILURES>"]
    lines = _block(1, others[0], 1)
    if rest := others[1:]:
        (status, count), *further = Counter(end.exit.status for end in rest).most_common()
        how = f"{exits.words(status)}{f' ({count} of them)' if further else ''}"
        lines.append(f"  and {named(end.exit.rank for end in rest)}, by themselves too: {how}")
    return lines


def _stamp(wall: int) -> str:
    return time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(wall)) if wall else _NONE


def _block(index: int, failure: Failure, lines: int) -> list[str]:
    """Return torchrun's block; of a long traceback its first line and its last ones, or the last line alone."""
    end, text = failure.exit, [line for line in failure.text.split("\n") if line.strip()] or [_NONE]
    if len(text) > lines:
        text = [text[0], "…", *text[2 - lines :]] if lines > 2 else text[-1:]
    name = exits.signal_name(end.status)
    stamp = (end.error.timestamp if end.error else 0) or end.wall
    return [
        f"[{index}]:",
        f"  time      : {_stamp(stamp)}",
        f"  host      : {failure.node}",
        f"  rank      : {end.rank} (local_rank: {end.local_rank})",
        f"  exitcode  : {end.status} (pid: {end.pid}) {f' ({name})' if name else ''}".rstrip(),
        f"  error_file: {end.error.path if end.error and end.error.path else _NONE}",
        f"  traceback : {text[0]}",
        *(f"  {line}" for line in text[1:]),
    ]


def _no_rank(verdict: Verdict) -> list[str]:
    return ["[0]:", f"  host      : {verdict.node or _NONE}", f"  traceback : {verdict.sentence}"]


def _last_lines(root: Failure | None, room: int) -> list[str]:
    """Return the root's last lines but for those that its block shows already."""
    if root is None:
        return []
    shown = {line.strip() for line in root.text.split("\n")} if root.exit.error else set[str]()
    found = [line for line in root.exit.tail if line.strip() not in shown]
    if not found:
        return []
    return [f"Last lines of rank {root.exit.rank} on {root.node}:", *(f"  {line}" for line in found[-room:])]


def _victims(case: Case, ends: list[Failure], victims: set[tuple[str, int]]) -> list[str]:
    """Return all other ranks in one line: whom it took along, whom we stopped, who had left before."""
    verdict, groups = case.verdict, list[tuple[list[int], str]]()
    others = [end for end in ends if (end.node, end.exit.rank) != (verdict.node, verdict.rank)]
    groups.append(([end.exit.rank for end in others if (end.node, end.exit.rank) in victims], "ended because of it"))
    stopped = [end for end in others if end.exit.stopping and (end.node, end.exit.rank) not in victims]
    groups.append(([end.exit.rank for end in stopped], "stopped by us (SIGTERM)"))
    groups.append((_ranks_of(case.evidence, set(case.evidence.lost)), "lost with their node"))
    left = [end.exit.rank for end in others if not end.exit.stopping and end.exit.status == 0]
    groups.append((left, "had exited 0 before"))
    most = 8 if sum(bool(ranks) for ranks, _ in groups) < 2 else 3
    said = [f"{named(ranks, most)} {what}" for ranks, what in groups if ranks]
    return [f"Victims   : {'; '.join(said)}"] if said else []


def _ranks_of(evidence: RoundEvidence, nodes: set[str]) -> list[int]:
    found, first = list[int](), 0
    for node, slots in evidence.members:
        found += range(first, first + slots) if node in nodes else ()
        first += slots
    return found


def _facts(case: Case, root: Failure | None, above: list[str]) -> list[str]:
    verdict = case.verdict
    where = "; the fault is the node" if verdict.node_fault else ""
    sure = {"likely": "; likely, not certain", "guess": "; a guess"}.get(verdict.confidence, "")
    lines = [f"Class     : {verdict.cls} (family {verdict.family}){where}{sure}"]
    if verdict.gpu and verdict.gpu not in verdict.sentence:
        lines.append(f"GPU       : {verdict.gpu}")
    deciding = " ".join(verdict.line.split())[:COLUMNS]
    if deciding not in verdict.sentence and deciding not in "\n".join(above):
        lines.append(f"Line      : {verdict.line}")
    said = (verdict.sentence, verdict.line)
    seen = [p for p in verdict.evidence if p.source not in _SHOWN and not any(p.text in text for text in said)]
    if seen:
        lines += _wrapped("Evidence  : ", "; ".join(f"{p.source}, {p.where}: {p.text}" for p in seen))
    if verdict.lacked and sure:
        lines += _wrapped("Lacked    : ", "; ".join(verdict.lacked))
    lines += _stacks(case)
    if root and root.exit.logs:
        lines.append(f"Logs      : {root.node}: {root.exit.logs}/stdout.log, stderr.log")
    kept = {n.node: f.path for n in case.evidence.nodes for f in n.facts if isinstance(f, Bundle)}
    if kept:
        node = verdict.node if verdict.node in kept else min(kept)
        lines.append(f"Bundle    : {node}: {kept[node]}{', and on each other node' if len(kept) > 1 else ''}")
    if case.record:
        lines.append(f"Record    : {case.record}")
    if case.decision:
        lines += _wrapped("Retried   : " if case.retry else "No retry  : ", case.decision)
    if case.spent:
        lines.append(f"Spent     : {case.spent}")
    if advice := words.advice(verdict.cls):
        lines += _wrapped("What to do: ", advice)
    return lines


def _stacks(case: Case) -> list[str]:
    """Return where living ranks were, when they were looked at: those at one place in one line, the fewest first."""
    places: dict[str, list[int]] = {}
    for node in case.evidence.nodes:
        for fact in node.facts:
            if isinstance(fact, Stack) and fact.frames:
                places.setdefault(fact.frames[0], []).append(fact.rank)
    found = sorted(places.items(), key=lambda place: (len(place[1]), place[1]))[:PLACES]
    # of a path, the end tells
    said = (f"{named(ranks)} at {place if len(place) <= PLACE else f'…{place[1 - PLACE :]}'}" for place, ranks in found)
    return [f"{'Stacks    : ' if i == 0 else ' ' * 12}{text}" for i, text in enumerate(said)]


def _wrapped(label: str, text: str) -> list[str]:
    """Return a sentence in at most two lines."""
    import textwrap  # with the first report, not with the start

    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        max_lines=2,
        placeholder=" …",
        break_on_hyphens=False,
    )


def _fit(line: str) -> str:
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"
