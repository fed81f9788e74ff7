"""A round put together from texts alone, for the verdict: whose end each text tells, and on which node. Pure.

``remuster explain`` reads files and hands over what it kept of them; ``ends.py`` says how each rank ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from . import kernel as kernel_log
from . import reported, stamps
from .ends import NOBODY, NOWHERE, Beside, End, Part, Said, fact, settle
from .evidence import Fact, NodeEvidence, RankExit, RoundEvidence
from .layout import natural
from .observed import KernelLine
from .own_signatures import NONE, OwnSignatures
from .reading import Reading
from .reading import read as read_end
from .reported import Reported
from .verdict import READ_RANKS

MOST_GAPS = 4096  # ranks without a file, below one that has one
LATE_S = 1e9


@dataclass(frozen=True, slots=True)
class Case:
    """A round for the verdict, and the ends that it was made from."""

    evidence: RoundEvidence
    ends: tuple[End, ...]
    kernel: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()  # what was concluded, and what is lacking
    own: OwnSignatures = NONE  # what the site says of lines and XIDs


def numbered(parts: Sequence[Part]) -> list[End]:
    """Give every writer its place in the job: its rank where that is known, else node by node in order of names."""
    ranked = [part for part in parts if not part.launcher]
    globals_ = [part for part in ranked if part.rank >= 0]
    if len({part.rank for part in globals_}) < len(globals_):  # the same number on several nodes: it counts on each
        for part in globals_:
            part.local, part.rank = part.rank, -1
    _counted_on(ranked)
    used = {part.rank for part in ranked if part.rank >= 0}
    rest = [part for part in ranked if part.rank < 0]
    rest.sort(key=lambda part: (natural(part.node), part.local, natural(part.file)))
    free = (n for n in range(len(ranked) + max(used, default=0) + 1) if n not in used)
    named = {part.local for part in rest} == {*range(len(rest))} or len({part.node for part in rest}) < len(rest)
    ends = [End(part, part.node or NOWHERE, part.rank, max(part.local, 0), True) for part in ranked if part.rank >= 0]
    for part in rest:
        sure = part.local >= 0 and named
        ends.append(End(part, part.node or NOWHERE, next(free), max(part.local, 0), sure))
    ends.sort(key=lambda end: end.rank)
    ends += [End(part, part.node or NOWHERE, NOBODY, -1, False) for part in parts if part.launcher]
    return ends


def _counted_on(ranked: Sequence[Part]) -> None:
    """Number a silent writer by its place on its node, where the others of the node tell which rank is at which."""
    first: dict[str, set[int]] = {}
    for part in ranked:
        if part.rank >= 0:
            first.setdefault(part.node, set()).add(part.rank - part.local if part.local >= 0 else NOBODY)
    used = {part.rank for part in ranked}
    for part in ranked:
        begins = first.get(part.node, set())
        counted = min(begins) + part.local if len(begins) == 1 and min(begins) >= 0 else NOBODY
        if part.rank < 0 <= part.local and counted >= 0 and counted not in used:
            part.rank = counted
            used.add(counted)


def assembled(
    ends: Sequence[End],
    statuses: Sequence[int],
    said: Reported,
    kernel: Sequence[tuple[str, Said]],
    more: Mapping[str, Sequence[Fact]],
    own: OwnSignatures = NONE,
) -> Case:
    """Return the round. ``kernel``: (node, line) that mean something; ``more``: facts by node; '' names none."""
    ranks = [end for end in ends if end.rank != NOBODY]
    notes = settle(ends, statuses, said, Beside([line.text for _, line in kernel], any(more.values()), own))
    launcher = [end for end in ends if end.rank == NOBODY]
    for end in launcher:  # its words count where they name something, and no rank whose end is known
        end.part.lines = [line for line in end.part.lines if not (said and reported.reports(line.text))]
        bad = any(one.status for one in ranks) or not ranks
        end.status = 1 if bad and read_end(end.node, fact(end, 0.0)._replace(status=1), own).weight else 0
    counted = [end for end in ends if end.rank != NOBODY or end.status]
    nodes: dict[str, list[Fact]] = {end.node: [] for end in counted}
    known = [end for end in counted if end.status is not None]
    for at, end in enumerate(_ordered(known, own)):  # within a second: nobody knows more than their order
        nodes[end.node].append(fact(end, at / len(known)))
    if known:
        _fill_gaps(ranks, nodes)
    last = stamps.last_wall(line.text for end in ranks for line in reversed(end.part.lines))
    ages = stamps.before_end([line.text for _, line in kernel], last)
    logged = [(node, [KernelLine(0.0, line.text)]) for (node, line), age in zip(kernel, ages, strict=True) if not age]
    if len(logged) < len(kernel):
        notes.append(f"{len(kernel) - len(logged)} lines of the kernel log are more than a day older: not used")
    for where, facts in (*logged, *more.items()):
        nodes.setdefault(_home(where, facts, ranks), []).extend(facts)
    members = _members(ranks)
    evidence = tuple(NodeEvidence(node, tuple(facts)) for node, facts in nodes.items())
    log = tuple(line for _, line in kernel)
    return Case(RoundEvidence(0, evidence, tuple(members)), tuple(ends), log, tuple(notes), own)


def _members(ranks: Sequence[End]) -> list[tuple[str, int]]:
    """Return (node, slots) so that every rank found is counted at its number: those between are of the node before."""
    members: list[tuple[str, int]] = []
    for i, end in enumerate(ranks):
        after = ranks[i + 1].rank if i + 1 < len(ranks) else end.rank + 1
        slots = after - (end.rank if i else 0)
        if members and members[-1][0] == end.node:
            slots += members.pop()[1]
        members.append((end.node, slots))
    return members


def _fill_gaps(ranks: Sequence[End], nodes: Mapping[str, list[Fact]]) -> None:
    """A rank of which there is no file is no silent rank: let it have ended well, after all others."""
    here = {end.rank for end in ranks}
    for rank in range(min(max(here, default=0), MOST_GAPS)):
        if rank not in here:
            nodes[ranks[0].node].append(RankExit(rank, -1, 0, 0, LATE_S))


def _ordered(ends: Sequence[End], own: OwnSignatures) -> list[End]:
    """Order ends for the verdict, which takes them in order of arrival and reads the first few hundred.

    Error files have the time of each; on one console the order of the telling lines is that of the failures; what no
    rank is known to have written comes last. Of several files nothing tells which ended first: who exited 0 was not
    held up by those who failed.
    """
    files = {end.part.file for end in ends}
    stamps = [end.part.error.timestamp for end in ends if end.part.error and end.part.error.timestamp]
    late = max(stamps, default=0) + 1
    weighed = len(ends) > READ_RANKS

    def key(end: End) -> tuple[object, ...]:
        reading = read_end(end.node, fact(end, 0.0), own) if weighed or len(files) == 1 else None
        error = end.part.error
        stamp = error.timestamp if error and error.timestamp else late
        line = _number(end, reading) if reading and len(files) == 1 else 0
        after = len(files) == 1 or end.status != 0 or end.stopping
        return (end.rank == NOBODY, reading.standing if reading and weighed else 0, after, stamp, line, end.rank)

    return sorted(ends, key=key)


def _number(end: End, reading: Reading) -> int:
    return next((line.number for line in reversed(end.part.lines) if line.text.strip() == reading.line), 1 << 60)


def _home(where: str, facts: Sequence[Fact], ranks: Sequence[End]) -> str:
    """Return the node that facts of a kernel or a driver are of: the one named, the only one there is, the one on which
    a process that they name was a rank, or one of its own."""
    known = {end.node for end in ranks}
    if where in known or not known:
        return where or NOWHERE
    if len(known) == 1:
        return known.pop()
    texts = [fact.text for fact in facts if isinstance(fact, KernelLine)]
    pids = {sign.pid for sign in kernel_log.signs(texts) if sign.pid}
    host = next((name for name in known for text in texts if f" {name} kernel: " in text), "")
    return next((end.node for end in ranks if end.pid in pids), host or where or NOWHERE)


def place(lines: Sequence[Said], text: str) -> Said | None:
    """Return the last of these lines that holds ``text``, as a verdict shows it: in one line, perhaps cut short."""
    wanted = " ".join(text.split()).removesuffix("…")
    if not wanted:
        return None
    return next((line for line in reversed(lines) if wanted in " ".join(line.text.split())), None)


def with_reports(parts: list[Part]) -> tuple[list[Part], Reported]:
    """Read what launchers said, and set their consoles apart from the ranks' outputs.

    A console that names no writers of its lines, but has a launcher's report at its end, tells of the ranks of that
    report; its text is that of the one that the report calls the first to fail.
    """
    lines = [line.text for part in parts if part.launcher for line in part.lines]
    unnamed = [part for part in parts if not part.launcher and part.rank < 0 and part.local < 0]
    consoles = [part for part in unnamed if reported.read(line.text for line in part.lines)]
    lines += [line.text for part in consoles or unnamed for line in part.lines]
    said = reported.read(lines)
    if len(consoles) == 1 and len(parts) == 1 and said.statuses:
        (console,) = parts
        root = said.root if said.root in said.statuses else min(said.statuses)
        others = [Part(console.file, rank=rank) for rank in said.statuses if rank != root]
        return [replace(console, rank=root), *others], said
    if consoles and len(consoles) < len([part for part in parts if not part.launcher]):
        parts = [replace(part, launcher=True) if part in consoles else part for part in parts]
    return parts, said
