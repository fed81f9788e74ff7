"""The final report of a failed launch: torchrun's layout, so that people and tools find what they know, and then what
torchrun does not say: the verdict, the last words of the root rank, the victims apart, and what to do. Pure text.

The judge builds the rows and the command prints the text. The last line names the exception that torchrun would have
raised: wrappers that run the command look for exactly that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..health import exits, words
from ..health.evidence import RankExit, RoundEvidence
from ..health.tail import clean
from ..health.verdict import Verdict

WIDTH = 60
LAST_LINES = 20
MOST_ROWS = 32
_NONE = "<N/A>"
_HINT = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass(frozen=True, slots=True)
class Failure:
    """One rank that ended badly, as the report shows it."""

    node: str
    rank: int
    local_rank: int
    status: int
    pid: int
    time: str  # wall clock of its node, '<N/A>' when unknown
    error_file: str
    text: str  # traceback, or what stands for one
    tail: tuple[str, ...] = ()


def failures(evidence: RoundEvidence, verdict: Verdict) -> tuple[Failure, ...]:
    """Return the root and the ranks that ended badly by themselves, by rank; those that we stopped did not fail."""
    root = (verdict.node, verdict.rank)
    rows = [
        _row(node.node, fact)
        for node in evidence.nodes
        for fact in node.facts
        if isinstance(fact, RankExit) and ((node.node, fact.rank) == root or (fact.status != 0 and not fact.stopping))
    ]
    return tuple(sorted(rows, key=lambda row: (row.rank, row.node)))


def one_line(sentence: str) -> str:
    """Return a sentence that may hold somebody else's words as one line that cannot move a terminal's cursor."""
    shown = (f"\\x{ord(c):02x}" if c < " " or "\x7f" <= c < "\xa0" else c for c in " ".join(sentence.split()))
    return "".join(shown)


def render(entry: str, verdict: Verdict, rows: tuple[Failure, ...], ended: str = "") -> str:
    """Return the report. ``entry`` is the program as typed; ``ended`` says why it is not tried again."""
    victims = {(node, rank) for node, rank, _ in verdict.victims}
    root = next((row for row in rows if (row.node, row.rank) == (verdict.node, verdict.rank)), None)
    others = [row for row in rows if row is not root and (row.node, row.rank) not in victims]
    title = f"{entry} FAILED"
    blocks = [line for i, row in enumerate(others[:MOST_ROWS]) for line in _block(i + 1, row)]
    if len(others) > MOST_ROWS:
        blocks.append(f"  and {len(others) - MOST_ROWS} more")
    first = _block(0, root) if root else _no_rank(verdict)
    width = min(WIDTH, max(len(line) for line in [title, *blocks, *first]))
    bar, section = "=" * width, "-" * width
    lines = ["", bar, title, section, "Failures:", *(blocks or ["  <NO_OTHER_FAILURES>"])]
    lines += [section, "Root Cause (first observed failure):", *first, section, *_verdict(verdict, ended)]
    if root and root.tail:
        lines += [section, f"Last lines of rank {root.rank} on {root.node}:"]
        lines += [f"  {line}" for line in root.tail[-LAST_LINES:]]
    if verdict.victims:
        lines += [section, "Victims (they ended because of it):", *_victims(verdict)]
    if advice := words.advice(verdict.cls):
        lines += [section, "What to do:", f"  {advice}"]
    lines += [bar, f"ChildFailedError: {title}: {verdict.sentence}", ""]
    return "\n".join(clean(line) for line in lines)


def _row(node: str, end: RankExit) -> Failure:
    error = end.error
    stamp = (error.timestamp if error else 0) or end.wall
    text = (error.traceback or error.message) if error else ""
    if not text:
        name = exits.signal_name(end.status)
        text = f"Signal {-end.status} ({name or _NONE}) received by PID {end.pid}" if end.status < 0 else _HINT
    path = error.path if error and error.path else _NONE
    return Failure(node, end.rank, end.local_rank, end.status, end.pid, _stamp(stamp), path, text, end.tail)


def _stamp(wall: int) -> str:
    return time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(wall)) if wall else _NONE


def _block(index: int, row: Failure) -> list[str]:
    name = exits.signal_name(row.status)
    text = row.text.replace("\n", "\n  ")
    return [
        f"[{index}]:",
        f"  time      : {row.time}",
        f"  host      : {row.node}",
        f"  rank      : {row.rank} (local_rank: {row.local_rank})",
        f"  exitcode  : {row.status} (pid: {row.pid}) {f' ({name})' if name else ''}".rstrip(),
        f"  error_file: {row.error_file}",
        *f"  traceback : {text}".split("\n"),
    ]


def _no_rank(verdict: Verdict) -> list[str]:
    return ["[0]:", f"  host      : {verdict.node or _NONE}", f"  traceback : {verdict.sentence}"]


def _verdict(verdict: Verdict, ended: str) -> list[str]:
    lines = ["Verdict:", f"  {verdict.sentence}", f"  class     : {verdict.cls} (family {verdict.family})"]
    if verdict.node:
        lines.append(f"  node      : {verdict.node}{' (the fault lies there)' if verdict.node_fault else ''}")
    if verdict.line:
        lines.append(f"  line      : {verdict.line}")
    lines += [f"  seen      : {note}" for note in verdict.used]
    lines += [f"  also      : {note}" for note in verdict.unused]
    return [*lines, f"  no retry  : {ended}"] if ended else lines


def _victims(verdict: Verdict) -> list[str]:
    shown = [f"  rank {rank} on {node}: {exits.words(status)}" for node, rank, status in verdict.victims[:MOST_ROWS]]
    more = len(verdict.victims) - MOST_ROWS
    return [*shown, f"  and {more} more"] if more > 0 else shown
